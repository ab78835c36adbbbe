"""Shares of late and of refused records among those of the last ten minutes. In memory only: SECRET.

No exact number of counted events outlives its epoch."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable

from prometheus_client import Gauge

from stream_app.core.counting.outcomes import LATE_CLASSES, SET_ASIDE
from stream_app.core.incoming import REMEDIES, Reason, refused_because
from stream_app.core.store_writes import Apply

log = logging.getLogger(__name__)
OVER_S = 600
LEAST_REFUSED = 10  # with fewer, a few damaged lines would give a warning
LEAST_LEFT_OUT = 1_000  # a condition may be true for few records
_SLOT_S = 5
_RECORDS, _LATE = "records", "late"
_COUNTED, _LEFT_OUT = "counted", "left_out"


class Lately:
    """What happened in the last ten minutes, by name. SECRET."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._slots: deque[tuple[int, Counter[str]]] = deque()

    def add(self, now_s: float, added: Counter[str]) -> None:
        """Add the numbers of this moment, and drop what is over."""
        slot = int(now_s // _SLOT_S)
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append((slot, Counter()))
        self._slots[-1][1].update(added)
        self.counts.update(added)
        while self._slots[0][0] <= slot - OVER_S // _SLOT_S:
            self.counts.subtract(self._slots.popleft()[1])

    def number(self, name: str, now_s: float) -> int:
        """Return one sum as of now; another thread may ask."""
        over = int((now_s - OVER_S) // _SLOT_S)
        return sum(counts[name] for slot, counts in list(self._slots) if slot > over)


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


class RefusedShare:
    """Counts accepted and refused records of each stream, and logs in words if most are refused.

    The same line is logged again only at growing intervals (``monitoring.logs``).
    Args: now_s, a clock in seconds.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lately: dict[str, Lately] = {}
        self._total: dict[str, Counter[str]] = {}
        self._first: dict[tuple[str, str], int] = {}  # by stream and partition: where this process began

    def applied(self, stream: str, change: Apply) -> None:
        """Add the records of a change that the store has just accepted, and warn if most are refused."""
        added = _happened(change)
        self._first.setdefault((stream, change.partition), change.expected)
        self._total.setdefault(stream, Counter()).update(added)
        lately = self._lately.setdefault(stream, Lately())
        lately.add(self._now_s(), added)
        if any(name != _COUNTED for name in added) and (line := _warning(lately.counts)):
            log.warning("%s: %s", stream, line)

    def nothing_counted(self, stream: str, *, anew: bool = False) -> str | None:
        """Return why a stream has counted nothing; None if it has counted a record.

        None also if its condition left every record out, as it should, or if this process did not read the
        whole log, and cannot know. Args: anew, whether this process began the stream and its log has ended.
        """
        total = self._total.get(stream, Counter())
        began = [first for (name, _), first in self._first.items() if name == stream]
        if total[_COUNTED] or any(began):
            return None
        reason, refused = _main_reason(total)
        if not refused:
            edges = "source.replay.from and source.replay.to"
            none = (
                f"{stream}: nothing was counted, no record lies in the range; correct {edges}, or time.field"
            )
            return none if anew and not total else None
        return f"{stream}: nothing was counted, every record was refused ({refused_because(reason)})"


def _happened(change: Apply) -> Counter[str]:
    """Return how many records of a change were counted, left out, and refused for each reason."""
    ahead = change.operator_counts.get(SET_ASIDE, 0)  # the next cut refuses those that are from the future
    refused = {name: n for name, n in change.operator_counts.items() if name in REMEDIES}
    refused[Reason.FUTURE] = refused.get(Reason.FUTURE, 0) + ahead
    happened = {_COUNTED: change.records - ahead, _LEFT_OUT: change.left_out} | refused
    return Counter({name: number for name, number in happened.items() if number})


def _main_reason(counts: Counter[str]) -> tuple[str, int]:
    """Return the most frequent reason, and how many records were refused for any reason."""
    refused = {name: number for name, number in counts.items() if name in REMEDIES and number}
    return max(refused, key=lambda name: refused[name], default=""), sum(refused.values())


def _warning(counts: Counter[str]) -> str | None:
    """Return a warning in words, without numbers; None if none is due."""
    reason, refused = _main_reason(counts)
    lately = f"the last {OVER_S // 60} minutes"
    if refused >= LEAST_REFUSED and refused > counts[_COUNTED]:
        return (
            f"most records of {lately} were refused, mostly as {refused_because(reason)}; "
            "stream-app doctor examines a sample"
        )
    if counts[_LEFT_OUT] >= LEAST_LEFT_OUT and not refused and not counts[_COUNTED]:
        remedy = "correct where, unless such events are rare"
        return f"no record of {lately} matched the stream's condition; {remedy}"
    return None
