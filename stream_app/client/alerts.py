"""The alert rules of a service, as a client sees them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class AlertRule:
    """An alert rule: its state, its last change, and what it reads now.

    Args: phase, "inactive", "pending" or "firing"; since, when the condition began to hold; changed, when the
        phase last changed, None for never; watched, since when the rule is watched, None if not known; value
        and stderr, the estimate at the last change; value_now and stderr_now, at the last release, None where
        there is none; unit, of a rate; meaning, what values are of, empty if every event counts; refused, the
        targets that refused its last notification. Instants are RFC 3339.
    """

    rule: str
    stream: str
    condition: str
    phase: str
    confidence: float
    since: str
    changed: str | None
    watched: str | None
    value: float | None
    stderr: float | None
    value_now: float | None
    stderr_now: float | None
    unit: str
    meaning: str
    summary: str
    private: bool
    refused: list[str]

    @classmethod
    def of(cls, answer: dict[str, Any]) -> AlertRule:
        """Read the service's answer; an older service does not say what rules read now."""
        missing: dict[str, Any] = {
            "watched": None,
            "value_now": None,
            "stderr_now": None,
            "unit": "",
            "meaning": "",
            "refused": [],
        }
        known = missing | answer
        return cls(**{field.name: known[field.name] for field in fields(cls)})
