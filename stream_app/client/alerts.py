"""The alert rules of a service, as a client sees them."""

from __future__ import annotations

from dataclasses import dataclass, field

from stream_app.client.columns import Answered


@dataclass(frozen=True, slots=True)
class AlertRule(Answered):
    """An alert rule: its state, its last change, and what it reads now.

    Args: phase, "inactive", "pending" or "firing"; since, when the condition began to hold; changed, when the
        phase last changed, None for never; fires, when a pending rule fires if its condition holds until
        then; watched, since when the rule is watched, None if not known; value
        and stderr, the estimate at the last change; value_now and stderr_now, at the last release, None where
        there is none; against and against_now, the estimate of the past that the value is compared with,
        times the factor; missing_now, why the rule cannot be decided now; quiet, when it does not fire; unit,
        of a rate; meaning, the unit of values, empty if every event counts; refused, the targets that refused
        its last notification. Instants are RFC 3339.
    """

    rule: str
    stream: str
    condition: str
    phase: str
    confidence: float
    since: str
    changed: str | None
    value: float | None
    stderr: float | None
    summary: str
    private: bool
    # An older service does not say these.
    watched: str | None = None
    value_now: float | None = None
    stderr_now: float | None = None
    unit: str = ""
    meaning: str = ""
    refused: list[str] = field(default_factory=list)
    against: float | None = None
    against_now: float | None = None
    missing_now: str = ""
    quiet: str = ""
    fires: str | None = None
