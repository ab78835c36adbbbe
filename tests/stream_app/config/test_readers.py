"""The sections beside a stream's own, and conditions, are read exactly. ``refusals`` has the wrong ones."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from stream_app.config import ConfigError, Settings, key_file, load_text
from stream_app.config.alerts import format_warnings
from stream_app.config.key_file import add_key, follow_keys
from stream_app.config.settings import DAY_US, DeadLetterSettings
from stream_app.core.alerts.targets import Email, Webhook
from stream_app.core.boards import Annotation, Line, Panel
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


def test_mail_is_read() -> None:
    server, sender = "smtp://u:p%40ss@127.0.0.1:2525", "o'hara+counts@example.org"
    to = "[ops@example.org, boss-1@mail.example.org]"
    settings = read(f'alerts:\n  email: {{server: "{server}", from: "{sender}", to: {to}}}\n')
    assert settings.alerts.email == Email(server, sender, ("ops@example.org", "boss-1@mail.example.org"))


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


def test_letters_are_kept_a_week_without_content_by_default() -> None:
    assert read("").dead_letters == DeadLetterSettings(7 * DAY_US, 100_000_000, content=False)


def test_all_settings_are_read() -> None:
    settings = read("dead_letters: {keep: 36h, max_size: 2GB, content: true}")
    assert settings.dead_letters == DeadLetterSettings(36 * 3_600_000_000, 2_000_000_000, content=True)


ACCEPT = "whoever may read the topic reads refused records"
KAFKA = 'kafka: {bootstrap_servers: "localhost:9092"}\n'


def test_a_topic_gets_records_only_if_the_operator_accepts_it() -> None:
    assert read(f"dead_letters: {{topic: refused}}\n{KAFKA}").dead_letters.topic == "refused"
    with pytest.raises(ConfigError, match="content would put whole records into refused; leave it out"):
        read(f"dead_letters: {{topic: refused, content: true}}\n{KAFKA}")
    section = f'dead_letters: {{topic: refused, content: true, accept: "{ACCEPT}"}}\n{KAFKA}'
    assert read(section).dead_letters.content


BOARD = """
streams:
  clicks:
    source: {file: clicks.ndjson}
    time: {field: at, format: s, bin: 5m, grace: 0s, epoch: 1d}
    privacy: {epsilon: 1}
    keys: {field: country, list: [FR, DE]}
    annotations: [{at: 2026-03-01T00:00:00Z, text: New shop}]
  sales:
    source: {file: sales.ndjson}
    time: {field: at, format: s, bin: 1h, grace: 0s, epoch: 1d}
    privacy: {epsilon: 1}
    sum: {field: amount, min: 0, max: 500, unit: 0.01}
  people:
    source: {file: people.ndjson}
    time: {field: at, format: s, bin: 1h, grace: 0s, epoch: 1d}
    privacy: {epsilon: 1, unit: {user: user}}
    count: users
  days:
    source: {file: days.ndjson}
    time: {field: at, format: s, bin: 1d, timezone: Europe/Paris, grace: 0s, epoch: 30d}
    privacy: {epsilon: 1}
    value: {field: seconds, min: 0, max: 10, buckets: 10}
boards:
  shop:
"""
WHOLE = """
    title: The shop
    range: 7d
    embed: [https://intranet.example.org]
    panels:
      visits: {show: bins, streams: [clicks, clicks/FR, sales], title: Visits, range: 1d}
      income: {show: number, streams: [sales], measure: sum}
      times: {show: cdf, streams: [days]}
    annotations:
      - {from: 2026-03-02T00:00:00Z, to: 2026-03-03T00:00:00Z, text: Sale, link: https://shop.example.org/sale}
      - {at: 2026-03-01T00:00:00Z, text: New prices}
"""


def test_a_board_is_read_as_it_is_written() -> None:
    settings = load_text(BOARD + WHOLE, Path("app.yaml"), {})
    (board,) = settings.boards
    assert (board.name, board.title, board.range_us) == ("shop", "The shop", 7 * 86_400_000_000)
    assert board.embed == ("https://intranet.example.org",)
    lines = (Line("clicks"), Line("clicks", "FR"), Line("sales"))
    assert board.panels[0] == Panel("visits", "bins", lines, "count", "Visits", 86_400_000_000)
    assert [panel.measure for panel in board.panels] == ["count", "sum", "count"]
    assert [one.text for one in board.annotations] == ["New prices", "Sale"]
    assert board.annotations[1].link == "https://shop.example.org/sale"
    assert settings.streams[0].annotations == (Annotation(1_772_323_200_000_000, None, "New shop"),)


def test_a_key_of_a_board_opens_the_questions_of_its_panels_only() -> None:
    (board,) = load_text(BOARD + WHOLE, Path("app.yaml"), {}).boards
    without_key = {path for path, key in board.questions() if key is None}
    assert without_key == {
        "/v1/boards/shop",
        "/v1/changes",
        *(f"/v1/streams/{stream}" for stream in ("clicks", "sales", "days")),
        *(f"/v1/streams/{stream}/{path}" for stream in ("clicks", "sales") for path in ("series", "count")),
        "/v1/streams/sales/sum",
        "/v1/streams/days/cdf",
    }
    of_a_key = {f"/v1/streams/clicks/{path}" for path in ("keys/list", "series", "count")}
    assert {(path, key) for path, key in board.questions() if key is not None} == {
        (path, "FR") for path in of_a_key
    }


@pytest.mark.parametrize(
    "where",
    ["{field: [amount], min: 1}", "{all: [{field: amount}, {min: 1}]}", "{field: amount}", "{min: 1}"],
)
def test_fields_that_are_named_like_tests_can_be_compared(where: str) -> None:
    text = STREAMS.replace("  past:", f"    where: {where}\n  past:")
    stream, _ = load_text(text, Path("app.yaml"), {}).streams
    tests = {"field is amount": "field: " in where or "[amount]" in where, "min is 1": "min" in where}
    assert stream.declared.where is not None
    for said, wanted in tests.items():
        assert (said in str(stream.declared.where)) is wanted


def test_key_is_taken_away_by_a_file_of_equal_size_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_file, "LOOK_EVERY_S", 0.01)
    path, taken = tmp_path / "keys.ndjson", asyncio.Queue[tuple[str, ...]]()
    add_key(path, "ann", [])
    before = path.stat()

    async def run() -> None:
        following = asyncio.create_task(
            follow_keys(path, lambda keys: taken.put_nowait(tuple(key.name for key in keys)))
        )
        assert await taken.get() == ("ann",)
        with path.open("r+") as file:
            file.write(path.read_text().replace("ann", "bob"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert await taken.get() == ("bob",)
        following.cancel()

    asyncio.run(asyncio.wait_for(run(), 60))
