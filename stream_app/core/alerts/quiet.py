"""Hours of the day in which a rule does not fire."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Hours of every day in which a rule neither fires nor becomes pending.

    Args: from_minute, to_minute, of the local day; the end is not quiet; timezone, None for UTC.
    """

    from_minute: int
    to_minute: int
    timezone: str | None = None

    def __str__(self) -> str:
        edges = (f"{minute // 60:02}:{minute % 60:02}" for minute in (self.from_minute, self.to_minute))
        return f"{'-'.join(edges)} {self.timezone or 'UTC'}"

    def hold(self, at_us: int) -> bool:
        """Return whether an instant lies in them.

        >>> from stream_app.core.instants import parse_instant
        >>> night = QuietHours(22 * 60, 6 * 60, "Europe/Berlin")
        >>> [night.hold(parse_instant(f"2026-07-01T{at}:00Z")) for at in ("19:59", "20:00", "03:59", "04:00")]
        [False, True, True, False]
        """
        local = datetime.fromtimestamp(at_us // 1_000_000, ZoneInfo(self.timezone or "UTC"))
        minute = 60 * local.hour + local.minute
        past_from, past_to = minute >= self.from_minute, minute >= self.to_minute
        return past_from != past_to if self.from_minute < self.to_minute else past_from or not past_to
