"""The share of late records among those that this process counted lately. SECRET."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from prometheus_client import Gauge

from stream_app.core.counting.outcomes import LATE_CLASSES
from stream_app.core.incoming import Reason
from stream_app.core.records import Apply
from stream_app.monitoring.lately import Lately

_RECORDS, _LATE = "records", "late"


class LateShare:
    """Adds up the records of the last ten minutes of each stream.

    Args: gauge, which shows the shares by stream; now_s, a clock in seconds.
    """

    def __init__(self, gauge: Gauge, now_s: Callable[[], float] = time.monotonic) -> None:
        self._gauge, self._now_s = gauge, now_s
        self._lately: dict[str, Lately] = {}

    def know(self, stream: str) -> None:
        """Show a stream from now on."""
        self._lately[stream] = Lately()
        self._gauge.labels(stream).set_function(lambda: self._share(stream))

    def applied(self, stream: str, change: Apply) -> None:
        """Add the records of a change that the store has just accepted."""
        late = sum(change.operator_counts.get(name, 0) for name in LATE_CLASSES)
        records = change.records + change.operator_counts.get(Reason.LATE, 0)
        lately = self._lately.setdefault(stream, Lately())
        lately.add(self._now_s(), Counter({_RECORDS: records, _LATE: late}))

    def _share(self, stream: str) -> float:
        lately, now_s = self._lately[stream], self._now_s()
        records = lately.number(_RECORDS, now_s)
        return lately.number(_LATE, now_s) / records if records else 0.0
