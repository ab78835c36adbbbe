"""The sections ``alerts`` and ``api`` are read exactly. ``refusals`` has the wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_app.config import ConfigError, Settings, load_text
from stream_app.config.alerts import format_warnings
from stream_app.core.alerts.targets import Email, Webhook
from stream_app.ports.access import Limits

STREAMS = """\
streams:
  clicks:
    source: {file: clicks.ndjson}
    time: {field: at, format: iso8601, bin: 5m, grace: 0s, epoch: 1d}
    privacy: {epsilon: 1.0}
  past:
    source: {file: past.ndjson, replay: {from: 2013-01-01T00:00:00Z, to: 2013-02-01T00:00:00Z}}
    time: {field: at, format: iso8601, bin: 1h, epoch: 31d}
    privacy: {epsilon: 1.0}
"""


def read(text: str) -> Settings:
    return load_text(STREAMS + text, Path("/app/app.yaml"), {})


def test_rules_are_read() -> None:
    settings = read(
        'alerts:\n  rules:\n    busy: {when: "rate(clicks, 1h) >= 5/m", confidence: 0.99, for: 10m,'
        ' clear: 4, labels: {severity: page}, summary: too many}\n    still: {when: "no_data(clicks, 20m)"}\n'
        '  webhooks: ["https://hooks.example.org/x"]\n'
    )
    busy, still = settings.alerts.rules
    assert (busy.name, busy.confidence, busy.for_us, busy.clear) == ("busy", 0.99, 600_000_000, 4.0)
    assert (busy.condition.measure, busy.condition.window_us, still.condition.measure) == (
        "rate",
        3_600_000_000,
        "no_data",
    )
    assert settings.alerts.webhooks == (Webhook("https://hooks.example.org/x"),)
    assert read("").alerts.rules == ()


HOOK = "https://hooks.example.org/x"


EMAIL = "server: {server}, from: {sender}, to: {to}"


def test_mail_is_read() -> None:
    sender, to = "o'hara+counts@example.org", "[ops@example.org, boss-1@mail.example.org]"
    settings = EMAIL.format(server='"smtp://u:p%40ss@127.0.0.1:2525"', sender=f'"{sender}"', to=to)
    assert read(f"alerts:\n  email: {{{settings}}}\n").alerts.email == Email(
        "smtp://u:p%40ss@127.0.0.1:2525", sender, ("ops@example.org", "boss-1@mail.example.org")
    )


def test_webhooks_have_a_format_and_known_hosts_without_theirs_are_warned_of() -> None:
    slack, discord = (
        "https://hooks.slack.com/services/T/B/secret",
        "https://discord.com/api/webhooks/1/secret",
    )
    settings = read(f'alerts:\n  webhooks: ["{slack}", {{url: "{discord}", format: discord}}, "{HOOK}"]\n')
    assert [hook.form for hook in settings.alerts.webhooks] == ["alertmanager", "discord", "alertmanager"]
    [line] = format_warnings(settings.alerts)
    assert line == (
        "alerts.webhooks[0]: https://hooks.slack.com takes other bodies than format: alertmanager; "
        "write {url: ..., format: slack}"
    )


DELAYS = """\
  delays:
    source: {file: delays.ndjson}
    time: {field: at, format: iso8601, bin: 1h, grace: 0s, epoch: 1d}
    privacy: {epsilon: 1.0}
    keys: {field: carrier, list: [UA, AA]}
    value: {field: delay, min: 0, max: 60, buckets: 60}
"""


def test_each_makes_a_rule_for_every_key() -> None:
    when = 'when: "sum(delays[each], 1h) > 5", confidence: 0.99'
    rules = read(
        f"{DELAYS}alerts:\n  rules:\n    busy: {{{when}, labels: {{team: ops}}}}\n"
        f"    mine: {{{when}, labels: {{key: own}}}}\n"
    ).alerts.rules
    assert [rule.name for rule in rules[:3]] == ["busy[UA]", "busy[AA]", "busy[other]"]
    assert [rule.condition.keys for rule in rules[:3]] == [("UA",), ("AA",), ("other",)]
    assert rules[0].text == "sum(delays['UA'], 1h) > 5"
    assert rules[0].labels == {"key": "UA", "team": "ops"}
    assert rules[3].labels == {"key": "own"}
    assert {rule.confidence for rule in rules} == {0.99}
    assert len({rule.fingerprint for rule in rules}) == 6
    quotes = DELAYS.replace("[UA, AA]", """["it's \\"it\\""]""")
    with pytest.raises(ConfigError, match=r"character 12: the key .* has both kinds of quotes"):
        read(f"{quotes}alerts:\n  rules:\n    busy: {{{when}}}\n")


def test_host_names_and_limits_are_read() -> None:
    api = read(
        "api: {hosts: [Counts.example.org, api], limits: {connections: 50, connections_per_address: 5, "
        "followers: 2, idle: 30s, slow: 1m}}\n"
    ).api
    assert api.hosts == {"counts.example.org", "api"}
    assert api.limits == Limits(50, 5, 2, idle_s=30.0, slow_s=60.0)
    assert read("").api.hosts == frozenset()
    assert read("api: {keys: keys.ndjson}\n").api.keys == Path("/app/keys.ndjson")
