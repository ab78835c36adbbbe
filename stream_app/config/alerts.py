"""The section ``alerts``: rules, and where their transitions are told."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from stream_app.config import values
from stream_app.config.document import Section
from stream_app.config.settings import AlertSettings, StreamSettings
from stream_app.core.alerts.rules import Condition, Rule, RuleError, parse_condition

LEAST_CONFIDENCE, GREATEST_CONFIDENCE = 0.5, 0.999999


def read_alerts(section: Section, streams: Sequence[StreamSettings]) -> AlertSettings:
    """Read the section. Raises: ConfigError, with the place in a condition."""
    section.not_built(("topic",), "use a webhook or an Alertmanager")
    rules = section.section("rules")
    settings = AlertSettings(
        rules=tuple(
            _rule(rules, name, {stream.name: stream for stream in streams}) for name in rules.names()
        ),
        webhooks=section.take("webhooks", _urls, ()),
        alertmanagers=section.take("alertmanagers", _urls, ()),
    )
    rules.finish()
    section.finish()
    return settings


def _rule(rules: Section, name: str, streams: Mapping[str, StreamSettings]) -> Rule:
    try:
        values.name(name)
    except ValueError as refusal:
        raise rules.error(name, str(refusal)) from None
    section = rules.section(name)
    text = section.take("when", values.text)
    try:
        condition = parse_condition(text)
    except RuleError as refusal:
        raise section.error("when", f"{json.dumps(text)}: {refusal}") from None
    _check(section, condition, streams)
    rule = Rule(
        name=name,
        text=text,
        condition=condition,
        confidence=section.take("confidence", _confidence, 0.95),
        for_us=section.take("for", values.duration_us, 0),
        clear=section.take("clear", _number, None),
        labels=section.take("labels", _labels, {}),
        summary=section.take("summary", values.text, ""),
    )
    section.finish()
    if condition.measure == "no_data":
        for key in ("confidence", "for", "clear"):
            if key in section.names():
                raise section.error(key, "means nothing for no_data, which knows no noise; take it out")
    elif rule.clear is not None and condition.threshold is not None:
        inside = rule.clear <= condition.threshold if condition.upward else rule.clear >= condition.threshold
        if not inside:
            raise section.error(
                "clear", f"{rule.clear:g} is past the threshold; write a value on its other side"
            )
    return rule


def _check(section: Section, condition: Condition, streams: Mapping[str, StreamSettings]) -> None:
    """Refuse a condition that no release of its stream could answer."""
    stream = streams.get(condition.stream)
    if stream is None:
        known = ", ".join(streams)
        raise section.error("when", f"names the stream {condition.stream}, which is not here; known: {known}")
    if condition.measure == "no_data":
        if stream.source.replay is not None:
            raise section.error("when", f"is for live streams; {stream.name} replays the past, take it out")
        return
    if condition.window_us is None:
        return
    bins, rest = divmod(condition.window_us, stream.time.bin_us)
    if rest or not bins:
        whole = values.format_duration(stream.time.bin_us)
        raise section.error(
            "when", f"has a window that is not whole bins of {stream.name}; its bins are {whole}"
        )


def _confidence(value: Any) -> float:
    number = isinstance(value, float | int) and not isinstance(value, bool)
    if number and LEAST_CONFIDENCE <= value <= GREATEST_CONFIDENCE:
        return float(value)
    raise ValueError(f"must be a number from {LEAST_CONFIDENCE} to {GREATEST_CONFIDENCE}, for example 0.99")


def _number(value: Any) -> float:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return float(value)
    raise ValueError("must be a number")


def _labels(value: Any) -> dict[str, str]:
    if isinstance(value, dict) and all(
        isinstance(name, str) and name.isidentifier() and isinstance(label, str)
        for name, label in value.items()
    ):
        return dict(value)
    raise ValueError("must be names with words, for example {severity: page}")


def _urls(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list of URLs")
    for url in value:
        parts = urlsplit(values.text(url))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be URLs that begin with http:// or https://")
    return tuple(value)
