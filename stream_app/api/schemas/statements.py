"""The answers about privacy and about alerts."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from stream_app.api.schemas.answers import Released


class LedgerRow(BaseModel):
    """One measurement of the source."""

    stream: str
    epoch: int
    start: str
    end: str
    epsilon: str
    delta: str | None = Field(default=None, description="beside epsilon; null: a pure promise")
    unit: str
    private: bool
    end_reason: str | None = Field(
        description="why an epoch of this stream ended, if readers may know: complete, or what was lost; "
        "null also once retention has removed its releases"
    )


class Composed(BaseModel):
    """What holds for everything together: (epsilon, delta)."""

    epsilon: str = Field(description="rounded up to three digits")
    delta: str


class TotalAnswer(BaseModel):
    """What all epochs may cost together, and what is left of it."""

    epsilon: str
    delta: str | None = Field(description="null: the sum of the epsilons counts")
    per: Literal["source", "stream"] = Field(description="whether all streams over the source count")
    epochs_left: int | None = Field(
        description="epochs that may follow if all streams over the source go on; null: any number"
    )
    until: str = Field(description="end of the last of these epochs, or of the last one, RFC 3339")
    spent: bool = Field(description="whether nothing is counted after until")
    sentence: str


class PrivacyAnswer(Released):
    """What is protected and how strongly, in words and in numbers."""

    epsilon: str
    delta: str | None = Field(
        default=None, description="of this stream, beside epsilon; null: a pure promise"
    )
    unit: str = Field(description="event, user, or for a user's day, for example, user per 1d")
    per: str | None = Field(
        default=None,
        description="in words: the period of the unit, for example UTC day; null if the unit has none",
    )
    whole_user: str = Field(
        default="", description="in words: what a user's events of a whole epoch cost; empty without a period"
    )
    max_events: int | None = Field(
        description="events of one user that count in an epoch, or in the unit's period; null for events"
    )
    max_keys: int | None = Field(
        default=None, description="keys in which one user's events count in an epoch; null without this cap"
    )
    max_per_key: int | None = Field(
        default=None,
        description="events of one user that count in one key in an epoch; null without this cap",
    )
    neighbours: str
    neighbouring: str = Field(description="in words: the two logs that the promise compares")
    own_neighbouring: str = Field(
        description="in words: the two logs that epsilon, of this stream alone, compares"
    )
    source: str
    source_epsilon: str = Field(description="sum over everything that measures the source")
    source_delta: str | None = Field(default=None, description="sum of the deltas; null: a pure promise")
    composed: Composed = Field(description="everything that measures the source, for one stated delta")
    next_epoch: str = Field(
        default="",
        description="in words: the cost after one more epoch of this stream; empty: none comes",
    )
    max_odds_factor: float | None = Field(description="e^source_epsilon; null beyond e^20 or with a delta")
    total: TotalAnswer | None = Field(default=None, description="null: the epochs have no limit")
    promise: str = Field(description="in words: what everything that measures the source promises together")
    own_promise: str = Field(
        default="",
        description="in words: what this stream alone promises to users, where the promise of all streams "
        "together is about one event; else empty",
    )
    also: str = Field(
        default="",
        description="in words: the cost as the promise does not state it; may be empty",
    )
    protected: list[str]
    not_protected: list[str]
    ledger: list[LedgerRow]


AGAINST = (
    "estimate that the value is compared with: the factor times the past; null: no rule against the past"
)


class AlertReading(BaseModel):
    """An alert rule, and what it read at a change of its state."""

    rule: str
    condition: str
    value: float | None = Field(
        description="estimate at that change, in the condition's own unit: events, events per time (rate), a "
        "value (quantile), a share (cdf, ks); null: no_data, or the rule never changed"
    )
    stderr: float | None
    against: float | None = Field(default=None, description=AGAINST)
    unit: str = Field(default="", description="of a rate, as in the condition: /m; empty for others")
    meaning: str = Field(default="", description="what value is of, in words; empty if every event counts")


class AlertNow(AlertReading):
    """An alert rule, with its state and what it reads now."""

    phase: Literal["inactive", "pending", "firing"]
    confidence: float
    summary: str
    value_now: float | None = Field(
        default=None, description="estimate at the last release; null: none, or not computed yet"
    )
    stderr_now: float | None = None
    against_now: float | None = Field(default=None, description=f"at the last release, {AGAINST}")
    missing_now: str = Field(
        default="", description="why the rule cannot be decided now, for example its past; empty if it can"
    )
    quiet: str = Field(default="", description="hours of the day in which the rule does not fire")
    refused: list[str] = Field(
        default=[],
        description="targets that refused the last notification of this rule, by their place in the "
        "configuration, with the status of their answer: webhooks[0] (status 400)",
    )


class AlertAnswer(AlertNow):
    """The state of one alert rule, and its last change."""

    stream: str
    since: str = Field(description="end of the bin at which the condition began to hold, RFC 3339")
    changed: str | None = Field(
        description="end of the bin at which the phase last changed, RFC 3339; null: never"
    )
    fires: str | None = Field(
        default=None,
        description="when a pending rule fires if its condition holds until then, RFC 3339; else null",
    )
    watched: str | None = Field(
        default=None,
        description="end of the last bin that was released when the watch began; null: not known",
    )
    private: bool
    labels: dict[str, str]
    key: str = Field(description="idempotency key of that change")


class AlertList(BaseModel):
    """All rules that are watched, by name, and removed ones that changed at least once."""

    alerts: list[AlertAnswer]


class AlertMark(AlertNow):
    """A rule over a stream: its threshold and the last change of its state."""

    measure: str
    window_bins: int | None = Field(description="bins of the window; null for the running count")
    comparison: str | None
    threshold: float | None = Field(description="as it is written")
    threshold_events: float | None = Field(description="of counts and rates, as events in the window")
    keys: list[str] = Field(description="what is counted together; none for all, or all but not_keys")
    not_keys: list[str] = Field(default=[], description="keys that are left out; none: see keys")
    level: float | None = Field(description="of a quantile, which one; of a CDF, the point")
    since: float = Field(description="when the condition began to hold, seconds since 1970")
    changed: float | None = Field(description="when the phase last changed, seconds since 1970; null: never")
    fires: float | None = Field(
        default=None, description="when a pending rule fires if its condition holds until then; else null"
    )
    watched: float | None = Field(
        default=None, description="since when the rule is watched, seconds since 1970; null: not known"
    )
    kind: str = Field(description="that change: pending, firing, resolved or inactive")


class AlertTransition(AlertReading):
    """One change of a rule's phase, and the release that led to it."""

    kind: Literal["pending", "firing", "resolved", "inactive"] = Field(
        description="what it became; inactive: pending that lapsed"
    )
    at: float = Field(description="end of the bin whose release it follows from, seconds since 1970")
    seq: int = Field(description="of that release")


class AlertTransitions(Released):
    """The last changes of the rules over a stream, oldest first."""

    transitions: list[AlertTransition]
    kept: int = Field(description="the largest number that is kept; older ones are deleted")


class AlertMarks(Released):
    """The rules over a stream that are watched, and removed ones that changed at least once."""

    alerts: list[AlertMark]
