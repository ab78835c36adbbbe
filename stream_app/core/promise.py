"""The privacy promise about a source, in plain words, with exact numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from stream_app.core.costs import Cost, rounded_up
from stream_app.core.instants import format_instant, period_in_words, periods_in_words

LARGEST_EXPONENT = 20  # for larger epsilons "the odds change by a factor of" has no meaning


@dataclass(frozen=True, slots=True)
class Measurement:
    """All epochs of one stream, and the most that each costs. ``end_us`` None: no end.

    Args: strategy_hash, last_epsilon, last_delta, of the last epoch; changed_us, the start of the first epoch
        after the stream's settings last changed, None if they never did; successor_of, the stream that ends
        where this one begins; signed, whether an engine counts the events before the service does.
    """

    stream: str
    strategy_hash: str
    unit: str
    user: str | None
    epsilon: Fraction
    start_us: int
    end_us: int | None
    epochs: int
    private: bool
    delta: Fraction | None = None
    per: str | None = None
    periods: int = 0  # the most that one epoch touches
    changed_us: int | None = None
    last_epsilon: Fraction | None = None
    last_delta: Fraction | None = None
    successor_of: str | None = None
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """The privacy promise about a source, its unit, and the ``measurements`` that it covers."""

    source: str
    unit: str
    neighbours: str
    cost: Cost
    private: bool
    measurements: tuple[Measurement, ...]
    whole_user: Cost | None = None  # of a user's events in one epoch of each stream, if the unit is a period

    @property
    def epsilon(self) -> Fraction:
        return self.cost.epsilon

    @property
    def delta(self) -> Fraction | None:
        """The sum of the deltas; None for a pure promise."""
        return self.cost.delta or None

    @property
    def composed_delta(self) -> Fraction:
        """The delta for which ``composed`` states an epsilon."""
        return self.cost.stated_delta

    @property
    def composed(self) -> Fraction:
        """An epsilon that holds for everything together with ``composed_delta``, rounded up for readers."""
        epsilon = self.cost.composed(self.composed_delta)
        assert epsilon is not None  # every epoch is pure or has a mu
        return min(rounded_up(epsilon), self.epsilon) if self.delta is None else rounded_up(epsilon)

    @property
    def total_epsilon(self) -> Fraction:
        """The epsilon of the promise: the sum if it is pure, otherwise composed for ``composed_delta``."""
        return self.epsilon if self.delta is None else self.composed

    def sentences(self) -> tuple[str, ...]:
        """Return the promise in plain words: first the total, then its composition, then each measurement."""
        if not self.measurements:
            return (f"Nothing has been measured in {self.source}.",)
        if not self.private:
            return (
                f"Not private: epsilon {in_words(self.total_epsilon)} is so large that it protects nobody.",
                *map(_sentence, self.measurements),
            )
        others = filter(None, (self.whole_user_line, self.other_line))
        weaker = [f"A person with k events: {self.of_many('events')}"] if self.unit == "event" else []
        return (self.promise(), *others, *map(_sentence, self.measurements), *weaker)

    def promise(self, what: str = "anything that is shown") -> str:
        """Return the promise in one sentence. Args: what, the name of all that was measured here."""
        change = _change(self.unit, self.neighbours, self.source)
        beside = "" if self.delta is None else f", and adds at most {delta_in_words(self.composed_delta)}"
        factor = factor_in_words(self.total_epsilon)
        return f"{change} changes the probability of {what} by at most a factor {factor}{beside}."

    def of_many(self, units: str) -> str:
        """Return what the promise is for somebody with several units. Args: units, "events" or "names"."""
        if self.delta is not None:
            return "epsilon is k times as large, and delta grows faster."
        return to_the_power(self.epsilon, units)

    @property
    def whole_user_line(self) -> str:
        """The cost of a user's whole epoch; empty unless the unit is a user's hour, day or week."""
        if self.whole_user is None:
            return ""
        cost, delta = self.whole_user, self.whole_user.delta or None
        epochs = "one epoch" if len(self.measurements) == 1 else "one epoch of each stream"
        lengths = {periods_in_words(m.per, m.periods) for m in self.measurements if m.per}
        of = f" of {lengths.pop()}" if len(lengths) == 1 else ""
        if delta is not None and delta >= 1:  # so many periods leave nothing of a promise that may fail
            return f"For all events of a user in {epochs}{of} together this states no bound."
        return f"All events of a user in {epochs}{of} together cost {promise_in_words(cost.epsilon, delta)}."

    @property
    def other_line(self) -> str:
        """The cost in the other form: the sum, or composed if that is less than the sum; otherwise empty."""
        composed = promise_in_words(self.composed, self.composed_delta)
        if self.delta is not None:
            return f"This is composed; the sum of all parts is {promise_in_words(self.epsilon, self.delta)}."
        if self.composed < self.epsilon:
            return f"For those who accept a delta, all of it together is {composed}."
        return ""

    @property
    def neighbouring(self) -> str:
        return neighbouring_in_words(self.unit, self.neighbours)


_NEIGHBOURING = {
    ("event", "add_remove"): "a log, and the same log without one event",
    ("event", "substitute"): "a log, and the same log with one event replaced by any other",
    ("user", "add_remove"): "a log, and the same log without all events of one user",
    ("user", "substitute"): "a log, and the same log with all events of one user replaced by any others",
}
CHANGES = {
    ("event", "add_remove"): "Whether or not any one event of {source} exists",
    ("event", "substitute"): "Putting any event, at any time, in the place of any one event of {source}",
    ("user", "add_remove"): "Whether or not all events of any one user of {source} exist",
    ("user", "substitute"): "Putting any other events in the place of all those of any one user of {source}",
}


def _change(unit: str, neighbours: str, source: str) -> str:
    base, _, per = unit.partition(" per ")
    within = f" within any one {period_in_words(per)}" if per else ""
    return CHANGES[base, neighbours].format(source=f"{source}{within}")


def neighbouring_in_words(unit: str, neighbours: str) -> str:
    """Return the two logs that a promise about this unit compares."""
    base, _, per = unit.partition(" per ")
    if not per:
        return _NEIGHBOURING[unit, neighbours]
    return _NEIGHBOURING[base, neighbours].replace(
        "of one user", f"of one user within one {period_in_words(per)}"
    )


def in_words(epsilon: Fraction) -> str:
    """Return the exact text of an epsilon: a decimal if a short one is exact, otherwise a fraction.

    >>> in_words(Fraction(1, 2)), in_words(Fraction(3)), in_words(Fraction(1, 3))
    ('0.5', '3', '1/3')
    """
    decimal = f"{float(epsilon):.12g}"
    return decimal if "e" not in decimal and Fraction(decimal) == epsilon else str(epsilon)


def factor_in_words(epsilon: Fraction) -> str:
    """Return the factor e^epsilon, and its size for readers who do not know powers of e.

    >>> [factor_in_words(Fraction(one)) for one in ("0.05", "1", "5/2", "8")]
    ['e^0.05 (about 1.051)', 'e^1 (about 2.7)', 'e^2.5 (about 12)', 'e^8 (about 2,981)']
    """
    if epsilon > LARGEST_EXPONENT:
        return f"e^{in_words(epsilon)}"
    more = math.expm1(epsilon)
    decimals = 0 if more >= 9 else max(1, 1 - math.floor(math.log10(more)))
    return f"e^{in_words(epsilon)} (about {1 + more:,.{decimals}f})"


def to_the_power(epsilon: Fraction, units: str) -> str:
    """Return how a factor grows with the events or names of one person, and what it still hides.

    >>> for one in ("0.05", "1", "5"):
    ...     print(to_the_power(Fraction(one), "events").removeprefix("the factor is "))
    1.051 to the power k (10 events: about 1.6).
    2.72 to the power k (10 events: about 22,000), so only single events are hidden at this epsilon.
    148 to the power k (10 events: more than a trillion), so not even single events are hidden well.
    """
    if epsilon > LARGEST_EXPONENT:
        return "not even one of them is hidden."
    more, ten = math.expm1(epsilon), math.exp(10 * epsilon)
    one = f"{1 + more:,.{0 if more >= 99 else max(2, 1 - math.floor(math.log10(more)))}f}"
    digits = 1 - math.floor(math.log10(ten))
    of_ten = "more than a trillion" if ten > 1e12 else f"about {round(ten, digits):,.{max(0, digits)}f}"
    hidden = ""
    if ten >= _HIDES_LITTLE:
        hidden = f", so only single {units} are hidden at this epsilon"
    if 1 + more >= _HIDES_LITTLE:
        hidden = f", so not even single {units} are hidden well"
    return f"the factor is {one} to the power k (10 {units}: {of_ten}){hidden}."


_HIDES_LITTLE = 100  # a factor by which 50:50 becomes 99:1


def from_even_odds(epsilon: Fraction) -> str:
    """Return what a factor means for somebody who thought that two logs are equally likely.

    >>> [from_even_odds(Fraction(one)) for one in ("0.01", "1", "8")]
    ['about 50.2:49.8', 'about 73:27', 'about 99.97:0.03']
    """
    rest = 100 / (1 + math.exp(epsilon))
    least = min(rest, 50 - rest)  # written with the decimals that tell it from 0 and from one half
    decimals = max(0, -math.floor(math.log10(least)))
    rest = round(rest, decimals)
    return f"about {100 - rest:.{decimals}f}:{rest:.{decimals}f}"


def delta_in_words(delta: Fraction) -> str:
    """Return the exact text of a delta: a short decimal if one is exact, otherwise a fraction.

    >>> [delta_in_words(Fraction(1, number)) for number in (10**6, 1000, 3000)]
    ['1e-6', '0.001', '1/3000']
    """
    decimal = f"{float(delta):.12g}".replace("e-0", "e-")
    return decimal if Fraction(decimal) == delta else str(delta)


def promise_in_words(epsilon: Fraction, delta: Fraction | None) -> str:
    """Return a promise as every surface writes it.

    >>> promise_in_words(Fraction(1), None), promise_in_words(Fraction(1), Fraction(1, 10**6))
    ('epsilon 1', '(epsilon 1, delta 1e-6)')
    """
    if delta is None:
        return f"epsilon {in_words(epsilon)}"
    return f"(epsilon {in_words(epsilon)}, delta {delta_in_words(delta)})"


def _sentence(measurement: Measurement) -> str:
    unit, epochs = f"{measurement.unit}s", "one epoch"
    if measurement.user is not None:
        unit += f' that the field "{measurement.user}" names,'
    if measurement.per is not None:
        unit += f" within each {period_in_words(measurement.per)},"
    if measurement.epochs > 1 and measurement.per is not None:
        epochs = f"{measurement.epochs} epochs, which add up only for a period that both touch"
    elif measurement.epochs > 1 and measurement.unit == "event":
        epochs = f"{measurement.epochs} epochs, which do not add up"
    elif measurement.epochs > 1:
        epochs = f"{measurement.epochs} epochs, which add up for a user"
    start, end_us = format_instant(measurement.start_us), measurement.end_us
    period = f"{start} on" if end_us is None else f"{start} to {format_instant(end_us)}"
    spent = promise_in_words(measurement.epsilon, measurement.delta)
    if measurement.changed_us is not None and measurement.last_epsilon is not None:
        now = promise_in_words(measurement.last_epsilon, measurement.last_delta)
        spent = f"at most {spent}, and {now} since {format_instant(measurement.changed_us)},"
    signed = f" {signed_in_words(measurement.unit == 'user')}" if measurement.signed else ""
    return f"Stream {measurement.stream} spends {spent} on {unit} from {period} ({epochs}).{signed}"


def signed_in_words(of_users: bool) -> str:
    """Return the sentence that the operator signs about an engine that counts events before the service."""
    one = (
        "a user changes no more of its rows than this cap says" if of_users else "one event adds 1 to one row"
    )
    return (
        f"The operator signs for the engine: {one}, and changes no other row and no instant. "
        "The service cannot check that."
    )
