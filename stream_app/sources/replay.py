"""Replays a finished file in the order of event time: each record arrives at its event time.

So no record is late, and disorder in the file cannot move a count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from stream_app.core.incoming import RecordBatch
from stream_app.ports import OperatorError
from stream_app.sources.decode import TimeField
from stream_app.sources.lines import PARTITION, FileFormat, OneFile
from stream_app.sources.sort import in_order_of_time

POLL_S = 0.005


class ReplaySource(OneFile):
    """Replay a file, or a sorted copy of it, on a virtual clock.

    Args:
        path, format, time: the file, and where its records have their time.
        directory: of this file only, with space for the index and a sorted copy.
        reached_us: returns the instant that the replay has reached.
        others: paths of other fields to decode.
    Raises: OperatorError if the file cannot be read, is not the file replayed so far, or changes meanwhile.
    Cost: see ``in_order_of_time``.
    """

    def __init__(
        self,
        path: Path,
        format: FileFormat,
        time: TimeField,
        directory: Path,
        reached_us: Callable[[], int],
        others: Sequence[str] = (),
    ) -> None:
        self._lines, self._times_us, self._positions = in_order_of_time(path, format, time, directory, others)
        self._path, self._reached_us = path, reached_us
        self._opened = self._lines.stat()
        self._end = self._opened.st_size

    async def positions_at(
        self, partitions: Sequence[str], instants_us: Sequence[int]
    ) -> Mapping[str, Sequence[int]]:
        positions = [self._first_from(instant_us) for instant_us in instants_us]
        return dict.fromkeys(partitions, positions)

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        loop = asyncio.get_running_loop()
        deadline_s, began_us = loop.time() + timeout_s, self._reached_us()
        while True:
            if PARTITION in positions:
                self._check_unchanged()
                limit = self._first_from(self._reached_us())
                batch = await self._lines.read_in_turns(positions[PARTITION], limit)
                if batch is not None:
                    return (batch,)
            # When the replay's time moves on, a cut may be due, and the next stride waits for it.
            if loop.time() >= deadline_s or self._reached_us() > began_us:
                return ()
            await asyncio.sleep(POLL_S)

    def ends(self) -> Mapping[str, int]:
        """Return the position that the replay has reached by its clock, for the operator's lag metric."""
        return {PARTITION: self._first_from(self._reached_us())}

    async def close(self) -> None:
        self._lines.close()  # deletes the index and the sorted copy, which have no names
        self._times_us = self._positions = np.empty(0, np.int64)

    def _check_unchanged(self) -> None:
        """Check that nobody has written into the file; a sorted copy has no name, so nobody can.

        Raises: OperatorError. The next opening compares the whole content.
        """
        now = self._lines.stat()
        if (now.st_size, now.st_mtime_ns) != (self._opened.st_size, self._opened.st_mtime_ns):
            raise OperatorError(f"{self._path}: it changed while it was replayed; put its records back")

    def _first_from(self, instant_us: int) -> int:
        """Return the position of the first record that is not before an instant."""
        index = int(np.searchsorted(self._times_us, instant_us))
        return int(self._positions[index]) if index < len(self._positions) else self._end
