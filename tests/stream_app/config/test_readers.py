"""The sections ``alerts`` and ``api``: correct values are read, wrong ones are refused in one line."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (f'webhooks: ["{HOOK}", "{HOOK}"]', "alerts.webhooks [1]: is the address of [0], written again"),
        (f'webhooks: ["{HOOK}", {{url: "{HOOK}", format: slack}}]', "[1]: is the address of [0]"),
        (f'webhooks: ["{HOOK}", "https://HOOKS.example.org:443/x#a"]', "[1]: is the address of [0]"),
        ('alertmanagers: ["http://am:9093", "http://am:9093/"]', "alerts.alertmanagers [1]: is the address"),
        (
            f'webhooks: [{{url: "{HOOK}", format: slak}}]',
            "[0]: format must be one of alertmanager, slack, teams",
        ),
        (f'webhooks: [{{url: "{HOOK}", form: slack}}]', "[0]: must be a URL, or {url: ..., format: slack}"),
        ("webhooks: [{format: slack}]", "[0]: must be a URL, or {url: ..., format: slack}"),
        (
            'webhooks: [{url: "ftp://example.org/x"}]',
            "[0]: must be a URL that begins with http:// or https://",
        ),
        (f'webhooks: "{HOOK}"', "must be a list of URLs"),
        ("webhooks: [5]", "[0]: must be a word"),
        (
            'webhooks: ["http://' + "ü" * 70 + '.example/x"]',
            "[0]: names a host that cannot be written in ASCII",
        ),
    ],
)
def test_targets_that_are_equal_or_wrong_are_refused(targets: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(f"alerts:\n  {targets}\n")
    assert expected in str(refusal.value)
    assert "/x" not in str(refusal.value) or "must be a list" in expected


EMAIL = "server: {server}, from: {sender}, to: {to}"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"server": '"http://mail.example.org"'}, "alerts.email.server"),
        ({"server": '"smtp://u:secret@mail.example.org/inbox"'}, "names more than a server"),
        ({"server": '"smtp://u:secret@mail.example.org:0"'}, "and names a host, and a port up to 65535"),
        ({"sender": "counts"}, "alerts.email.from"),
        ({"sender": '"Counts <counts@example.org>"'}, "must be one address, for example counts@example.org"),
        ({"sender": '"a@b.org\\nBcc: c@d.org"'}, "must be one address"),
        ({"to": "ops@example.org"}, "must be a list of addresses"),
        ({"to": "[]"}, "must be a list of addresses"),
        ({"to": '["ops@example.org, boss@example.org"]'}, "must be one address"),
        ({"to": "[ops@example.org, OPS@example.org]"}, "names an address twice"),
        ({"to": "[ops@example.org], cc: [a@b.org]"}, "cc is not a known key"),
    ],
)
def test_wrong_mail_is_refused_without_its_password(written: dict[str, str], expected: str) -> None:
    good = {"server": '"smtps://u:secret@mail.example.org"', "sender": "counts@example.org"}
    settings = EMAIL.format(**good | {"to": "[ops@example.org]"} | written)
    with pytest.raises(ConfigError) as refusal:
        read(f"alerts:\n  email: {{{settings}}}\n")
    assert expected in str(refusal.value)
    assert "secret" not in str(refusal.value)


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


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ('when: "sum(clicks) > 5"', 'app.yaml:12: alerts.rules.busy.when "sum(clicks) > 5": character 11'),
        ('when: "count(views) > 5"', "names the stream views, which is not here; known: clicks, past"),
        ('when: "sum(clicks, 7m) > 5"', "its bins are 5m"),
        ('when: "no_data(past, 1h)"', "is for live streams"),
        ('when: "no_data(clicks, 1h)", for: 5m', "alerts.rules.busy.for does not apply to no_data"),
        ('when: "count(clicks) > 5", clear: 6', "alerts.rules.busy.clear 6 is past the threshold"),
        ('when: "count(clicks) < 5", clear: 4', "is past the threshold"),
        ('when: "count(clicks) > 5", confidence: 1', "must be a number from 0.5 to 0.999999"),
        ('when: "count(clicks) > 5", confidence: 0.4', "must be a number from 0.5"),
        ('when: "count(clicks) > 5", labels: {a b: c}', "must be names with words"),
        ('when: "count(clicks) > 5", level: page', "level is not a known key"),
        ("for: 5m", "alerts.rules.busy.when is missing"),
    ],
)
def test_a_wrong_rule_is_one_line(rule: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(f"alerts:\n  rules:\n    busy: {{{rule}}}\n")
    assert expected in str(refusal.value)
    assert "\n" not in str(refusal.value)


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


@pytest.mark.parametrize(
    ("when", "more", "expected"),
    [
        ("sum(clicks['FR'], 1h) > 5", "", "character 12: clicks has no keys"),
        (
            "sum(delays['UA', 'LH'], 1h) > 5",
            "",
            "character 18: 'LH' is not on the list of delays: UA, AA, other",
        ),
        ("sum(clicks[each], 1h) > 5", "", "character 12: clicks has no keys; take [each] out"),
        ("sum(delays['UA', each], 1h) > 5", "", "character 18: here belongs a key in quotes"),
        ("sum(delay, 1h) > 5", "", "character 5: names the stream delay, which is not here"),
        ("sum(delays, 90m) > 5", "", "character 13: it has to be whole bins of delays; its bins are 1h"),
        ("quantile(clicks, 0.5, 1h) > 5", "", "character 10: clicks has no value; quantile needs one"),
        ("quantile(delays, 0.5, 1h) > 5.5", "", "character 29: 5.5 is not an edge between two buckets"),
        ("cdf(delays, 5.5, 1h) > 0.5", "", "character 13: 5.5 is not an edge between two buckets"),
        ("quantile(delays, 0.5, 1h) > 5", ", clear: 4.5", "clear 4.5 is not an edge between two buckets"),
        ("ks(delays, 1h, 90m) > 0.5", "", "character 16: it has to be whole bins"),
        ("ks(delays, 1h, 1h ago 90m) > 0.5", "", "character 23: it has to be whole bins"),
        (
            "ks(delays, 1h, '1970-01-01T00:30:00Z/1970-01-01T02:00:00Z') > 0.5",
            "",
            "character 16: 1970-01-01T00:30:00Z is inside a bin of delays",
        ),
        ("ks(delays, 1h, 1h) > 0.5", ", confidence: 0.9999", "confidence 0.9999 is above 0.998"),
    ],
)
def test_error_in_a_rule_over_axes_names_its_place(when: str, more: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(f'{DELAYS}alerts:\n  rules:\n    busy: {{when: "{when}"{more}}}\n')
    assert expected in str(refusal.value)
    assert "alerts.rules.busy." in str(refusal.value)


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


@pytest.mark.parametrize(
    ("api", "expected"),
    [
        ("accept: yes please", "must be one of everybody who reaches it may read"),
        ("proxy: {header: X-User}", "api.proxy.addresses is missing"),
        ("proxy: {header: X-User, addresses: [gateway]}", "names are not"),
        ('origins: ["*"]', "must be a list of origins"),
        ("requests_per_s: 0", "must be a number above zero"),
        ("tls: {certificate: c.pem}", "api.tls.key is missing"),
    ],
)
def test_a_wrong_api_section_is_refused_in_one_line(api: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(f"api: {{{api}}}\n")
    assert expected in str(refusal.value)


def test_host_names_and_limits_are_read() -> None:
    api = read(
        "api: {hosts: [Counts.example.org, api], limits: {connections: 50, connections_per_address: 5, "
        "followers: 2, idle: 30s, slow: 1m}}\n"
    ).api
    assert api.hosts == {"counts.example.org", "api"}
    assert api.limits == Limits(50, 5, 2, idle_s=30.0, slow_s=60.0)
    assert read("").api.hosts == frozenset()


@pytest.mark.parametrize(
    ("api", "expected"),
    [
        ("hosts: [counts.example.org:443]", "must be a list of names without ports"),
        ("hosts: counts.example.org", "must be a list of names without ports"),
        ("hosts: []", "must be a list of names without ports"),
        ("limits: {connections: 0}", "must be a whole number from 1 to 100000"),
        ("limits: {followers: true}", "must be a whole number from 1"),
        ("limits: {slow: 10}", "must be a duration with its unit"),
        ("limits: {idle: 0s}", "must be from 1s to 1h"),
        ("limits: {speed: 1}", "speed is not a known key"),
    ],
)
def test_wrong_host_names_and_limits_are_refused(api: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        read(f"api: {{{api}}}\n")
