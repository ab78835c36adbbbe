"""Log a repeated line, as in an outage, at once and then at growing intervals."""

from __future__ import annotations

import logging
from dataclasses import dataclass

PAUSES_S = (10.0, 30.0, 90.0, 270.0, 600.0)  # the last one repeats
NEWS_AFTER_S = 60.0  # after this long without a line, the next one is logged at once

_KINDS = 1_000  # remembered at most
_OWN = "stream_app"
# What a library warns of although nothing failed: another worker has joined or left.
_STEPS = ("Heartbeat failed for group %s because it is rebalancing",)


@dataclass(slots=True)
class _Repeated:
    last_s: float
    next_s: float
    told: int = 1
    unsaid: int = 0


class Repeats(logging.Filter):
    """Passes a line that is new or due again; its field ``repeated`` counts the suppressed lines.

    The service's own warnings and errors are compared by text, a library's by kind: in an outage a library
    may log a thousand lines of one kind per second. A library logs every attempt, also those that soon
    succeed, as at the first start over a new cluster. So its lines pass once their kind has come for
    ``PAUSES_S[0]``, or at once if steps are logged too; the service itself reports an outage and its
    consequences at once. A line with an error's place always passes.

    Args: libraries to which this applies, by the first part of their loggers' names.
    """

    def __init__(self, *libraries: str) -> None:
        super().__init__()
        self._libraries = libraries
        self._repeated: dict[tuple[str, str], _Repeated] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write the record."""
        kind = self._kind(record)
        if kind is None:
            return True
        verbose = logging.getLogger().isEnabledFor(logging.INFO)
        if kind[1] in _STEPS and not verbose:
            return False
        now_s, known = record.created, self._repeated.get(kind)
        if known is None or now_s - known.last_s > NEWS_AFTER_S:
            if len(self._repeated) >= _KINDS:
                self._repeated.clear()
            self._repeated[kind] = new = _Repeated(now_s, now_s + PAUSES_S[0])
            if kind[0].partition(".")[0] in self._libraries and not verbose:
                new.unsaid, new.told = 1 + (0 if known is None else known.unsaid), 0
                return False
            _count(record, known)
            return True
        known.last_s = now_s
        if now_s < known.next_s:
            known.unsaid += 1
            return False
        _count(record, known)
        known.next_s = now_s + PAUSES_S[min(known.told, len(PAUSES_S) - 1)]
        known.told += 1
        return True

    def _kind(self, record: logging.LogRecord) -> tuple[str, str] | None:
        place = record.name.partition(".")[0]
        if place in self._libraries:
            return record.name, str(record.msg)
        if place == _OWN and record.levelno >= logging.WARNING and not record.exc_info:
            return record.name, record.getMessage()
        return None


def _count(record: logging.LogRecord, known: _Repeated | None) -> None:
    if known is not None and known.unsaid:
        record.repeated = known.unsaid
        known.unsaid = 0
