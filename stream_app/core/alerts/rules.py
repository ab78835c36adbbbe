"""A rule: a condition, and when an alert of it fires. A rule on each key is one rule for every key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from zoneinfo import ZoneInfo

from stream_app.core.alerts.conditions import Condition, parse_condition
from stream_app.core.answers.asked_keys import label_values
from stream_app.core.counting.keys import KeyList


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


@dataclass(frozen=True)
class Rule:
    """One alert.

    Args:
        text: the condition as written in the configuration.
        confidence: the condition holds if the true value is past the threshold with this confidence.
        for_us: how long the condition has to hold before the alert fires, in the time of the log.
        clear: a firing alert is resolved when the estimate is back at this value; None: the threshold.
        labels, summary: passed on with every notification.
        quiet: when it does not fire, by the end of the last released bin; None for never.
        written: the name in the configuration, if that entry means one rule per key.
    """

    name: str
    text: str
    condition: Condition
    confidence: float = 0.95
    for_us: int = 0
    clear: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""
    written: str = ""
    quiet: QuietHours | None = None

    @cached_property
    def fingerprint(self) -> str:
        """Return an identifier of the rule's decision: a changed condition is a different alert."""
        said = [self.name, self.text, self.confidence, self.for_us, self.clear]
        said += [] if self.quiet is None else [str(self.quiet)]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def text_of_key(text: str, condition: Condition, key: str) -> str:
    """Return a condition on ``each`` key, written for one key. Raises: RuleError if it cannot be written.

    >>> text = "sum(clicks[each], 1h) > 5"
    >>> text_of_key(text, parse_condition(text), "FR")
    "sum(clicks['FR'], 1h) > 5"
    """
    quote = '"' if "'" in key else "'"
    if quote in key:
        raise condition.error("each", f"the key {key!r} has both kinds of quotes; name keys one by one")
    for part in ("each past", "each"):  # from the right
        if (at := condition.places.get(part)) is not None:
            text = f"{text[:at]}{quote}{key}{quote}{text[at + len('each') :]}"
    return text


def of_key(rule: Rule, key: str, labels: Mapping[str, str]) -> Rule:
    """Return a rule on ``each`` key, written for one key. Raises: RuleError if it cannot be written.

    Args: labels, further labels of this key.
    """
    text = text_of_key(rule.text, rule.condition, key)
    return replace(
        rule,
        name=f"{rule.name}[{key}]",
        text=text,
        condition=parse_condition(text),
        labels={"key": key, **labels, **rule.labels},
        written=rule.name,
    )


def written_out(rule: Rule, keys: KeyList) -> list[Rule]:
    """Return one rule for each key of a list. Raises: RuleError, as ``of_key``."""
    return [of_key(rule, key, label_values(keys, place)) for place, key in enumerate(keys.labels)]
