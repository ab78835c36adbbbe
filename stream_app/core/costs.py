"""What epochs of streams cost together: as a sum, and composed for a stated delta."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_UP, Context, Decimal
from fractions import Fraction

from dphist.composition import Losses, delta_of, epsilon_of
from stream_app.core.records import LedgerEntry

# The delta for which pure epochs are composed, beside their sum: a millionth.
USUAL_DELTA = Fraction(1, 10**6)
_SHOWN = Context(prec=3, rounding=ROUND_UP)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of some epochs for one privacy unit.

    Args:
        epsilon, delta: the sums over the epochs; delta is 0 if all of them are pure.
        losses: the same epochs, to be composed.
        largest_delta: of one epoch.
    """

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    losses: Losses = field(default_factory=Losses)
    largest_delta: Fraction = Fraction(0)

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.epsilon + other.epsilon,
            self.delta + other.delta,
            self.losses + other.losses,
            max(self.largest_delta, other.largest_delta),
        )

    @property
    def stated_delta(self) -> Fraction:
        """The delta for which the cost is composed: the largest of one epoch, or a millionth."""
        return self.largest_delta or USUAL_DELTA

    def composed(self, delta: Fraction) -> Fraction | None:
        """Return an epsilon that holds with this delta for everything together; None if there is none."""
        epsilon = epsilon_of(self.losses, delta)
        if self.delta <= delta:
            return self.epsilon if epsilon is None else min(epsilon, self.epsilon)
        return epsilon

    def is_within(self, epsilon: Fraction, delta: Fraction | None) -> bool:
        """Return whether everything together is certainly (epsilon, delta)-private; delta None: 0."""
        if self.epsilon <= epsilon and self.delta <= (delta or 0):
            return True
        return delta is not None and delta_of(self.losses, epsilon) <= delta


def cost_of(epochs: Sequence[LedgerEntry], unit: str, neighbours: str) -> Cost:
    """Return the cost of one stream's epochs for a promise about this unit and these neighbours.

    An event falls into one epoch, so for the unit event only the largest cost counts. Users have events in
    every epoch.
    Raises: ValueError for an entry with a delta and no mu, which cannot be composed.
    """
    factor = 1
    if neighbours == "substitute" and epochs[0].neighbours == "add_remove":
        factor *= 2  # a substitution is one event less and one more
    if unit == "event" and epochs[0].unit == "user":
        factor *= 2  # with a cap, one added event can displace another event of its user
    counted = epochs if unit == "user" else [max(epochs, key=_size)]
    return total_of(_cost(entry, factor) for entry in counted)


def total_of(costs: Iterable[Cost]) -> Cost:
    """Return the cost of everything together."""
    return sum(costs, Cost())


def rounded_up(number: Fraction) -> Fraction:
    """Return a number with at most three digits, never below the given one.

    >>> rounded_up(Fraction("3.90398")), rounded_up(Fraction(1, 2))
    (Fraction(391, 100), Fraction(1, 2))
    """
    return Fraction(_SHOWN.divide(Decimal(number.numerator), Decimal(number.denominator)))


def _size(entry: LedgerEntry) -> tuple[Fraction, Fraction]:
    return Fraction(entry.epsilon), Fraction(entry.mu or 0)


def _cost(entry: LedgerEntry, factor: int) -> Cost:
    """Return the cost of an epoch for neighbours that are ``factor`` of its own changes apart."""
    epsilon = factor * Fraction(entry.epsilon)
    if entry.delta is None:
        return Cost(epsilon, losses=Losses.of_pure(epsilon))
    if entry.mu is None:
        raise ValueError(f"ledger of {entry.source}: {entry} has a delta and no mu")
    losses = Losses.of_gaussian(factor * Fraction(entry.mu))
    own = Fraction(entry.delta)
    return Cost(epsilon, own if factor == 1 else rounded_up(delta_of(losses, epsilon)), losses, own)
