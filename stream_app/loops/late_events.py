"""Events that a segment takes over from its predecessor: they came too late for its last bin.

A segment reads its log only once readers see the last row of the one before. So the witness has that row, and
no loss of the store lets the segment before count again the events that this one has taken over. In an output
topic, all rows of a segment come before those of the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stream_app.core.records import LateEvents, StreamState
from stream_app.core.segments.history import read_strategy
from stream_app.core.segments.names import base_of
from stream_app.core.segments.strategies import last_text
from stream_app.core.strategy import Strategy
from stream_app.loops.loaded_streams import LoadedStream
from stream_app.ports import Clock, Store


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


async def late_of_before(store: Store, clock: Clock, stream: LoadedStream) -> LateOfBefore | None:
    """Return which late events a stream counts; None: it does not read yet, because its predecessor goes on.

    The clock and public instants decide when it begins to read, and the cuts of the segment before decide
    which events it counts; no event decides about another one. Raises: OSError.
    """
    before, first_us = stream.declared.successor_of, stream.declared.time.first_us
    if before is None or first_us is None or base_of(before) != base_of(stream.name):
        return LateOfBefore()
    if await clock.now_us() < first_us:
        return None
    state = await store.load(before)
    if state is None or read_strategy(state.strategy)[1] is not None:
        return LateOfBefore()
    if state.stopped and not state.has_ended:
        return LateOfBefore()  # its total allows no epoch up to its end
    if not state.stopped or await store.visible_seq(before) < state.seq:
        return None
    if state.late_from is None or not state.late_from.keys() >= state.partitions.keys():
        return LateOfBefore()  # the store lost its last bins, and only the witness has them
    [since_bin] = stream.declared.time.binning.bin_of([_counts_from_us(state)]).tolist()
    return LateOfBefore(state.late_from, since_bin)


def _counts_from_us(state: StreamState) -> int:
    """Return the earliest date of an event that an ended segment, or one before it, could count."""
    declared = Strategy.from_json(last_text(state.strategy)).declared
    rules = declared.rules(state.epoch)
    first_bin = rules.first_bin
    if rules.begins_bin is not None and first_bin <= rules.begins_bin:
        late = (one.late_before for one in state.partitions.values())
        first_bin = min((one.since_bin for one in late if one is not None), default=first_bin)
    return declared.time.binning.start_us(first_bin)
