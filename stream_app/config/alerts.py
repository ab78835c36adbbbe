"""The section ``alerts``: rules, and where to notify of their transitions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from dphist.product.answers import LARGEST_DISTANCE_CONFIDENCE
from stream_app.config import values
from stream_app.config.access import read_operator_port
from stream_app.config.document import Section
from stream_app.config.kafka import cluster_name, topic_name
from stream_app.config.settings import DAY_US, AlertSettings, OperatorSettings, StreamSettings
from stream_app.core.alerts.conditions import OF_AMOUNTS, OF_VALUES, Condition, RuleError, parse_condition
from stream_app.core.alerts.ranges import edge_of
from stream_app.core.alerts.rules import QuietHours, Rule, written_out
from stream_app.core.alerts.targets import (
    FORMATS,
    Email,
    Webhook,
    alerts_of_alertmanager,
    canonical,
    known_format,
    shown,
)
from stream_app.core.answers.asked_keys import AskedKeys, KeyNameError
from stream_app.core.counting.keys import KeyList
from stream_app.core.instants import PERIODS, format_instant
from stream_app.core.visits import VISITOR

Target = TypeVar("Target")

SET_BY_THE_SERVICE = ("alertname", "stream", "private")  # labels of every alert
_LEAST, _MOST = 0.5, 0.999999  # confidence
_A_BIN = 20_000  # in 2024, if of days
_CONFIDENCE = values.number(
    f"a number from {_LEAST} to {_MOST}, for example 0.99", lambda value: _LEAST <= value <= _MOST
)
_FINITE = values.number("a finite number", lambda _value: True)


def read_alerts(
    section: Section, streams: Sequence[StreamSettings], operator: OperatorSettings | None
) -> AlertSettings:
    """Read the section. Raises: ConfigError, with the position of an error in a condition.

    Args: operator, as ``read_operator_port``.
    """
    rules, by_name = section.section("rules"), {stream.name: stream for stream in streams}
    settings = AlertSettings(
        rules=tuple(rule for name in rules.names() for rule in _rules(rules, name, by_name)),
        webhooks=_targets(section, "webhooks", _webhook, lambda hook: hook.url),
        alertmanagers=_targets(section, "alertmanagers", _address, alerts_of_alertmanager),
        topic=section.take("topic", topic_name, None),
        cluster=section.take("cluster", cluster_name, ""),
        operator=read_operator_port(section, operator),
        email=_email(section.section("email")),
    )
    if settings.topic is None:
        section.refuse("cluster", "is of a topic, and alerts.topic is missing; write it, or take this out")
    rules.finish()
    section.finish()
    return settings


def _rules(rules: Section, name: str, streams: Mapping[str, StreamSettings]) -> Iterator[Rule]:
    """Yield the rule of a name, or one rule per key if its condition says ``each``."""
    rule = _rule(rules, name, streams)
    if not rule.condition.each:
        yield rule
        return
    keys = streams[rule.condition.stream].declared.keys
    assert keys is not None  # checked with the condition
    if keys.discover is not None:
        yield rule  # the watcher writes it for each key that is shown
        return
    try:
        yield from written_out(rule, keys)
    except RuleError as refusal:
        raise rules.section(name).error("when", f"{json.dumps(rule.text)}: {refusal}") from None


def _rule(rules: Section, name: str, streams: Mapping[str, StreamSettings]) -> Rule:
    section = rules.named(name)
    text, hours = section.take("when", values.text), section.take("quiet", _hours, None)
    try:
        condition = parse_condition(text)
        _check(condition, streams)
    except RuleError as refusal:
        raise section.error("when", f"{json.dumps(text)}: {refusal}") from None
    rule = Rule(
        name=name,
        text=text,
        condition=condition,
        confidence=section.take("confidence", _CONFIDENCE, 0.95),
        for_us=section.take("for", values.duration_us, 0),
        clear=section.take("clear", _FINITE, None),
        labels=section.take("labels", _labels, {}),
        summary=section.take("summary", values.text, ""),
        quiet=hours and QuietHours(*hours, streams[condition.stream].declared.time.timezone),
    )
    section.finish()
    _check_options(section, rule, streams[condition.stream])
    return rule


def _hours(value: object) -> tuple[int, int]:
    found = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]|24(?=:00)):([0-5]\d)", str(value))
    if found is None:
        raise ValueError("must be two times of a day as one text, for example 22:00-06:00")
    hour, minute, to_hour, to_minute = map(int, found.groups())
    if (start := 60 * hour + minute) == (stop := 60 * (to_hour % 24) + to_minute):
        raise ValueError("begins when it ends; write two different times")
    return start, stop


def _check_options(section: Section, rule: Rule, stream: StreamSettings) -> None:
    """Refuse options that do not apply to a rule's condition, and hours that never let it fire."""
    condition, time = rule.condition, stream.declared.time
    if rule.quiet is not None:
        # Ends repeat every day; those of local days may differ in two years of a zone's clock changes.
        several = 730 if time.timezone else DAY_US // math.gcd(time.bin_us, DAY_US)
        ends = (time.binning.end_us(bin) for bin in range(_A_BIN, _A_BIN + several))
        if all(map(rule.quiet.hold, ends)):
            said = f"{rule.quiet} has the end of every bin, so the rule would never fire; write other hours"
            raise section.error("quiet", said)
    if condition.measure == "no_data":
        for key in ("confidence", "for", "clear", "quiet"):
            section.refuse(key, "does not apply to no_data, which reads no value; take it out")
        return
    if condition.measure == "ks" and rule.confidence > LARGEST_DISTANCE_CONFIDENCE:
        most = f"{LARGEST_DISTANCE_CONFIDENCE:.3f}, the largest of a ks rule"
        raise section.error("confidence", f"{rule.confidence:g} is above {most}; lower it")
    if rule.clear is None or condition.threshold is None:
        return
    inside = rule.clear <= condition.threshold if condition.upward else rule.clear >= condition.threshold
    if not inside:
        raise section.error("clear", f"{rule.clear:g} is past the threshold; write a value on its other side")
    buckets = stream.declared.value
    if condition.measure == "quantile" and buckets is not None:
        try:
            edge_of(buckets, rule.clear)
        except ValueError as refusal:
            raise section.error("clear", str(refusal)) from None


def _check(condition: Condition, streams: Mapping[str, StreamSettings]) -> None:
    """Refuse a condition that the stream's releases can never answer. Raises: RuleError."""
    stream = streams.get(condition.stream)
    if stream is None:
        line = f"names the stream {condition.stream}, which is not here; known: {', '.join(streams)}"
        raise condition.error("stream", line)
    if condition.measure == "no_data":
        if stream.declared.source.replay is not None:
            raise condition.error(
                "stream", f"no_data is for live streams; {stream.name} replays the past, take it out"
            )
        return
    _check_axes(condition, stream)
    _check_kept(condition, stream)
    if condition.window_us is not None:
        _check_whole_bins(condition, stream, "window", condition.window_us)
    reference = condition.reference
    if reference is None:
        return
    if reference.from_us is None:
        _check_whole_bins(condition, stream, "reference", reference.length_us)
        _check_whole_bins(condition, stream, "ago", reference.ago_us)
    elif stream.declared.time.timezone is None:
        for edge_us in (reference.from_us, reference.to_us):
            assert edge_us is not None
            if edge_us % stream.declared.time.bin_us:
                line = f"{format_instant(edge_us)} is inside a bin of {stream.name}; name an edge"
                raise condition.error("reference", line)


def _check_kept(condition: Condition, stream: StreamSettings) -> None:
    """Refuse a condition on releases that leave the store (``releases.keep``)."""
    reference, keep_us = condition.reference, stream.keep_us
    if keep_us is None:
        return
    keep = f"streams.{stream.name}.releases.keep"
    if condition.measure == "count" or (reference is not None and reference.from_us is not None):
        line = f"it needs releases for ever, and {keep} removes old ones; ask about a last window instead"
        raise condition.error("stream", line)
    oldest = (condition.window_us or 0, reference.length_us + reference.ago_us if reference else 0)
    if max(oldest) > keep_us:
        line = f"it looks back longer than {keep}; write a longer one there"
        raise condition.error("window", line)


def _check_axes(condition: Condition, stream: StreamSettings) -> None:
    """Refuse unknown keys, values that the stream does not count, and points between bucket edges."""
    cells = stream.declared.cells
    by_key = bool(condition.keys) or condition.each
    if stream.declared.windows_of is not None and (by_key or condition.measure in OF_VALUES):
        line = f"keys and values of {stream.name} are released in windows; rules need mode: tree"
        raise condition.error("stream", line)
    if condition.each and cells.keys is None:
        raise condition.error("each", f"{stream.name} has no keys; take [each] out")
    if condition.keys:
        _check_keys(condition, stream.name, cells.keys)
    if condition.measure in OF_AMOUNTS:
        _check_amounts(condition, stream)
    if condition.measure not in OF_VALUES:
        return
    if cells.buckets is None:
        raise condition.error("stream", f"{stream.name} has no value; {condition.measure} needs one")
    part = "threshold" if condition.measure == "quantile" else "level"
    point = condition.threshold if condition.measure == "quantile" else condition.level
    if condition.measure == "ks" or point is None:
        return
    try:
        edge_of(cells.buckets, point)
    except ValueError as refusal:
        raise condition.error(part, str(refusal)) from None


def _check_keys(condition: Condition, stream: str, keys: KeyList | None) -> None:
    """Refuse keys and patterns that are not on the list, or that share a key."""
    if keys is None:
        raise condition.error(f"key {condition.keys[0]}", f"{stream} has no keys; take them out")
    if keys.discover is not None:
        return  # a key may be found later
    for key in condition.keys:
        if key not in keys.place_of_label and not keys.matching(key):
            known = ", ".join([*keys.labels[:10], *filter(None, [keys.a_pattern])])
            raise condition.error(f"key {key}", f"{key!r} is not on the list of {stream}: {known}")
    try:
        AskedKeys(condition.keys, condition.without).places(keys)
    except KeyNameError as refusal:
        raise condition.error(f"key {refusal.name}", str(refusal)) from None


def _check_amounts(condition: Condition, stream: StreamSettings) -> None:
    """Refuse totals and means of a stream without a sum, and means that no range of time can pass."""
    amounts, threshold = stream.declared.amounts, condition.threshold
    if amounts is None:
        raise condition.error("stream", f"{stream.name} has no sum; {condition.measure} needs one")
    assert threshold is not None
    low, high = float(amounts.low), float(amounts.high)
    if condition.measure == "mean" and not low < threshold < high:
        raise condition.error(
            "threshold", f"amounts of {stream.name} are from {low:g} to {high:g}; give a mean between them"
        )


def _check_whole_bins(condition: Condition, stream: StreamSettings, part: str, length_us: int) -> None:
    bins, rest = divmod(length_us, stream.declared.time.bin_us)
    if rest or not bins:
        whole = values.format_duration(stream.declared.time.bin_us)
        line = f"it has to be whole bins of {stream.name}; its bins are {whole}"
        raise condition.error(part, line)


def _labels(value: object) -> dict[str, str]:
    if isinstance(value, dict) and all(
        isinstance(name, str) and name.isidentifier() and isinstance(label, str)
        for name, label in value.items()
    ):
        for name in value:
            if name in SET_BY_THE_SERVICE:
                raise ValueError(f"sets {name}, which the service sets itself; choose another name")
        return dict(value)
    raise ValueError("must be names with words, for example {severity: page}")


def _targets(
    section: Section, key: str, read: Callable[[object], Target], sends_to: Callable[[Target], str]
) -> tuple[Target, ...]:
    """Return the targets of a list. Raises: ConfigError, which shows no URL, for it may hold a secret."""
    found: dict[str, tuple[int, Target]] = {}  # by address
    for place, written in enumerate(section.take(key, _list, list[object]())):
        try:
            target = read(written)
            earlier, _ = found.setdefault(canonical(sends_to(target)), (place, target))
            if earlier != place:
                raise ValueError(f"is the address of [{earlier}], written again; take one out")
        except ValueError as refusal:
            raise section.error(key, f"[{place}]: {refusal}") from None
    return tuple(target for _, target in found.values())


def _email(section: Section) -> Email | None:
    if not section.written:
        return None
    email = Email(
        server=section.take("server", _mail_server),
        sender=section.take("from", _mail_address),
        to=section.take("to", _mail_addresses),
    )
    section.finish()
    return email


def _mail_server(value: object) -> str:
    parts = values.url(value, ("smtp", "smtps"))
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("names more than a server; write smtp://user:password@host:587")
    return values.text(value)


def _mail_address(value: object) -> str:
    address = values.text(value)
    if not re.fullmatch(r"[!#-+\--9=?A-Z^-~-]+@[A-Za-z0-9.-]+", address, re.ASCII):
        raise ValueError("must be one address, for example counts@example.org")
    return address


def _mail_addresses(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("must be a list of addresses, for example [ops@example.org]")
    found = tuple(map(_mail_address, value))
    if len({address.lower() for address in found}) < len(found):
        raise ValueError("names an address twice; take one out")
    return found


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError("must be a list of URLs")
    return value


def _address(value: object) -> str:
    values.url(value, ("http", "https"))
    address = values.text(value)
    try:
        canonical(address)
    except ValueError:
        raise ValueError("names a host that cannot be written in ASCII; correct it") from None
    return address


def _webhook(value: object) -> Webhook:
    if not isinstance(value, dict):
        return Webhook(_address(value))
    if "url" not in value or not value.keys() <= {"url", "format"}:
        raise ValueError("must be a URL, or {url: ..., format: slack}")
    try:
        form = values.one_of(*FORMATS)(value.get("format", "alertmanager"))
    except ValueError as refusal:
        raise ValueError(f"format {refusal}") from None
    return Webhook(_address(value["url"]), form)


def format_warnings(alerts: AlertSettings) -> list[str]:
    """Return a line for each webhook whose host is known to refuse the bodies that it would get."""
    lines = []
    for place, hook in enumerate(alerts.webhooks):
        known = known_format(hook.url)
        if known not in (None, hook.form):
            line = f"alerts.webhooks[{place}]: {shown(hook.url)} takes other bodies than format: {hook.form}"
            lines.append(f"{line}; write {{url: ..., format: {known}}}")
    return lines


def cap_warning(rule: Rule, stream: StreamSettings) -> str | None:
    """Return a line if a rule compares times inside one cap window: there counts fall as caps are used up."""
    declared, asked, window_us = stream.declared, rule.condition.reference, rule.condition.window_us
    user, time = declared.privacy.per_user, declared.time
    if user is None or asked is None or window_us is None:
        return None
    cap_us = DAY_US if user.field == VISITOR else time.epoch_bins * time.bin_us
    cap_us = PERIODS[user.per] if user.per else cap_us
    if cap_us <= min(window_us, asked.length_us or window_us):
        return None
    if asked.from_us is None and asked.length_us == window_us and asked.ago_us % cap_us == 0:
        return None  # both are the same part of a cap window
    per = max((per for per in PERIODS if PERIODS[per] <= window_us), key=PERIODS.__getitem__, default=None)
    shorter = f"write streams.{stream.name}.privacy.unit.per: {per}" if per else "write a longer window"
    cap = f"a user's cap is for {values.format_duration(cap_us)}"
    return f"{cap}, longer than its window, so it may fire as users reach their caps; {shorter}"
