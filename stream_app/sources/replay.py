"""Replays a finished file in the order of event time: each record arrives at its event time.

So no record is late, and disorder in the file cannot move a count. A file that is not in order is first
copied in order. The copy and its index are secret, take space in the state directory and are deleted at the
end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from dphist.arrays import Int64Array
from stream_app.core.records import RecordBatch
from stream_app.sources.decode import PlainField, TimeField
from stream_app.sources.lines import PARTITION, FileFormat, LineFile, OneFile
from stream_app.sources.sort import in_order_of_time

POLL_S = 0.005


class ReplaySource(OneFile):
    """Replay a file on a virtual clock (``ports.Source``). Make one with ``open``.

    Args:
        lines: the records in order of time.
        times_us, positions: the time and position of each record, shape (n,), both rising.
        reached_us: returns the instant that the replay has reached.
    """

    def __init__(
        self, lines: LineFile, times_us: Int64Array, positions: Int64Array, reached_us: Callable[[], int]
    ) -> None:
        self._lines = lines
        self._times_us = times_us
        self._positions = positions
        self._reached_us = reached_us
        self._end = lines.stat().st_size

    @classmethod
    def open(
        cls,
        path: Path,
        format: FileFormat,
        field: TimeField,
        directory: Path,
        reached_us: Callable[[], int],
        others: Sequence[PlainField] = (),
    ) -> ReplaySource:
        """Return the source over the file, or over a sorted copy if the file is not in order of event time.

        Args: directory, of this file only, with space for the index and a sorted copy; others, fields to
            decode beside the time.
        Raises: OperatorError if the file cannot be read, or is not the file replayed so far.
        Cost: see ``in_order_of_time``.
        """
        ordered = in_order_of_time(path, format, field, directory, others)
        return cls(ordered.lines, ordered.times_us, ordered.positions, reached_us)

    async def positions_at(
        self, partitions: Sequence[str], instants_us: Sequence[int]
    ) -> Mapping[str, Sequence[int]]:
        """Return the position of the first record that is not before each instant."""
        positions = [self._first_from(instant_us) for instant_us in instants_us]
        return dict.fromkeys(partitions, positions)

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        """Return the next records up to the replay's time; none after the timeout or when time moves on.

        When time moves on a cut may be due, and the next stride waits for it.
        """
        loop = asyncio.get_running_loop()
        deadline_s, began_us = loop.time() + timeout_s, self._reached_us()
        while True:
            if PARTITION in positions:
                limit = self._first_from(self._reached_us())
                batch = await self._lines.read_in_turns(positions[PARTITION], limit)
                if batch is not None:
                    return (batch,)
            if loop.time() >= deadline_s or self._reached_us() > began_us:
                return ()
            await asyncio.sleep(POLL_S)

    def ends(self) -> Mapping[str, int]:
        """Return the position up to the replay's time, for the operator's lag metric."""
        return {PARTITION: self._first_from(self._reached_us())}

    async def close(self) -> None:
        """Close the file, which deletes the index and the sorted copy."""
        self._lines.close()
        self._times_us = self._positions = np.empty(0, np.int64)

    def _first_from(self, instant_us: int) -> int:
        """Return the position of the first record that is not before an instant."""
        index = int(np.searchsorted(self._times_us, instant_us))
        return int(self._positions[index]) if index < len(self._positions) else self._end
