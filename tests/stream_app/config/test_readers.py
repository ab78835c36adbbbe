"""The sections ``alerts`` and ``api``: correct values are read, wrong ones are refused in one line."""

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


def test_a_rule_over_windows_is_refused() -> None:
    windows = DELAYS.replace("buckets: 60}", "buckets: 60, mode: window, window: 1d}")
    for when in ("quantile(delays, 0.5, 1h) > 5", "sum(delays['UA'], 1h) > 5"):
        with pytest.raises(ConfigError, match=r"character \d+: keys and values of delays are released in"):
            read(f'{windows}alerts: {{rules: {{busy: {{when: "{when}"}}}}}}\n')
    read(f'{windows}alerts: {{rules: {{busy: {{when: "sum(delays, 1h) > 5"}}}}}}\n')


def test_a_topic_of_alerts_needs_a_cluster_and_holds_nothing_else() -> None:
    rules = 'alerts: {rules: {busy: {when: "count(clicks) > 5"}}, topic: clicks.alerts}\n'
    with pytest.raises(ConfigError, match="kafka is missing"):
        read(rules)
    kafka = 'kafka: {bootstrap_servers: "h:9092"}\n'
    assert read(rules + kafka).alerts.topic == "clicks.alerts"
    with pytest.raises(ConfigError, match=r"go into clicks\.alerts, which holds something else"):
        read(rules + kafka + "outputs: [{stream: clicks, topic: clicks.alerts}]\n")
    with pytest.raises(ConfigError, match="not a topic name"):
        read(rules.replace("clicks.alerts", '"clicks alerts"') + kafka)


def test_beyond_loopback_the_api_needs_keys_a_proxy_or_consent() -> None:
    for host in ("127.0.0.1", "127.1.2.3", "localhost", '"::1"'):
        assert read(f"api: {{host: {host}}}\n").api.keys is None
    for host in ("0.0.0.0", '"::"', "192.168.1.7", "counts.example.org"):
        with pytest.raises(ConfigError, match="is not loopback and no key is required"):
            read(f"api: {{host: {host}}}\n")
        for how in (
            "keys: keys.ndjson",
            "proxy: {header: X-User, addresses: [10.0.0.7]}",
            'accept: "everybody who reaches it may read"',
        ):
            read(f"api: {{host: {host}, {how}}}\n")
    assert read("api: {keys: keys.ndjson}\n").api.keys == Path("/app/keys.ndjson")


def test_host_names_and_limits_are_read() -> None:
    api = read(
        "api: {hosts: [Counts.example.org, api], limits: {connections: 50, connections_per_address: 5, "
        "followers: 2, idle: 30s, slow: 1m}}\n"
    ).api
    assert api.hosts == {"counts.example.org", "api"}
    assert api.limits == Limits(50, 5, 2, idle_s=30.0, slow_s=60.0)
    assert read("").api.hosts == frozenset()
