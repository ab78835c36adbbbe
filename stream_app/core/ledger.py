"""The total cost of all measurements of one source, as an exact fraction and in plain words.

Measurements that can count the same event add up. For the unit event, epochs of one stream do not add up,
because an event falls into one bin: a source costs the sum over its streams of each stream's largest epsilon.
A user has events in every epoch, so for the unit user epochs add up as well. If the unit is a user's day,
epochs add up only if they touch the same day, and a user's whole epoch costs as many times as it has days.
Users that different fields name may be different people, so promises to them do not add up to one promise:
then the unit is the event.

``costs.py`` says which epochs count as those of one stream.

An entry is made when an epoch opens. A live stream opens one epoch after the other without end, so it counts
events from the start of its first epoch without end. A replay counts until its last bin.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from itertools import chain
from sys import intern
from typing import Any

from stream_app.core.costs import (
    cost_of,
    cost_of_whole_user,
    ends_of,
    exact,
    first_known,
    in_succession,
    measured_before,
    measurements_of,
    period_of,
    total_of,
    unit_of,
)
from stream_app.core.declaration import Declaration
from stream_app.core.instants import format_instant
from stream_app.core.promise import CHANGES, Measurement, Statement, in_words, promise_in_words
from stream_app.core.records import EpochRecord, LedgerEntry
from stream_app.core.segments.names import key_of
from stream_app.core.strategy import canonical_json
from stream_app.core.visits import DAY_US, VISITOR

# A larger epsilon protects nobody: an answer at 20 shifts the odds of an event by up to 500 million.
LARGEST_PRIVATE_EPSILON = 20
# The words with which an operator accepts a second measurement of the same events.
ACCEPTED = "measured again"


def own_unit(declared: Declaration) -> str:
    """Return the unit of a stream's own promise, as ``costs.unit_of`` gives it for the stream's entries."""
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
        delta=None if declared.delta is None else str(declared.delta),
        changed_from=record.changed_from,
        successor_of=declared.successor_of,
        signed=declared.source.origins > 0,
        **_periods(declared, record),
    )


def by_visitors_days(declared: Declaration, entries: Sequence[LedgerEntry]) -> Sequence[LedgerEntry]:
    """Return a ledger in which the epochs of an access log protect what they do: a visitor's day.

    They are stored with the unit user. A visitor's name is of one UTC day, and the day lies in one epoch
    (``check_visitors``). Entries of a group stay as they are: its other logs may name people for longer.
    """
    if not declared.are_visitors or declared.period_bins:
        return entries
    return [_of_days(entry) if _is_of_visitors(entry) else entry for entry in entries]


def _is_of_visitors(entry: LedgerEntry) -> bool:
    return (entry.unit, entry.user, entry.per, entry.log) == ("user", VISITOR, None, None)


def _of_days(entry: LedgerEntry) -> LedgerEntry:
    first, end = entry.start_us // DAY_US, -(-entry.end_us // DAY_US)
    return replace(entry, per="1d", period_us=first * DAY_US, periods=end - first)


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
    ends = ends_of(entries)
    measurements = tuple(_measurement(epochs, ends) for epochs in streams)
    cost = total_of(cost_of(epochs, unit, neighbours) for epochs in in_succession(streams))
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
    ends = (last.until_us, ends_of(entries).get(stream))
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
    times = {first_known(entry.time for entry in epochs) for epochs in streams}
    if units == {"user"}:
        return "user"
    return units.pop() if len(units) == len(times) == 1 else "event"


def _count_same_users(streams: Sequence[Sequence[LedgerEntry]]) -> bool:
    """Return whether all streams protect users named by one field; an unknown field counts as different."""
    if any(entry.unit != "user" for epochs in streams for entry in epochs):
        return False
    fields = [first_known(entry.user for entry in epochs) for epochs in streams]
    return len(fields) == 1 or (len(set(fields)) == 1 and fields[0] is not None)


def composed(source: str, ledgers: Iterable[Sequence[LedgerEntry]]) -> tuple[LedgerEntry, ...]:
    """Return the entries of a source's several ledgers, each measurement once, under the source's name."""
    found: dict[tuple[str, int, str, int], LedgerEntry] = {}
    for entry in chain.from_iterable(ledgers):
        if (place := place_of(entry)) not in found:
            found[place] = entry if entry.source == source else replace(entry, source=source)
    return tuple(found.values())


def place_of(entry: LedgerEntry) -> tuple[str, int, str, int]:
    """Return a key that two entries of the same measurement share, under all names of their source."""
    return entry.stream, entry.epoch, entry.strategy_hash, entry.start_us


def check_measurement(
    entries: Sequence[LedgerEntry],
    new: LedgerEntry,
    accept: str | None,
    assumed: Collection[LedgerEntry] = (),
) -> None:
    """Raise if a period would be measured again and the operator has not accepted it.

    Args: assumed, entries whose start is a guess: the message does not name it.
    Raises: ValueError, one line, with the total cost if accepted.
    """
    if accept == ACCEPTED and certainly_small([*entries, new]):
        return
    before = measured_before(entries, new)
    if not before:
        return
    stated = statement(new.source, [*entries, new])
    together = promise_in_words(stated.epsilon, stated.delta)
    key = key_of(new.stream, "privacy")
    first = before[0]
    since = "" if first in assumed else f" from {format_instant(first.start_us)}"
    measured = f"{new.source} is already measured by {first.stream}{since}; all together cost {together}"
    if accept != ACCEPTED:
        written = "is missing" if accept is None else f'"{accept}" is not known'
        raise ValueError(f'{key}.accept {written}: {measured}; write accept: "{ACCEPTED}" to accept that')
    if all(one.private for one in stated.measurements) and stated.total_epsilon > LARGEST_PRIVATE_EPSILON:
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
    newer = {"until_us": None, "lost": False, "periods": 0, "signed": False}
    newer |= dict.fromkeys(("user", "log", "time", "delta", "mu", "per", "period_us", "changed_from"))
    newer |= {"successor_of": None}
    return canonical_json({k: v for k, v in asdict(entry).items() if not (k in newer and v == newer[k])})


def entry_from_json(text: bytes | str) -> LedgerEntry:
    """Return the entry that ``entry_to_json`` wrote. Raises: ValueError, TypeError for other text."""
    # Most texts are those of many entries; without ``intern`` each entry would hold its own.
    facts: dict[str, Any] = json.loads(text)
    facts |= {name: intern(fact) for name, fact in facts.items() if isinstance(fact, str)}
    return LedgerEntry(**facts)


def _measurement(epochs: Sequence[LedgerEntry], ends: Mapping[str, int]) -> Measurement:
    start_us, end_us = period_of(epochs, ends)
    last = max(epochs, key=lambda entry: entry.epoch)
    changes = [entry for entry in epochs if entry.changed_from is not None]
    changed = max(changes, key=lambda entry: entry.epoch, default=None)
    return Measurement(
        stream=last.stream,
        strategy_hash=last.strategy_hash,
        changed_us=None if changed is None else changed.start_us,
        last_epsilon=exact(last.epsilon),
        last_delta=None if last.delta is None else exact(last.delta),
        unit=epochs[0].unit,
        user=first_known(entry.user for entry in epochs),
        epsilon=max(map(exact, {entry.epsilon for entry in epochs})),
        start_us=start_us,
        end_us=end_us,
        epochs=len(epochs),
        private=all(entry.private for entry in epochs),
        delta=max(
            (exact(delta) for delta in {entry.delta for entry in epochs} if delta is not None), default=None
        ),
        per=epochs[0].per,
        periods=max(entry.periods for entry in epochs),
        successor_of=first_known(entry.successor_of for entry in epochs),
        signed=any(entry.signed for entry in epochs),
    )
