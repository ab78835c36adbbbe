"""Refuse streams that would count the same events, before the first of them starts.

The ledger has the same rule, but it refuses the second stream only when the first one has already started.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from stream_app.config.document import ConfigError
from stream_app.config.plans import planned
from stream_app.config.settings import StreamSettings
from stream_app.config.source import by_log, log_of, same_logs
from stream_app.core.ledger import (
    ACCEPTED,
    certainly_small,
    check_measurement,
    composed,
    entry_of,
    next_entry,
    statement,
)
from stream_app.core.promise import promise_in_words
from stream_app.core.records import EpochRecord, LedgerEntry
from stream_app.core.segments.names import key_of


def first_measurement(stream: StreamSettings, now_us: int) -> LedgerEntry:
    """Return the ledger entry of a stream's first epoch if it starts now.

    Only an approximate stream's strategy is planned: its entry needs the plan's mu.
    """
    declared = stream.declared
    first_bin = declared.first_bin(now_us)
    bins = declared.epoch_bins(first_bin, None, declared.time.epoch_bins)
    record = EpochRecord(0, first_bin, bins, 1, "")
    entry = entry_of(declared, stream.name, record)
    mu = None if declared.privacy.delta is None else planned(stream).kind.mu
    return entry if mu is None else replace(entry, mu=str(mu))


def check_measurements(
    streams: Sequence[StreamSettings],
    now_us: int,
    ledgers: Mapping[str, Sequence[LedgerEntry]] | None = None,
    begun: Collection[str] = (),
) -> None:
    """Refuse a stream whose first epoch the ledger or its total would refuse, in the order of starts.

    Args: as for ``refusals``. Raises: ConfigError, one line.
    """
    for _, why in refusals(streams, now_us, ledgers, begun):
        raise ConfigError(why)


def over(streams: Sequence[StreamSettings], now_us: int) -> set[str]:
    """Return the streams whose end is past: if they began, the ledger alone knows when.

    A stream's end is its own, or the beginning of its successor.
    """
    firsts = {one.declared.successor_of: one.declared.time.first_us for one in streams}
    ends = {one.name: one.until_us or firsts.get(one.name) for one in streams}
    return {name for name, end_us in ends.items() if end_us is not None and end_us <= now_us}


def refusals(
    streams: Sequence[StreamSettings],
    now_us: int,
    ledgers: Mapping[str, Sequence[LedgerEntry]] | None = None,
    begun: Collection[str] = (),
) -> Iterator[tuple[str, str]]:
    """Yield each stream whose first epoch the ledger or its total would refuse, and why; others count then.

    Args:
        ledgers: earlier measurements, by source; None for none.
        begun: streams that have already started; their cost was accepted then.
    """
    known: dict[str, list[LedgerEntry]] = defaultdict(list)
    for source, entries in (ledgers or {}).items():
        known[source] += entries
    measured = {(source, entry.stream) for source, entries in known.items() for entry in entries}
    new = [
        stream
        for stream in chain.from_iterable(by_log(streams))
        if stream.name not in begun and (stream.declared.source.name, stream.name) not in measured
    ]
    firsts = {stream.name: first_measurement(stream, now_us) for stream in new}
    # Their start is a guess: a command that does not ask the store cannot know that a stream began long ago.
    assumed = {firsts[stream.name] for stream in new if stream.declared.time.first_us is None}
    together = {source: list(entries) for source, entries in known.items()}
    for entry in firsts.values():
        together.setdefault(entry.source, []).append(entry)
    # Asked once a source: with a thousand streams, a question for each of them takes seconds.
    small = {source for source, entries in together.items() if certainly_small(entries)}
    joined = _joined(streams)
    for stream in new:
        entry = firsts[stream.name]
        ledger: Sequence[LedgerEntry] = known[entry.source]
        if entry.source in joined:
            small.discard(entry.source)
            ledger = composed(entry.source, [ledger, *(known[name] for name in joined[entry.source])])
        try:
            if stream.accept != ACCEPTED or entry.source not in small:
                check_measurement(ledger, entry, stream.accept, assumed)
            _check_total(stream, ledger, entry)
        except ValueError as refusal:
            yield stream.name, f"{stream.privacy_where}: {refusal}"
        else:
            for name in {entry.source, log_of(stream.source)}:
                known[name].append(entry)


def _joined(streams: Sequence[StreamSettings]) -> dict[str, list[str]]:
    """Return the other logs that may mean events of a source, if there are any, by the source's name."""
    same, found = same_logs(streams), defaultdict[str, list[str]](list)
    for stream in streams:
        found[stream.declared.source.name] += same.get(log_of(stream.source), ())
    return {source: logs for source, logs in found.items() if logs}


def _check_total(stream: StreamSettings, ledger: Sequence[LedgerEntry], first: LedgerEntry) -> None:
    """Refuse a stream whose total does not allow its first epoch, or not all epochs of a replay.

    Raises: ValueError, one line.
    """
    declared, total = stream.declared, stream.total
    if total is None:
        return
    epochs = [first]
    while declared.last_bin is not None and (following := next_entry(epochs[-1:], stream.name)) is not None:
        epochs.append(following)
    if not total.allows(stream.name, [*ledger, *epochs]):
        cost = statement(first.source, [*ledger, *epochs])
        what = "its first epoch" if declared.last_bin is None else f"its {len(epochs):,} epoch(s)"
        if stream.number > 1:
            what = f"the first epoch of generation {stream.number}"
        raise ValueError(
            f"{key_of(stream.name, 'privacy.total')}: with {what} the source costs "
            f"{promise_in_words(cost.epsilon, cost.delta)}, more than {total.words}; raise the total, or "
            "lower epsilon"
        )
