"""The total cost of all measurements of one source, as an exact fraction and in plain words.

Measurements that can count the same event add up. For the unit event, epochs of one stream do not add up,
because an event falls into one bin: a source costs the sum over its streams of each stream's largest epsilon.
A user has events in every epoch, so for the unit user epochs add up as well. If the unit is a user's day,
epochs add up only if they touch the same day, and a user's whole epoch costs as many times as it has days.
Users that different fields name may be different people, so promises to them do not add up to one promise:
then the unit is the event.

A stream whose settings change goes on under another strategy. The first epoch under the new one
names the old one. So all its epochs count as those of one stream: an event falls into one epoch.
A stream and its successor count as one stream, too, if both promise the same unit: the successor counts from
the instant on at which the stream before it ends.

An entry is made when an epoch opens. A live stream opens one epoch after the other without end, so it counts
events from the start of its first epoch without end. A replay counts until its last bin.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from itertools import chain
from typing import Any

from stream_app.core.costs import cost_of, cost_of_whole_user, total_of, unit_of
from stream_app.core.declaration import Declaration
from stream_app.core.instants import format_instant
from stream_app.core.promise import CHANGES, Measurement, Statement, in_words, promise_in_words
from stream_app.core.records import EpochRecord, LedgerEntry
from stream_app.core.strategy import canonical_json

# A larger epsilon protects nobody: an answer at 20 shifts the odds of an event by up to 500 million.
LARGEST_PRIVATE_EPSILON = 20
# The words with which an operator accepts a second measurement of the same events.
ACCEPTED = "measured again"


def own_unit(declared: Declaration) -> str:
    """Return the unit of a stream's own promise, as ``costs.unit_of`` its entries."""
    if declared.privacy.per_user is None:
        return "event"
    return "user" if declared.period is None else f"user per {declared.period}"


def entry_of(declared: Declaration, stream: str, record: EpochRecord) -> LedgerEntry:
    """Return the ledger entry of a stream's epoch."""
    binning, privacy = declared.time.binning, declared.privacy
    return LedgerEntry(
        source=declared.source.name,
        stream=stream,
        epoch=record.epoch,
        start_us=binning.start_us(record.first_bin),
        end_us=binning.start_us(record.first_bin + record.bins),
        epsilon=str(privacy.epsilon),
        unit="event" if privacy.per_user is None else "user",
        strategy_hash=record.strategy_hash,
        private=privacy.private,
        neighbours=privacy.neighbours,
        until_us=declared.until_us,
        user=None if privacy.per_user is None else privacy.per_user.field,
        time=declared.time.reading,
        delta=None if privacy.delta is None else str(privacy.delta),
        changed_from=record.changed_from,
        successor_of=declared.successor_of,
        **_periods(declared, record),
    )


def _periods(declared: Declaration, record: EpochRecord) -> dict[str, Any]:
    """Return the facts of an entry about the periods of its unit; none if the unit has no period."""
    bins = declared.period_bins
    if not bins:
        return {}
    first = record.first_bin // bins
    last = (record.first_bin + record.bins - 1) // bins
    return {
        "per": declared.period,
        "period_us": declared.time.binning.start_us(first * bins),
        "periods": last - first + 1,
    }


def statement(source: str, entries: Sequence[LedgerEntry]) -> Statement:
    """Return the privacy promise that a source's ledger entries add up to.

    Guarantee: all outputs of all streams over the source together are (``epsilon``, ``delta``)-DP, and
        (``composed``, ``composed_delta``)-DP, for the stated unit and neighbours. Streams compose in
        sequence; so do strategies of a stream that no entry links. Epochs of one stream compose in parallel
        for events and in sequence for users.
        Neighbours differ by substitution if they do for any stream.
    Raises: ValueError for an entry of another source or of a unit that these rules do not cover.

    >>> entry = LedgerEntry("file:a", "s", 0, 0, 10, "1/2", "event", "h")
    >>> again = LedgerEntry("file:a", "s", 1, 10, 20, "1/2", "event", "h")
    >>> other = LedgerEntry("file:a", "t", 0, 0, 20, "1/3", "event", "i")
    >>> statement("file:a", [entry, again, other]).epsilon
    Fraction(5, 6)
    """
    stated = _stated(source, entries)
    parts = [stated, *(_stated(source, part) for part in of_one_unit(entries))]
    small = all(part.total_epsilon <= LARGEST_PRIVATE_EPSILON for part in parts)
    return replace(stated, private=small and all(m.private for m in stated.measurements))


def of_one_unit(entries: Sequence[LedgerEntry]) -> list[list[LedgerEntry]]:
    """Return the entries of each unit apart, if they have several units: their epochs may add up differently.

    Beside a stream that protects events, the promise about all streams is for one event, in which a user's
    epochs do not add up. For the user they do.
    """
    parts: dict[tuple[str, str, str], list[LedgerEntry]] = defaultdict(list)
    for entry in entries:
        parts[unit_of(entry), entry.user or "", entry.time or ""].append(entry)
    return [parts[unit] for unit in sorted(parts)] if len(parts) > 1 else []


def _stated(source: str, entries: Sequence[LedgerEntry]) -> Statement:
    """Return the promise of entries, ``private`` if their epsilons are not weighed."""
    for entry in entries:
        if entry.source != source or (entry.unit, entry.neighbours) not in CHANGES:
            raise ValueError(f"ledger of {source}: {entry} cannot be composed here")
    streams = measurements_of(entries)
    unit = _common_unit(streams)
    neighbours = "substitute" if any(e.neighbours == "substitute" for e in entries) else "add_remove"
    ends = _ends(entries)
    measurements = tuple(_measurement(epochs, ends) for epochs in streams)
    cost = total_of(cost_of(epochs, unit, neighbours) for epochs in _in_succession(streams))
    stated = Statement(
        source=source, unit=unit, neighbours=neighbours, cost=cost, private=True, measurements=measurements
    )
    if " per " in unit:
        whole = total_of(cost_of_whole_user(epochs, neighbours) for epochs in streams)
        stated = replace(stated, whole_user=whole)
    return stated


def next_entry(entries: Sequence[LedgerEntry], stream: str) -> LedgerEntry | None:
    """Return the entry of the epoch after a stream's last one; None if it never began, or ends with that one.

    The epoch is as long as the last one, which may differ from its real length by an hour of daylight saving.
    """
    own = [entry for entry in entries if entry.stream == stream]
    if not own:
        return None
    last = max(own, key=lambda entry: entry.epoch)
    ends = (last.until_us, _ends(entries).get(stream))
    if any(end_us is not None and last.end_us >= end_us for end_us in ends):
        return None
    end_us = 2 * last.end_us - last.start_us
    period_us = None if last.per is None else last.end_us  # epochs end where a period ends
    following = replace(last, epoch=last.epoch + 1, start_us=last.end_us, end_us=end_us, lost=False)
    return replace(following, period_us=period_us, changed_from=None)


def _common_unit(streams: Sequence[Sequence[LedgerEntry]]) -> str:
    """Return the unit of a promise about all of these streams: ``unit_of`` an entry if all have one unit.

    Streams that find a user's day by different fields of time would have different days.
    """
    if not _count_same_users(streams):
        return "event"
    units = {unit_of(entry) for epochs in streams for entry in epochs}
    times = {_known(entry.time for entry in epochs) for epochs in streams}
    if units == {"user"}:
        return "user"
    return units.pop() if len(units) == len(times) == 1 else "event"


def _count_same_users(streams: Sequence[Sequence[LedgerEntry]]) -> bool:
    """Return whether all streams protect users named by one field; an unknown field counts as different."""
    if any(entry.unit != "user" for epochs in streams for entry in epochs):
        return False
    fields = [_known(entry.user for entry in epochs) for epochs in streams]
    return len(fields) == 1 or (len(set(fields)) == 1 and fields[0] is not None)


def _known(texts: Iterable[str | None]) -> str | None:
    """Return the first text that is not None; older entries of the same strategy may lack it."""
    return next((text for text in texts if text is not None), None)


def composed(source: str, ledgers: Iterable[Sequence[LedgerEntry]]) -> tuple[LedgerEntry, ...]:
    """Return the entries of a source's several ledgers, each measurement once, under the source's name."""
    found: dict[tuple[str, int, str, int], LedgerEntry] = {}
    for entry in chain.from_iterable(ledgers):
        if (place := place_of(entry)) not in found:
            found[place] = entry if entry.source == source else replace(entry, source=source)
    return tuple(found.values())


def place_of(entry: LedgerEntry) -> tuple[str, int, str, int]:
    """Return what two entries of the same measurement have in common, under all names of their source."""
    return entry.stream, entry.epoch, entry.strategy_hash, entry.start_us


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
    ends = _ends([*entries, new])

    def overlap(epochs: Sequence[LedgerEntry]) -> bool:
        alike = _protected(max(epochs, key=lambda entry: entry.start_us)) == _protected(new)
        return _overlap(_period(epochs, ends if alike else {}), _period([new], ends))

    return tuple(
        min(epochs, key=lambda entry: entry.start_us)
        for epochs in measurements_of([*entries, new])
        if new not in epochs
        if new.time is None or _known(entry.time for entry in epochs) != new.time or overlap(epochs)
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


def _in_succession(streams: Sequence[list[LedgerEntry]]) -> list[list[LedgerEntry]]:
    """Return the epochs of all measurements, those of a stream and its successor together.

    Both count no event twice, so they cost what one stream costs whose settings change. This needs the same
    unit of both, and that the stream began no epoch after its end. Otherwise their costs add up.
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


def _ends(entries: Iterable[LedgerEntry]) -> dict[str, int]:
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
    return _ends(entries).get(stream)


def _period(epochs: Sequence[LedgerEntry], ends: Mapping[str, int]) -> tuple[int, int | None]:
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


def check_measurement(entries: Sequence[LedgerEntry], new: LedgerEntry, accept: str | None) -> None:
    """Raise if a period would be measured again and the operator has not accepted it.

    Raises: ValueError, one line, with the total cost if accepted.
    """
    if accept == ACCEPTED and certainly_small([*entries, new]):
        return
    before = measured_before(entries, new)
    if not before:
        return
    told = statement(new.source, [*entries, new])
    together = promise_in_words(told.epsilon, told.delta)
    key = f"streams.{new.stream}.privacy"
    measured = (
        f"{new.source} is already measured by {before[0].stream} from "
        f"{format_instant(before[0].start_us)}; all together cost {together}"
    )
    if accept != ACCEPTED:
        written = "is missing" if accept is None else f'"{accept}" is not known'
        raise ValueError(f'{key}.accept {written}: {measured}; write accept: "{ACCEPTED}" to accept that')
    if all(one.private for one in told.measurements) and told.total_epsilon > LARGEST_PRIVATE_EPSILON:
        raise ValueError(
            f"{key}.epsilon {in_words(Fraction(new.epsilon))}: {measured}, which protects nobody "
            f"(at most {LARGEST_PRIVATE_EPSILON}); lower it"
        )


def certainly_small(entries: Sequence[LedgerEntry]) -> bool:
    """Return True only if the entries together cost at most ``LARGEST_PRIVATE_EPSILON``; False: perhaps not.

    A worker with many streams asks at its start for each of them; ``statement`` would take milliseconds each
    time. As there, the epochs of a stream count once if all promises are for an event, with equal neighbours.
    Otherwise every epoch counts, at four times its epsilon: the largest factor there.
    """
    promises = {(entry.source, entry.unit, entry.neighbours, entry.delta) for entry in entries}
    if len({source for source, *_ in promises}) > 1:
        return False
    if any(delta is not None or (unit, neighbours) not in CHANGES for _, unit, neighbours, delta in promises):
        return False
    parts = [(entry.stream, entry.strategy_hash, entry.epsilon) for entry in entries]
    adds_once = len(promises) == 1 and entries[0].unit == "event"
    times = Counter(epsilon for *_, epsilon in (set(parts) if adds_once else parts))
    total = sum(Fraction(epsilon) * number for epsilon, number in times.items())
    return (1 if adds_once else 4) * total <= LARGEST_PRIVATE_EPSILON


def lost_measurement(entries: Sequence[LedgerEntry], stream: str, last_epoch: int) -> LedgerEntry | None:
    """Return the last epoch of a stream that both the store and the witness have lost, or None.

    A lost epoch before an epoch that is not lost had released nothing: the worker that opened the later epoch
    skipped the lost epoch's number.
    Args: last_epoch, the stream's last one in the witness or the store; -1 if both have none.
    """
    epochs = [entry for entry in entries if entry.stream == stream]
    known = max([last_epoch, *(entry.epoch for entry in epochs if not entry.lost)])
    beyond = [entry for entry in epochs if entry.lost and entry.epoch > known]
    return max(beyond, key=lambda entry: entry.epoch, default=None)


def entry_to_json(entry: LedgerEntry) -> bytes:
    """Return the text of an entry; two entries are equal if their texts are."""
    # Entries written before these fields existed keep their text.
    newer = {"until_us": None, "lost": False, "periods": 0}
    newer |= dict.fromkeys(("user", "log", "time", "delta", "mu", "per", "period_us", "changed_from"))
    newer |= {"successor_of": None}
    return canonical_json({k: v for k, v in asdict(entry).items() if not (k in newer and v == newer[k])})


def entry_from_json(text: bytes | str) -> LedgerEntry:
    """Return the entry that ``entry_to_json`` wrote. Raises: ValueError, TypeError for other text."""
    return LedgerEntry(**json.loads(text))


def _measurement(epochs: Sequence[LedgerEntry], ends: Mapping[str, int]) -> Measurement:
    start_us, end_us = _period(epochs, ends)
    last = max(epochs, key=lambda entry: entry.epoch)
    changes = [entry for entry in epochs if entry.changed_from is not None]
    changed = max(changes, key=lambda entry: entry.epoch, default=None)
    return Measurement(
        stream=last.stream,
        strategy_hash=last.strategy_hash,
        changed_us=None if changed is None else changed.start_us,
        last_epsilon=Fraction(last.epsilon),
        last_delta=None if last.delta is None else Fraction(last.delta),
        unit=epochs[0].unit,
        user=_known(entry.user for entry in epochs),
        epsilon=max(Fraction(entry.epsilon) for entry in epochs),
        start_us=start_us,
        end_us=end_us,
        epochs=len(epochs),
        private=all(entry.private for entry in epochs),
        delta=max((Fraction(entry.delta) for entry in epochs if entry.delta is not None), default=None),
        per=epochs[0].per,
        periods=max(entry.periods for entry in epochs),
        successor_of=_known(entry.successor_of for entry in epochs),
    )
