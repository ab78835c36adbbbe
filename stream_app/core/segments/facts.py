"""Which facts of a stream may change with its next segment, and which are fixed for all of its segments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stream_app.core.declaration import Declaration

# Facts that say which events are meant, and for whom the promise holds. With another one of these, an event
# could count in two segments, or what both cost would add up.
_FIXED = (
    *("ledger", "source", "successor_of", "time.field", "time.format", "time.zone", "time.first_us"),
    *("privacy.unit", "privacy.unit.user", "privacy.unit.per", "privacy.neighbours"),
)


def may_change(fact: str, running: Declaration) -> bool:
    """Return whether a fact may change where the next segment begins. Args: fact, its path in the text."""
    if running.until_us is not None or fact.split(".")[0] == "source":
        return False
    if fact == "time.timezone" and running.period is not None:
        return False  # days of two zones overlap
    return fact not in _FIXED


def needs_segment(running: Declaration, wanted: Declaration) -> bool:
    """Return whether the wanted settings need, and may have, the next segment of the stream."""
    facts = [fact for fact, _, _ in differences(running.plain(), wanted.plain())]
    return bool(facts) and all(may_change(fact, running) for fact in facts)


def differences(then: object, now: object, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of each fact that differs between two JSON values, and both values."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted(then.keys() | now.keys()):
            yield from differences(then.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif then != now:
        yield path, then, now
