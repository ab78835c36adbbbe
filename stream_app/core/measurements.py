"""The epochs of each measurement of a source: which ones belong together, and when they count.

A stream whose settings change goes on under another strategy. The first epoch under the new one
names the old one. So all its epochs count as those of one stream: an event falls into one epoch.
A stream and its successor count as one stream, too, if both promise the same unit: the successor counts from
the instant on at which the stream before it ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from stream_app.core.costs import unit_of
from stream_app.core.records import LedgerEntry


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
