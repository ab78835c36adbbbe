"""Compare ways to count a declared stream: the error, noise draws and memory of each.

The candidates are the planner's trees and, for comparison, those of the literature with the best parameters
for the horizon. All figures are computed exactly from variances, without drawing noise or seeing data.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from dphist.arrays import FloatArray
from dphist.noise import SeededNoise
from dphist.planning.reference import HonakerCounter, KaryCounter, SubtractionCounter
from dphist.planning.tree import checked_horizon, plan_tree, planning_rate
from dphist.privacy import Exact, Neighbours, exact
from dphist.privacy import sensitivity as level_sensitivity
from dphist.tree.design import Release, TreeDesign
from dphist.tree.published_laws import published_prefix_variances
from dphist.tree.shape import TreeShape
from dphist.workloads import PREFIX, Workload, WorkloadText

RELEASES: tuple[Release, ...] = ("causal", "anticipating")

# A larger epsilon protects nobody, so the search for a target error stops here.
LARGEST_EPSILON = 20
_LEAST_EPSILON = 1e-9
_HAY_BRANCHINGS = (16, 17)
_SUBTRACTION_BRANCHINGS = range(9, 26, 2)
_EPSILON_DIGITS = 3
# Just below a power of ten, the last of three digits is ten times smaller.
_JUST_BELOW = Fraction(10**6 - 1, 10**6)


@dataclass(frozen=True)
class Candidate:
    """One way to count an epoch.

    Args: tree in words; error, the root of the workload's mean squared error, or None if the candidate
        answers running counts only; variances of the running count at t = 1..horizon; draws of noise per
        epoch; most_draws, the most that one closing bin needs (0: all are drawn before the epoch); memory in
        bytes of an epoch's nodes, published values and secret noise; design, if there is a ``TreeDesign``.
    """

    name: str
    tree: str
    error: float | None
    variances: FloatArray = field(repr=False)
    draws: int
    most_draws: int
    memory: int
    design: TreeDesign | None = None

    @property
    def running_error(self) -> float:
        """The root of the mean squared error of the running count."""
        return math.sqrt(self.variances.mean())

    @property
    def worst_error(self) -> float:
        """The standard error of the worst running count."""
        return math.sqrt(self.variances.max())

    @property
    def mean_draws(self) -> float:
        """The average number of noise draws per bin; if ``most_draws`` is 0, drawn before the epoch."""
        return self.draws / len(self.variances)


def candidates(
    horizon: int,
    epsilon: Exact,
    workload: Workload | WorkloadText = PREFIX,
    neighbours: Neighbours = "add_remove",
    max_events: int = 1,
    width: int = 1,
) -> Iterator[Candidate]:
    """Yield the literature's counters, then the planner's trees for both releases, all at the same epsilon.

    Args: as ``plan_tree``; width in cells.
    Raises: ValueError as ``plan_tree``.
    Cost: seconds at 2^20 bins.
    """
    questions = Workload.of(workload)
    questions.check(checked_horizon(horizon))
    budget, moved = exact(epsilon), level_sensitivity(max_events, neighbours)
    planning_rate(budget, moved)  # raises the planner's error for noise that no counter could draw
    yield from _literature(horizon, budget / moved, questions, width)
    for release in RELEASES:
        for k in _HAY_BRANCHINGS:
            yield candidate_of(
                f"Hay et al., k = {k}, {release}",
                _equal_shares(horizon, budget, k, release, neighbours, moved),
                questions,
                width,
            )
        design = plan_tree(horizon, budget, questions, release, neighbours, max_events)
        yield candidate_of(f"planned, {release}", design, questions, width)


def least_epsilon(
    horizon: int,
    error: float,
    workload: Workload | WorkloadText = PREFIX,
    release: Release = "causal",
    neighbours: Neighbours = "add_remove",
    max_events: int = 1,
) -> Fraction:
    """Return the smallest epsilon, to three significant digits, whose planned tree has at most this error.

    Args: error, the root of the workload's mean squared error, in counts; the rest as ``plan_tree``.
    Raises: ValueError for an error that is not above zero, or needs an epsilon above 20 or below 1e-9.
    Cost: half a dozen plans.

    >>> least_epsilon(16, 50.0)
    Fraction(33, 400)
    """

    def reached(epsilon: Fraction) -> float:
        design = plan_tree(horizon, epsilon, workload, release, neighbours, max_events)
        return math.sqrt(design.mean_squared_error(workload))

    return smallest_epsilon(error, reached)


def smallest_epsilon(error: float, reached: Callable[[Fraction], float]) -> Fraction:
    """Return the smallest epsilon, to three significant digits, with at most this error.

    Args: reached, which returns the error of the plan for an epsilon.
    Raises: ValueError as ``least_epsilon``.
    """
    if not (math.isfinite(error) and error > 0):
        raise ValueError(f"error: {error!r} is not a finite number above zero; write for example 50")

    # For small epsilons the error is inversely proportional to epsilon, so a few corrections suffice.
    guess = reached(Fraction(1)) / error
    for _ in range(3):
        guess = min(guess, float(LARGEST_EPSILON))
        if guess < _LEAST_EPSILON:
            raise ValueError(
                f"error: {error:g} needs an epsilon below {_LEAST_EPSILON:g}; that counts nothing"
            )
        guess *= reached(Fraction(guess).limit_denominator(10**12)) / error
    epsilon = _three_digits(min(guess, float(LARGEST_EPSILON)))
    if reached(epsilon) <= error:
        while reached(lower := epsilon - _last_digit(epsilon * _JUST_BELOW)) <= error:
            epsilon = lower
        return epsilon
    while epsilon < LARGEST_EPSILON:
        epsilon = min(epsilon + _last_digit(epsilon), Fraction(LARGEST_EPSILON))
        if reached(epsilon) <= error:
            return epsilon
    raise ValueError(f"error: {error:g} needs an epsilon above {LARGEST_EPSILON}; that protects nobody")


def _literature(horizon: int, rate: Fraction, workload: Workload, width: int) -> Iterator[Candidate]:
    """Yield the counters of the literature. Args: rate, epsilon divided by sensitivity."""
    none = SeededNoise(0)
    subtracting = min(
        (SubtractionCounter(horizon, rate, k, none, 0) for k in _SUBTRACTION_BRANCHINGS),
        key=KaryCounter.mean_squared_error,
    )
    counters: dict[str, KaryCounter] = {
        "flat": KaryCounter(horizon, rate, max(2, horizon), none, 0),
        "binary (Chan et al.)": KaryCounter(horizon, rate, 2, none, 0),
        "binary, refined (Honaker)": HonakerCounter(horizon, rate, 2, none, 0),
        "subtraction (Andersson et al.)": subtracting,
    }
    for name, counter in counters.items():
        variances = counter.prefix_variances()
        error = math.sqrt(variances.mean()) if workload == PREFIX else None
        draws = width * sum(-(-horizon // counter.branching**level) for level in range(counter.height))
        memory = 8 * draws + 8 * width * horizon
        tree = "1 level" if name == "flat" else f"k = {counter.branching}, {counter.height} levels"
        yield Candidate(name, tree, error, variances, draws, width * counter.height, memory)


def candidate_of(name: str, design: TreeDesign, workload: Workload, width: int) -> Candidate:
    """Return the error, draws and memory of a design. Args: width in cells."""
    variances = published_prefix_variances(design)
    error = math.sqrt(variances.mean() if workload == PREFIX else design.mean_squared_error(workload))
    draws = width * sum(design.drawn_nodes(design.horizon))
    # The bytes of nodes and published values; if noise is drawn ahead, also of the stored noise of both.
    memory = 8 * (draws + width * design.horizon) * (2 if design.anticipates else 1)
    most = 0 if design.anticipates else width * design.shape.height
    tree = "-".join(map(str, design.branching))
    return Candidate(name, tree, error, variances, draws, most, memory, design)


def _equal_shares(
    horizon: int, epsilon: Fraction, k: int, release: Release, neighbours: Neighbours, moved: int
) -> TreeDesign:
    """Return the tree of Hay et al. and of OpenDP: the same branching k and the same share on all levels."""
    below = 1
    branching: tuple[int, ...] = ()
    while k * below < horizon:
        below *= k
        branching = (k, *branching)
    branching = (-(-horizon // below), *branching)
    shares = (Fraction(1, len(branching)),) * len(branching)
    return TreeDesign(TreeShape(branching), horizon, epsilon, shares, neighbours, moved, release)


def _last_digit(epsilon: Fraction) -> Fraction:
    exponent = math.floor(math.log10(epsilon)) - (_EPSILON_DIGITS - 1)
    return Fraction(10) ** exponent


def _three_digits(epsilon: float) -> Fraction:
    unit = _last_digit(Fraction(epsilon))
    return max(math.floor(Fraction(epsilon) / unit) * unit, unit)
