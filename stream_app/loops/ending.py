"""The end of a stream: an instant from its configuration or its successor, which the clock alone reaches.

The store remembers the end and seals no later bin, whatever a worker's configuration says. A stream's
successor begins at this instant. So an event falls into the bins of one of them, by its own time.

The next segment takes over the events that came too late for the last bin of the segment before. It reads its
log only once readers see that segment's last row. So the witness has this row, and no loss of the store lets
the segment before count such an event again. In an output topic, all rows of a segment come before those of
the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from stream_app.core.costs import end_of
from stream_app.core.instants import format_instant
from stream_app.core.records import LateEvents, Reply, StreamState
from stream_app.core.segments.endings import ENDED
from stream_app.core.segments.history import read_strategy
from stream_app.core.segments.names import base_of, key_of, number_of
from stream_app.core.segments.strategies import current
from stream_app.core.strategy import Strategy
from stream_app.loops.stream import Stream
from stream_app.ports import Clock, OperatorError, Store
from stream_app.ports.errors import OvertakenError

log = logging.getLogger(__name__)


async def changed_by_end(store: Store, stream: Stream, state: StreamState | None, *, behind: bool) -> bool:
    """Store the end that the configuration or the ledger knows; once it is reached, end epoch and stream.

    Args: behind, whether the witness has rows that the store lacks.
    Returns: whether the state has changed, so that the caller loads it again. Raises: OperatorError.
    """
    if state is None:
        return False
    name, until_us = stream.strategy.stream, stream.until_us
    is_reopened = state.epoch.epoch > 0 and state.released_bin < state.epoch.first_bin
    if until_us is None and state.until_bin is None and is_reopened:
        # A lost store knew no stream before this epoch opened, so no end could be stored in it.
        until_us = end_of(await store.ledger(stream.strategy.source), name)
    if until_us is not None and base_of(stream.followed_by or "") == base_of(name):
        await _check_same_end(store, stream.strategy, state, until_us)
    if until_us is not None and await _announce(store, name, state, until_us, key_of(name, "time.until")):
        return True
    if behind or not state.has_ended:
        return False
    if not state.epoch.is_over:
        await store.end_epoch(name, state.epoch.epoch, state.seq, ENDED)
        return True
    if not state.stopped:  # what was counted for later bins is deleted
        await store.stop(name, state.epoch.epoch, state.seq)
        return True
    return False


async def _check_same_end(store: Store, strategy: Strategy, state: StreamState, until_us: int) -> None:
    """Check that no other worker has ended a segment at another instant, where a start would go on.

    Raises: OvertakenError. If the next segment is in the ledger with the other instant, no start can go on.
    """
    if state.until_bin is None:
        return
    name, stored_us = strategy.stream, strategy.declared.time.binning.start_us(state.until_bin)
    if stored_us != until_us and end_of(await store.ledger(strategy.source), name) in (None, stored_us):
        raise OvertakenError(
            f"stream {base_of(name)}: another worker has stored that its generation {number_of(name)} ends "
            f"at {format_instant(stored_us)}; start this worker again"
        )


async def announce_ends(
    store: Store, stream: Stream, opening: Strategy, state: StreamState | None, *, is_first: bool
) -> bool:
    """Before an epoch opens, store the end of the stream before, and the end that only the ledger knows.

    A store that was set back may have lost it, or another worker's configuration may name the successor. So
    nothing that a successor counts is counted here, and no successor is in the ledger before the other stream
    has its end.
    Args: opening, the strategy of the epoch; state, None for a stream that the store does not know; is_first,
        whether the stream begins.
    Returns: whether this stream's state has changed. Raises: OperatorError, one line.
    """
    await _announce_end_of_predecessor(store, opening, is_first=is_first)
    if state is None or state.until_bin is not None:
        return False
    until_us = end_of(await store.ledger(opening.source), opening.stream)
    key = key_of(opening.stream, "time.until")
    return until_us is not None and await _announce(store, opening.stream, state, until_us, key)


async def last_bin_to_begin(store: Store, stream: Stream, strategy: Strategy) -> int | None:
    """Return the latest bin in which an epoch may begin: that of the stream's end; None: no end is known.

    The configuration knows the end, or the ledger has the successor.
    """
    until_us = stream.until_us
    if until_us is None:
        until_us = end_of(await store.ledger(strategy.source), strategy.stream)
    return None if until_us is None else int(strategy.declared.time.binning.bin_of([until_us])[0])


async def _announce_end_of_predecessor(store: Store, strategy: Strategy, *, is_first: bool) -> None:
    if (edge := strategy.edge) is None:
        return
    state = await store.load(edge.before)
    if state is None and not is_first:
        return  # the store was lost, and the stream before has left the configuration; the ledger has its end
    check_predecessor(strategy, state)
    if state is None:
        return
    await _announce(store, edge.before, state, edge.at_us, key_of(strategy.stream, "time.first"))
    if edge.within:
        [until_bin] = current(state.strategy).declared.time.binning.bin_of([edge.at_us]).tolist()
        await store.end_at(edge.before, until_bin, edge.within)


def check_predecessor(strategy: Strategy, state: StreamState | None) -> None:
    """Check that a successor's stream before can end where it begins. Args: state, of the stream before.

    Raises: OperatorError, one line.
    """
    if (edge := strategy.edge) is None:
        return
    key = key_of(strategy.stream, "successor_of")
    if state is None:
        raise OperatorError(
            f"{key}: this store has no stream {edge.before}; correct the name, or take successor_of out"
        )
    why = strategy.declared.cannot_succeed(edge.before, current(state.strategy).declared)
    if why is not None:
        raise OperatorError(f"{key}: {why}")
    end_to_store(edge.before, state, edge.at_us, key_of(strategy.stream, "time.first"))


async def _announce(store: Store, name: str, state: StreamState, until_us: int, key: str) -> bool:
    """Store the end of a stream; return whether it is new. Raises: as ``end_to_store``."""
    until_bin = end_to_store(name, state, until_us, key)
    if until_bin is None:
        return False
    if await store.end_at(name, until_bin) in (Reply.DONE, Reply.ALREADY):
        said = format_instant(until_us)
        log.warning("stream %s: it ends for good at %s, which cannot be taken back", name, said)
        return True
    state = await store.load(name) or state
    if end_to_store(name, state, until_us, key) is None:
        return True
    raise _counted_beyond(name, state, until_us, key)


def end_to_store(name: str, state: StreamState, until_us: int, key: str) -> int | None:
    """Return the first bin that a stream is not to count, or None if its state has this end already.

    Args: key, that names the end, for messages. Raises: OperatorError, with an instant at which it could end.
    """
    _, history = read_strategy(state.strategy)
    binning = current(state.strategy).declared.time.binning
    [until_bin] = binning.bin_of([until_us]).tolist()
    if binning.start_us(until_bin) != until_us:
        near = f"{format_instant(binning.start_us(until_bin))} or {format_instant(binning.end_us(until_bin))}"
        raise OperatorError(f"{key}: {format_instant(until_us)} is inside a bin of {name}; write {near}")
    if state.until_bin == until_bin or (history is not None and state.released_bin < until_bin):
        return None
    if state.until_bin is not None:
        end = format_instant(binning.start_us(state.until_bin))
        raise OperatorError(f"{key}: {name} ends at {end}, which cannot be changed; write {end}")
    if history is not None or state.released_bin >= until_bin:
        raise _counted_beyond(name, state, until_us, key)
    return int(until_bin)


def _counted_beyond(name: str, state: StreamState, until_us: int, key: str) -> OperatorError:
    _, history = read_strategy(state.strategy)
    binning = current(state.strategy).declared.time.binning
    end = format_instant(binning.start_us(state.epoch.first_bin + state.epoch.bins))
    later = "" if history else f", for example {end}, where its running epoch ends"
    return OperatorError(
        f"{key}: {name} has already counted bins from {format_instant(until_us)} on; write a later "
        f"instant{later}"
    )


@dataclass(frozen=True, slots=True)
class LateOfBefore:
    """Late events that a segment counts. Args: positions, from which on, by partition; None: none."""

    positions: Mapping[str, int] | None = None
    since_bin: int = 0

    def of(self, partition: str) -> LateEvents | None:
        """Return which late events of a partition the segment counts; None: none."""
        # The segment before never read a new partition, so all late events there count here.
        if self.positions is None:
            return None
        return LateEvents(self.positions.get(partition, 0), self.since_bin)

    def start(self, partition: str, position: int) -> int:
        """Return where to begin to read a partition. Args: position, of the first event of the segment."""
        return min(position, (self.positions or {}).get(partition, position))


async def late_of_before(store: Store, clock: Clock, strategy: Strategy) -> LateOfBefore | None:
    """Return which late events a stream counts; None: it does not read yet, because its predecessor goes on.

    The clock and public instants decide when it begins to read, and the cuts of the segment before decide
    which events it counts; no event decides about another one. Raises: OSError.
    """
    if (edge := strategy.edge) is None or not edge.within:
        return LateOfBefore()
    if await clock.now_us() < edge.at_us:
        return None
    state = await store.load(edge.before)
    if state is None or read_strategy(state.strategy)[1] is not None:
        return LateOfBefore()
    if state.is_spent:
        return LateOfBefore()  # its total allows no epoch up to its end
    if not state.is_over or await store.visible_seq(edge.before) < state.seq:
        return None
    if state.late_from is None or not state.late_from.keys() >= state.partitions.keys():
        return LateOfBefore()  # the store lost its last bins, and only the witness has them
    [since_bin] = strategy.declared.time.binning.bin_of([_counts_from_us(state)]).tolist()
    return LateOfBefore(state.late_from, since_bin)


def _counts_from_us(state: StreamState) -> int:
    """Return the earliest date of an event that an ended segment, or one before it, could count."""
    declared = current(state.strategy).declared
    rules = declared.rules(state.epoch)
    first_bin = rules.first_bin
    if rules.begins_bin is not None and first_bin <= rules.begins_bin:
        late = (one.late_before for one in state.partitions.values())
        first_bin = min((one.since_bin for one in late if one is not None), default=first_bin)
    return declared.time.binning.start_us(first_bin)
