"""An approximate mechanism with its budget: strategy, lattice and noise. A design is public.

The sensitivity is an upper bound in exact fractions that includes every rounding, and the noise is the least
that the certified curve of ``calibration.py`` accepts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from dphist.caps import Caps
from dphist.certified import ceiling_of, root_ceiling
from dphist.privacy import Exact, Neighbours, exact, ratio, sensitivity
from dphist.toeplitz.calibration import certifies, least_steps, mu_of
from dphist.toeplitz.strategy import ToeplitzStrategy
from dphist.toeplitz.table import optimal_strategy

# Steps of 2^-24 and 2^-40 of a count cost less than a part in 10^4 of the noise, at any horizon.
FINEST_OUTPUT_BITS = 24
BUFFER_BITS = 40
# With noise of 2^36 steps, no draw and no sum of draws and counts reaches 2^62.
_LARGEST_STEPS = 2**36
LARGEST_WIDTH = 2**32
_SENSITIVITY_BITS = 64
_FIELDS = frozenset(
    (
        *("buffer_bits", "caps", "delta", "epsilon", "neighbours"),
        *("noise_steps", "output_bits", "strategy", "width", "window_starts"),
    )
)


@dataclass(frozen=True)
class ToeplitzDesign:
    """One epoch of a Toeplitz mechanism with discrete Gaussian noise on multiples of u = 2^-output_bits.

    Guarantee: the values that ``ToeplitzCounter`` releases are together (epsilon, delta)-DP, and so for every
        epsilon' and ``calibration.gaussian_delta(mu, epsilon')``, up to 6 N eta in epsilon and a factor
        exp(3 N eta) in delta, N = horizon * width: see ``calibration.certifies``.
    Args: strategy; epsilon; delta, in (0, 1); caps of one privacy unit, on its events in each window;
        neighbours; width in columns; output_bits, of the lattice; buffer_bits, of the state; noise_steps,
        sigma in lattice steps; window_starts, the first bins of the windows in which a unit counts anew;
        share, of mu^2: designs with one budget and width, and shares that add up to 1, keep the guarantee
        together, if all of them release ``width`` columns at most.
    Raises: ValueError naming the field that is wrong, also if the noise is not enough.
    """

    strategy: ToeplitzStrategy
    epsilon: Fraction
    delta: Fraction
    caps: Caps
    neighbours: Neighbours
    width: int
    output_bits: int
    noise_steps: int
    buffer_bits: int = BUFFER_BITS
    window_starts: tuple[int, ...] = (0,)
    share: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        _check_whole("width", self.width, 1, LARGEST_WIDTH)
        _check_whole("output_bits", self.output_bits, 0, FINEST_OUTPUT_BITS)
        _check_whole("buffer_bits", self.buffer_bits, BUFFER_BITS, BUFFER_BITS)
        _check_whole("noise_steps", self.noise_steps, 3, _LARGEST_STEPS)
        sensitivity(1, self.neighbours)  # refuses an unknown relation
        if not isinstance(self.epsilon, Fraction) or self.epsilon <= 0:
            raise ValueError(f"epsilon: {self.epsilon!r} is not a fraction above zero; use privacy.exact")
        if not isinstance(self.delta, Fraction) or not 0 < self.delta < 1:
            raise ValueError(f"delta: {self.delta!r} is not a fraction in (0, 1), for example 1e-6")
        if not 0 < self.share <= 1:
            raise ValueError(f"share: {self.share!r} is not a fraction in (0, 1]")
        reach = _of_share(self.sensitivity, self.share)
        if not certifies(reach, self.noise_steps, self.step, self.coordinates, self.epsilon, self.delta):
            raise ValueError(
                f"noise_steps: {self.noise_steps} steps are less noise than epsilon {self.epsilon} and delta "
                f"{float(self.delta):g} need"
            )

    def __hash__(self) -> int:
        # Answers look a design up in caches; hashing its fractions each time would cost more than that.
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.to_json())

    @property
    def horizon(self) -> int:
        """The bins of an epoch."""
        return self.strategy.horizon

    @property
    def step(self) -> Fraction:
        """The lattice step u of released values, in counts."""
        return Fraction(1, 1 << self.output_bits)

    @property
    def coordinates(self) -> int:
        """How many values an epoch releases."""
        return self.horizon * self.width

    @property
    def touched_columns(self) -> int:
        """The most columns in which one unit can change a count, over the whole epoch."""
        return _touched_columns(self.caps, self.neighbours, self.width, len(self.window_starts))

    @cached_property
    def rounding(self) -> Fraction:
        """A bound on the move of one value's roundings between neighbours: u + sum a_i v/(1 - l_i)."""
        return _rounding(self.strategy, self.step, self.buffer_bits)

    @cached_property
    def sensitivity(self) -> Fraction:
        """An upper bound of the L2 distance of all values of neighbours before noise, in counts.

        It is the norm of C dx for the largest change dx of counts, times sqrt(2) under substitution, plus
        sqrt(values that one unit can touch) roundings.
        """
        return _sensitivity(
            self.strategy, self.caps, self.neighbours, self.window_starts, self.touched_columns, self.rounding
        )

    @property
    def sigma(self) -> Fraction:
        """The parameter of the noise, in counts: an upper bound of its standard deviation."""
        return self.noise_steps * self.step

    @property
    def variance_steps(self) -> Fraction:
        """sigma^2 in squared lattice steps, as the sampler takes it."""
        return Fraction(self.noise_steps**2)

    @cached_property
    def mu(self) -> Fraction:
        """An upper bound of the Gaussian parameter: the cost, as a distance between unit normal laws."""
        return mu_of(self.sensitivity, self.noise_steps, self.step)

    def to_json(self) -> str:
        """Return the canonical text: sorted keys, no spaces, fractions as "p/q"."""
        fields = {
            "buffer_bits": self.buffer_bits,
            "caps": {
                name: value
                for name in ("max_events", "max_keys", "max_per_key")
                if (value := getattr(self.caps, name)) is not None
            },
            "delta": ratio(self.delta),
            "epsilon": ratio(self.epsilon),
            "neighbours": self.neighbours,
            "noise_steps": self.noise_steps,
            "output_bits": self.output_bits,
            "strategy": self.strategy.to_fields(),
            "width": self.width,
            "window_starts": list(self.window_starts),
        } | ({"share": ratio(self.share)} if self.share < 1 else {})
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> ToeplitzDesign:
        """Read the text of ``to_json``, and check all of it again, the noise too.

        Raises: ValueError for other fields or bad values.
        """
        fields = json.loads(text)
        if not isinstance(fields, Mapping) or set(fields) - {"share"} != _FIELDS:
            raise ValueError(f"design: expected the keys {', '.join(sorted(_FIELDS))}")
        caps, starts = fields["caps"], fields["window_starts"]
        if not isinstance(caps, Mapping) or not set(caps) <= {"max_events", "max_keys", "max_per_key"}:
            raise ValueError("caps: expected the keys max_events, max_keys, max_per_key")
        if not isinstance(starts, list) or any(type(start) is not int for start in starts):
            raise ValueError("window_starts: expected a list of bins")
        return cls(
            strategy=ToeplitzStrategy.from_fields(fields["strategy"]),
            epsilon=exact(fields["epsilon"]),
            delta=exact(fields["delta"], "delta"),
            caps=Caps(**caps),
            neighbours=fields["neighbours"],
            width=fields["width"],
            output_bits=fields["output_bits"],
            noise_steps=fields["noise_steps"],
            buffer_bits=fields["buffer_bits"],
            window_starts=tuple(starts),
            share=exact(fields.get("share", "1"), "share"),
        )


def plan_toeplitz(
    horizon: int,
    epsilon: Exact,
    delta: Exact,
    caps: Caps | None = None,
    neighbours: Neighbours = "add_remove",
    width: int = 1,
    window_starts: tuple[int, ...] = (0,),
    strategy: ToeplitzStrategy | None = None,
    share: Fraction = Fraction(1),
) -> ToeplitzDesign:
    """Return the approximate design with the least noise that is certified for this budget.

    Args: as ``ToeplitzDesign``; caps, by default one event of each unit; strategy, by default the one with
        the least mean squared error of running counts.
    Raises: ValueError naming the argument that is wrong.
    Cost: some 10 milliseconds; more for thousands of windows.

    >>> design = plan_toeplitz(horizon=1024, epsilon=1, delta="1e-6")
    >>> design.strategy.buffers, round(float(design.sigma), 2)
    (3, 7.37)
    """
    caps = Caps(max_events=1) if caps is None else caps
    strategy = optimal_strategy(horizon) if strategy is None else strategy
    budget = exact(epsilon), exact(delta, "delta")
    _check_whole("width", width, 1, LARGEST_WIDTH)
    output_bits = FINEST_OUTPUT_BITS
    while True:
        step = Fraction(1, 1 << output_bits)
        rounding = _rounding(strategy, step, BUFFER_BITS)
        columns = _touched_columns(caps, neighbours, width, len(window_starts))
        reach = _sensitivity(strategy, caps, neighbours, window_starts, columns, rounding)
        steps = least_steps(_of_share(reach, share), step, horizon * width, *budget)
        if steps <= _LARGEST_STEPS or output_bits == 0:
            break
        # A coarser lattice keeps the noise within 64 bits; beside so much noise its steps are still fine.
        output_bits = max(0, output_bits - (steps.bit_length() - _LARGEST_STEPS.bit_length() + 1))
    if steps > _LARGEST_STEPS:
        raise ValueError(
            f"epsilon: {budget[0]} needs noise beyond 2^36 counts for these caps; choose a larger epsilon"
        )
    return ToeplitzDesign(
        strategy, *budget, caps, neighbours, width, output_bits, steps, BUFFER_BITS, window_starts, share
    )


def _of_share(reach: Fraction, share: Fraction) -> Fraction:
    """Return the sensitivity that costs a whole mu^2 where ``reach`` costs a share of it."""
    return reach if share == 1 else ceiling_of(root_ceiling(reach * reach / share), _SENSITIVITY_BITS)


def _touched_columns(caps: Caps, neighbours: Neighbours, width: int, windows: int) -> int:
    columns = caps.l1 if caps.max_keys is None else min(caps.max_keys, caps.l1)
    sides = 2 if neighbours == "substitute" else 1
    return min(width, columns * sides * windows)


def _rounding(strategy: ToeplitzStrategy, step: Fraction, buffer_bits: int) -> Fraction:
    return step + strategy.rounding_gain() / (1 << buffer_bits)


@lru_cache(maxsize=256)
def _sensitivity(
    strategy: ToeplitzStrategy,
    caps: Caps,
    neighbours: Neighbours,
    window_starts: tuple[int, ...],
    columns: int,
    rounding: Fraction,
) -> Fraction:
    squared = caps.l2_squared * strategy.windows_norm_squared(window_starts)
    if neighbours == "substitute":
        squared *= 2
    touched = root_ceiling(Fraction(strategy.horizon * columns))
    return ceiling_of(root_ceiling(squared) + touched * rounding, _SENSITIVITY_BITS)


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name}: {value!r} is not a whole number in [{least}, {most}]")
