"""The cost of several epochs of streams together: as a sum, and composed for a stated delta.

A stream whose settings change goes on under another strategy. The first epoch under the new one
names the old one. So all its epochs count as those of one stream: an event falls into one epoch.
A stream and its successor count as one stream, too, if both promise the same unit: the successor counts from
the instant on at which the stream before it ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_UP, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from dphist.certified import exp_bounds
from dphist.composition import Losses, delta_of, epsilon_of
from stream_app.core.records import LedgerEntry

# Besides the sum of epsilons, statements have the composed epsilon of pure epochs at this delta.
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
        """The composed cost's delta: that of the losses plus the largest of an epoch, or else a millionth."""
        return self.losses.delta + (self.largest_delta or USUAL_DELTA)

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
    every epoch. A user's day is in one epoch, or in several if epochs ended early within it. With a cap per
    user, an event can change which of the user's other events count in its cap window: in one epoch, or in
    several if epochs ended early within the window.
    """

    def cost(entry: LedgerEntry) -> Cost:
        factor = 1
        if neighbours == "substitute" and entry.neighbours == "add_remove":
            factor *= 2  # a substitution is one event less and one more
        if unit == "event" and entry.unit == "user":
            factor *= 2  # with a cap, one added event can displace another event of its user
        return _cost(entry, factor)

    if " per " in unit:
        return _costliest(_of_one_period(epochs), cost)
    if unit == "event":
        return _costliest(_of_one_window(epochs), cost)
    return total_of(map(cost, epochs))


@lru_cache(maxsize=1_024)  # a ledger has thousands of entries and a few different costs
def exact(text: str) -> Fraction:
    return Fraction(text)


def unit_of(entry: LedgerEntry) -> str:
    """Return the unit of one entry: "event", "user", or for a user's day "user per 1d"."""
    return entry.unit if entry.per is None else f"{entry.unit} per {entry.per}"


def cost_of_whole_user(epochs: Sequence[LedgerEntry], neighbours: str) -> Cost:
    """Return the cost of all events of a user in one epoch, if the unit is a period: once per period.

    Guarantee: holds for every epoch of the stream. Neighbours are as many changes of the unit apart as the
        epoch touches periods.
    """
    factor = 2 if neighbours == "substitute" and epochs[0].neighbours == "add_remove" else 1
    periods = max(entry.periods for entry in epochs)
    return _costliest([[entry] for entry in epochs], lambda entry: _cost(entry, factor * periods))


def _of_one_period(epochs: Sequence[LedgerEntry]) -> list[list[LedgerEntry]]:
    """Return for each period in which an epoch begins the epochs that may count events of the period.

    An epoch counts until the next one begins. So a period holds the epochs that begin in it, and the epoch
    before them, unless one of them begins together with the period.
    """
    in_order = sorted(epochs, key=lambda entry: entry.start_us)
    starts_us = [entry.start_us for entry in in_order]
    found: dict[int | None, list[LedgerEntry]] = defaultdict(list)
    for entry in in_order:
        found[entry.period_us].append(entry)
    for period_us, inside in found.items():
        earlier = bisect_left(starts_us, inside[0].start_us)
        if earlier and inside[0].start_us != period_us:
            inside.append(in_order[earlier - 1])
    return list(found.values())


def _of_one_window(epochs: Sequence[LedgerEntry]) -> list[list[LedgerEntry]]:
    """Return the epochs in groups that share a cap window: each begins before an earlier one was to end.

    A store that was set back knows an older number of each user's counted records. The epoch that follows
    chooses by that number, so one event can change the choice in both epochs. Without a cap it is in one.
    A successor has its own windows: it counts no event of the stream before it, also where that was cut.
    """
    if epochs[0].unit == "event":
        return [[entry] for entry in epochs]
    groups: list[list[LedgerEntry]] = []
    for entry in sorted(epochs, key=lambda entry: entry.start_us):
        own = groups and groups[-1][-1].stream == entry.stream
        if own and entry.start_us < max(one.end_us for one in groups[-1]):
            groups[-1].append(entry)
        else:
            groups.append([entry])
    return groups


def _costliest(groups: Sequence[list[LedgerEntry]], cost: Callable[[LedgerEntry], Cost]) -> Cost:
    """Return a cost that is at least the cost of each group; the epochs of one strategy cost the same.

    If the groups' epochs have several strategies and are pure, the largest sum counts. It composes like one
    epoch of this epsilon: a group with a smaller sum may compose worse than the group with the largest sum.
    If one has a delta, costs have no order. Then each strategy counts as often as it is in one group at most.
    """
    every = [entry for some in groups for entry in some]
    strategies = dict.fromkeys(entry.strategy_hash for entry in every)
    if len(strategies) > 1 and all(entry.delta is None for entry in every):
        epsilon = max(total_of(map(cost, some)).epsilon for some in groups)
        return Cost(epsilon, losses=Losses.of_pure(epsilon))
    most: list[LedgerEntry] = []
    for strategy in strategies:
        own = [[entry for entry in some if entry.strategy_hash == strategy] for some in groups]
        largest = max((some for some in own if some), key=lambda some: (len(some), max(map(_size, some))))
        most.extend(largest)
    return total_of(map(cost, most))


def total_of(costs: Iterable[Cost]) -> Cost:
    return sum(costs, Cost())


def rounded_up(number: Fraction) -> Fraction:
    """Return a number with at most three digits, never below the given one.

    >>> rounded_up(Fraction("3.90398")), rounded_up(Fraction(1, 2))
    (Fraction(391, 100), Fraction(1, 2))
    """
    return Fraction(_SHOWN.divide(Decimal(number.numerator), Decimal(number.denominator)))


def _size(entry: LedgerEntry) -> tuple[Fraction, Fraction]:
    return exact(entry.epsilon), exact(entry.mu or "0")


def _cost(entry: LedgerEntry, factor: int) -> Cost:
    """Return the cost of an epoch for neighbours that differ by ``factor`` changes of its own unit."""
    epsilon = factor * exact(entry.epsilon)
    if entry.delta is None:
        return Cost(epsilon, losses=Losses.of_pure(epsilon))
    if entry.mu is None:
        return _generic(epsilon, exact(entry.delta), factor)
    losses = Losses.of_gaussian(factor * exact(entry.mu))
    own = exact(entry.delta)
    return Cost(epsilon, own if factor == 1 else rounded_up(delta_of(losses, epsilon)), losses, own)


def _generic(epsilon: Fraction, delta: Fraction, factor: int) -> Cost:
    """Return the cost of an epoch of which no mu is known. Args: epsilon, already ``factor`` times its own.

    Changing k times costs k epsilon and at most k e^((k - 1) epsilon) delta.
    """
    between = epsilon * (factor - 1) / factor
    grown = delta * factor * Fraction(2**64, max(exp_bounds(between, 64)[0], 1))
    total = delta if factor == 1 else rounded_up(grown)
    return Cost(epsilon, total, Losses.of_approximate(epsilon, total), delta)


def measured_before(entries: Sequence[LedgerEntry], new: LedgerEntry) -> tuple[LedgerEntry, ...]:
    """Return the first entry of every other measurement that counts events which ``new`` will count.

    A period reaches as far as its stream will ever count, not only to the end of the open epochs. Disjoint
    periods have no common event only if both streams read the same time field: an order of January may be
    paid in February. A stream ends before its successor only for a stream that protects the same: for any
    other, both add up, and the operator must accept the sum.

    >>> live = LedgerEntry("file:a", "s", 0, 0, 10, "1", "event", "h")
    >>> later = LedgerEntry("file:a", "t", 0, 10, 20, "1", "event", "h")
    >>> [found.stream for found in measured_before([live], later)]
    ['s']
    """
    ends = ends_of([*entries, new])

    def overlap(epochs: Sequence[LedgerEntry]) -> bool:
        alike = _protected(max(epochs, key=lambda entry: entry.start_us)) == _protected(new)
        return _overlap(period_of(epochs, ends if alike else {}), period_of([new], ends))

    return tuple(
        min(epochs, key=lambda entry: entry.start_us)
        for epochs in measurements_of([*entries, new])
        if new not in epochs
        if new.time is None or first_known(entry.time for entry in epochs) != new.time or overlap(epochs)
    )


def measurements_of(entries: Sequence[LedgerEntry]) -> list[list[LedgerEntry]]:
    """Return the epochs of each measurement: of one stream, under strategies that followed one another.

    Two strategies of a stream without an entry that links them add up: which of them counted an event is not
    known. An entry of a lost store has no link, so the sum may then be too large, never too small.
    """
    first_of: dict[tuple[str, str], tuple[str, str]] = {}  # the strategy in whose place one counts

    def place(stream: str, strategy_hash: str) -> tuple[str, str]:
        found = stream, strategy_hash
        while (earlier := first_of.get(found, found)) != found:
            found = earlier
        return found

    for entry in entries:
        if entry.changed_from is not None:
            first_of[place(entry.stream, entry.strategy_hash)] = place(entry.stream, entry.changed_from)
    found: dict[tuple[str, str], list[LedgerEntry]] = defaultdict(list)
    for entry in entries:
        found[place(entry.stream, entry.strategy_hash)].append(entry)
    return list(found.values())


def in_succession(streams: Sequence[list[LedgerEntry]]) -> list[list[LedgerEntry]]:
    """Return the epochs of all measurements, those of a stream and its successor together.

    No event is counted by both streams, so they cost as much as one stream whose settings change. This needs
    the same unit of both, and that the stream began no epoch after its end. Otherwise their costs add up.
    """
    joined: list[list[LedgerEntry]] = []
    for epochs in sorted(streams, key=lambda epochs: min(entry.start_us for entry in epochs)):
        start_us = min(entry.start_us for entry in epochs)
        before = {entry.successor_of for entry in epochs}
        for found in joined:
            last = max(found, key=lambda entry: entry.start_us)
            if (
                last.stream in before
                and last.start_us < start_us
                and _protected(last) == _protected(epochs[0])
            ):
                found += epochs
                break
        else:
            joined.append(list(epochs))
    return joined


def _protected(entry: LedgerEntry) -> tuple[object, ...]:
    return unit_of(entry), entry.user, entry.time, entry.neighbours


def ends_of(entries: Iterable[LedgerEntry]) -> dict[str, int]:
    """Return the ends of streams that have a successor, by name. The later end counts if two are known."""
    begun: dict[tuple[str, str], int] = {}
    for entry in entries:
        if entry.successor_of is not None:
            place = entry.successor_of, entry.stream
            begun[place] = min(entry.start_us, begun.get(place, entry.start_us))
    ends: dict[str, int] = {}
    for (stream, _), start_us in begun.items():
        ends[stream] = max(start_us, ends.get(stream, start_us))
    return ends


def end_of(entries: Iterable[LedgerEntry], stream: str) -> int | None:
    """Return the instant from which a stream counts nothing, because its successor does; None: no end."""
    return ends_of(entries).get(stream)


def period_of(epochs: Sequence[LedgerEntry], ends: Mapping[str, int]) -> tuple[int, int | None]:
    """Return the start and the end of the period that a stream with these epochs counts; None: no end.

    Args: ends, of streams with a successor. An epoch that began later counts as one without end.
    """
    until = [entry.until_us for entry in epochs if entry.until_us is not None]
    end_us = max(until) if len(until) == len(epochs) else None
    succeeded_us = ends.get(epochs[0].stream)
    if end_us is None and succeeded_us is not None and all(one.start_us < succeeded_us for one in epochs):
        end_us = succeeded_us
    return min(entry.start_us for entry in epochs), end_us


def _overlap(one: tuple[int, int | None], other: tuple[int, int | None]) -> bool:
    return (one[1] is None or other[0] < one[1]) and (other[1] is None or one[0] < other[1])


def first_known(texts: Iterable[str | None]) -> str | None:
    """Return the first text that is not None; older entries of the same strategy may lack it."""
    return next((text for text in texts if text is not None), None)
