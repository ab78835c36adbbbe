"""The share of late records among those that this process counted lately. SECRET."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from prometheus_client import Gauge

from stream_app.core.counting.outcomes import LATE_CLASSES
from stream_app.core.incoming import Reason
from stream_app.core.records import Apply

OVER_S = 600
_SLOT_S = 5


class LateShare:
    """Adds up the records of the last ten minutes of each stream, in memory only.

    The store does not hold the number of all records: no exact number of counted events outlives its epoch.
    Args: gauge, which shows the shares by stream; now_s, a clock in seconds.
    """

    def __init__(self, gauge: Gauge, now_s: Callable[[], float] = time.monotonic) -> None:
        self._gauge, self._now_s = gauge, now_s
        self._slots: dict[str, deque[list[int]]] = {}  # [number of the slot, records, late records]

    def know(self, stream: str) -> None:
        """Show a stream from now on."""
        self._slots[stream] = deque()
        self._gauge.labels(stream).set_function(lambda: self._share(stream))

    def applied(self, stream: str, change: Apply) -> None:
        """Add the records of a change that the store has just accepted."""
        late = sum(change.operator_counts.get(name, 0) for name in LATE_CLASSES)
        records = change.records + change.operator_counts.get(Reason.LATE, 0)
        slots, number = self._slots.setdefault(stream, deque()), int(self._now_s() // _SLOT_S)
        if not slots or slots[-1][0] != number:
            slots.append([number, 0, 0])
            while slots[0][0] < self._oldest():
                slots.popleft()
        slots[-1][1] += records
        slots[-1][2] += late

    def _share(self, stream: str) -> float:
        oldest = self._oldest()
        slots = [slot for slot in list(self._slots[stream]) if slot[0] >= oldest]  # read in another thread
        records = sum(slot[1] for slot in slots)
        return sum(slot[2] for slot in slots) / records if records else 0.0

    def _oldest(self) -> int:
        return int((self._now_s() - OVER_S) // _SLOT_S) + 1
