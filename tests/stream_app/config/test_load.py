"""The configuration: values are read exactly. ``refusals`` has the wrong ones."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from stream_app.config import ConfigError, load, load_text
from stream_app.config.access import OPERATOR_TOKEN, check_operator
from stream_app.config.document import Section
from stream_app.config.plans import planned
from stream_app.core.declaration import Declaration
from stream_app.ports import OperatorError
from stream_app.ports.access import digest_of

REPOSITORY = Path(__file__).parents[3]

REPLAY = """
redis: {url: "embedded:./state"}
streams:
  departures:
    source:
      file: flights.ndjson
      replay: {from: 2013-01-01T05:00:00Z, to: 2014-01-01T05:00:00Z, speed: 9d/s}
    time: {field: scheduled, format: iso8601, bin: 1h, epoch: 365d}
    privacy: {epsilon: 1.0}
"""
LIVE = """
redis: {url: "redis://localhost:6379/0"}
streams:
  clicks:
    source: {file: clicks.csv, format: csv, start: latest}
    time: {field: at, format: ms, bin: 1m, grace: 90s, epoch: 1d}
    privacy: {epsilon: 0.1, neighbours: substitute}
    tree: {branching: [24, 60], shares: [0.4, 0.6]}
    late: drop
    releases: {keep: 30d}
"""


def read(directory: Path, text: str, environment: dict[str, str] | None = None):
    file = directory / "app.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, environment or {})


def refusal(directory: Path, text: str, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(directory, text, environment)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_replay_is_read_exactly(tmp_path):
    settings = read(tmp_path, REPLAY)
    (stream,) = settings.streams
    assert stream.name == "departures"
    assert stream.source.file == tmp_path / "flights.ndjson"
    assert stream.source.speed == 9 * 86_400
    replay, time = stream.declared.source.replay, stream.declared.time
    assert (replay.to_us - replay.from_us) // time.bin_us == 8_760
    assert (stream.declared.time.epoch_bins, stream.declared.time.grace_us) == (8_760, 0)
    assert time.first_us == replay.from_us
    assert stream.declared.privacy.epsilon == 1
    assert stream.declared.privacy.private
    assert (stream.declared.tree.release, stream.declared.late) == ("anticipating", "next_bin")
    assert settings.redis.embedded == tmp_path / "state"
    assert (settings.api.host, settings.api.port, settings.publish_every_us) == ("127.0.0.1", 8088, 1_000_000)


def test_title_timezone_and_url_are_read_exactly(tmp_path):
    text = REPLAY.replace("departures:", "departures:\n    title: Départs · 2013", 1)
    settings = read(tmp_path, f"{text}api: {{url: https://counts.example.org/x/, timezone: Europe/Paris}}\n")
    assert settings.streams[0].title == "Départs · 2013"
    assert (settings.api.url, settings.api.timezone) == ("https://counts.example.org/x", "Europe/Paris")
    plain = read(tmp_path, REPLAY)
    assert (plain.streams[0].title, plain.api.url, plain.api.timezone) == ("", None, "UTC")
    assert plain.streams[0].declared == settings.streams[0].declared  # a title may change at any start


def test_a_live_stream_is_read_exactly(tmp_path):
    settings = read(tmp_path, LIVE)
    (stream,) = settings.streams
    assert stream.declared.privacy.epsilon == Fraction(1, 10)
    assert stream.declared.tree.shares == (Fraction(2, 5), Fraction(3, 5))
    assert (stream.declared.time.bin_us, stream.declared.time.grace_us, stream.declared.time.first_us) == (
        60_000_000,
        90_000_000,
        None,
    )
    assert stream.keep_us == 30 * 86_400_000_000
    # At any instant an event on time lies at most ceil(grace / bin) bins beyond the next bin to close.
    assert stream.declared.time.max_ahead_bins == 3
    assert settings.redis.embedded is None
    assert settings.redis.api_url == settings.redis.url == "redis://localhost:6379/0"


WINDOWED = "keys: {field: c, list: [a], mode: window, window: 1h}"


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(
        ConfigError, match="cannot be read: No such file or directory; name a file with --config"
    ):
        load(tmp_path / "none.yaml", {})


def test_epsilon_is_read_exactly_as_written(tmp_path):
    for written, exact in [("0.1", "1/10"), ("1e9", None), ("1/3", "1/3"), ("0.3", "3/10")]:
        text = REPLAY.replace(
            "epsilon: 1.0", f"epsilon: {written}" + (", not_private: true" if exact is None else "")
        )
        assert str(read(tmp_path, text).streams[0].declared.privacy.epsilon) == (exact or "1000000000")


def test_environment_variables_override_addresses(tmp_path):
    secret = "redis://worker:hunter2@db:6379/0"
    settings = read(
        tmp_path, LIVE, {"STREAM_APP_REDIS_URL": secret, "STREAM_APP_REDIS_API_URL": "redis://api:x@db/0"}
    )
    assert (settings.redis.url, settings.redis.api_url) == (secret, "redis://api:x@db/0")
    message = refusal(tmp_path, LIVE, {"STREAM_APP_REDIS_URL": "rediss:hunter2"})
    assert "STREAM_APP_REDIS_URL: must be redis://host" in message
    assert "hunter2" not in message


def test_no_message_repeats_a_password(tmp_path):
    assert "hunter2" not in refusal(tmp_path, LIVE.replace("redis://", "ftp://worker:hunter2@"))


def test_every_spelling_of_a_path_gives_one_ledger_name(tmp_path):
    (tmp_path / "alias.ndjson").symlink_to(tmp_path / "flights.ndjson")
    spellings = ["flights.ndjson", "./x/../flights.ndjson", str(tmp_path / "flights.ndjson"), "alias.ndjson"]
    read_all = [read(tmp_path, REPLAY.replace("flights.ndjson", spelling)) for spelling in spellings]
    assert {settings.streams[0].declared.source.name for settings in read_all} == {"file:flights.ndjson"}


def test_sources_about_the_same_people_share_a_ledger_by_their_group(tmp_path):
    text = LIVE.replace("start: latest", "start: latest, group: visitors")
    assert read(tmp_path, text).streams[0].declared.source.name == "visitors"


@pytest.mark.parametrize(
    "other",
    ["format: ndjson, start: latest", "format: csv, start: earliest", "format: csv, start: latest, group: g"],
)
def test_streams_over_one_file_must_read_it_in_the_same_way(tmp_path, other):
    first, second = LIVE.partition("streams:\n")[::2]
    text = f"{first}streams:\n{second}{second.replace('clicks:', 'again:')}"
    assert len(read(tmp_path, text).streams) == 2
    head, tail = text.split("again:")
    message = refusal(tmp_path, f"{head}again:{tail.replace('format: csv, start: latest', other)}")
    assert "streams.again reads the same log as clicks; give both the same source" in message


def test_only_keys_that_decide_the_measurement_are_declared(tmp_path):
    one = read(tmp_path, REPLAY).streams[0].declared
    same = [("9d/s", "max"), ("embedded:./state", "redis://elsewhere/1")]
    other = [("bin: 1h", "bin: 30m"), ("365d", "73d"), ("epsilon: 1.0", "epsilon: 0.9"), ("2014", "2015")]
    for written, instead in same:
        assert read(tmp_path, REPLAY.replace(written, instead)).streams[0].declared == one
    for written, instead in other:
        assert read(tmp_path, REPLAY.replace(written, instead)).streams[0].declared != one


EVERY_SECTION = """
kafka: {bootstrap_servers: "h:1"}
streams: {n: {source: {file: f, replay: {from: 1970-01-01T00:00:00Z, to: 1970-01-01T01:00:00Z}},
  time: {field: t, format: s, bin: 1h, epoch: 1h}, privacy: {epsilon: 1},
  keys: {field: k, list: [a], normalise: {patterns: {x: a}, replace: {y: a}}},
  value: {field: v, min: 0, max: 1, buckets: 2},
  where: {f: {present: true}, all: [{f: a}], any: [{f: a}], not: {f: a}}},
  t: {source: {topic: f}, time: {field: t, format: s, bin: 1h, grace: 1h, epoch: 1h},
  privacy: {epsilon: 1, unit: {user: u, max_events: 1}}, annotations: [{at: 1970-01-01T00:00:00Z, text: x}]},
  u: {source: {topic: g}, time: {field: t, format: s, bin: 1h, grace: 1h, epoch: 1h},
  privacy: {epsilon: 1}, sum: {field: a, min: 0, max: 1, unit: 1}},
  h: {source: {http: h}, time: {field: t, format: s, bin: 1h, grace: 1h, epoch: 1h}, privacy: {epsilon: 1}},
  p: {source: {http: p}, time: {field: t, format: s, bin: 1h, grace: 1h, epoch: 1h}, privacy: {epsilon: 1},
  keys: {fields: [f, g], list: {f: [a], g: [a]}, other: {f: false}}},
  d: {source: {file: d}, time: {field: t, format: s, bin: 1h, grace: 1h, epoch: 1d}, privacy: {epsilon: 1},
  tree: {release: causal}, keys: {field: k, discover: {epsilon: 0.5, delta: 1e-9}}},
  w: {source: {file: w, format: log_format, log_format: '$remote_addr $msec "$request"'},
  time: {bin: 1h, grace: 1h, epoch: 1d, first: 1970-01-01T00:00:00Z}, privacy: {epsilon: 1}},
  c: {source: {counts: c, origins: 4}, time: {field: t, format: ms, bin: 1h, grace: 1h, epoch: 1d},
  privacy: {epsilon: 1, signed: "each event adds 1 to one row and changes nothing else"}}}
api: {proxy: {header: h, addresses: [127.0.0.1]}, tls: {certificate: c, key: k}}
ingest: {tls: {certificate: c, key: k}, proxy: {header: h, addresses: [127.0.0.1]}, sites: {a.example: h},
  map: {h: {f: a}}}
alerts: {rules: {r: {when: count(n) > 1}}, email: {server: smtp://m, from: a@b, to: [a@b]}}
ledger: {file: l}
boards: {b: {panels: {p: {show: bins, streams: [n]}}, annotations: [{at: 1970-01-01T00:00:00Z, text: x}]}}
"""


def known_keys(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return every key path that a file may contain, with ``<name>`` in place of names."""
    found: set[str] = set()

    def noted(ask: Callable[..., object]) -> Callable[..., object]:
        def asked(section: Section, key: str, *more: object, **options: object) -> object:
            found.add(f"{section.path}.{key}".removeprefix("."))
            return ask(section, key, *more, **options)

        return asked

    for name in ("take", "section", "sections"):
        monkeypatch.setattr(Section, name, noted(getattr(Section, name)))
    load_text(EVERY_SECTION, Path("app.yaml"), {})
    named = {re.sub(r"^streams\.[ntuhpdwc]\b", "streams.<name>", key) for key in found}
    nested = re.compile(r"where\.(all\[1\]|any\[1\]|not)\.")
    named = {key.replace("where.f", "where.<field>") for key in named if not nested.search(key)}
    named = {re.sub(r"keys\.(list|other)\.[fg]$", r"keys.\1.<field>", key) for key in named}
    named = {key.replace("annotations[1]", "annotations") for key in named}
    named = {key.replace("normalise.patterns.x", "normalise.patterns.<pattern>") for key in named}
    named = {key.replace("normalise.replace.y", "normalise.replace.<value>") for key in named}
    named = {key.replace("sites.a.example", "sites.<name>") for key in named}
    named = {key.replace("ingest.map.h", "ingest.map.<name>") for key in named}
    named = {key.replace("map.<name>.f", "map.<name>.<field>") for key in named}
    named = {re.sub(r"^boards\.b(\.panels\.p)?", _of_boards, key) for key in named}
    return {key.replace("alerts.rules.r", "alerts.rules.<name>", 1) for key in named}


def _of_boards(found: re.Match[str]) -> str:
    return "boards.<name>.panels.<name>" if found[1] else "boards.<name>"


# Each of these is one value, or a mapping of keys.
BOTH = ("privacy.unit", "where", "where.<field>", "keys.list", "keys.other", "keys.discover")


def test_every_key_is_documented_and_every_documented_key_exists(monkeypatch):
    page = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `([a-z_.<>]+)` \|", page, flags=re.MULTILINE)
    assert len(documented) == len(set(documented))
    known = known_keys(monkeypatch)
    both = {f"streams.<name>.{key}" for key in BOTH}
    sections = {key.rpartition(".")[0] for key in known} - both
    assert set(documented) == known - sections


def test_written_options_of_a_mechanism_are_declared(tmp_path):
    written = (
        f"departures:\n    {WINDOWED[:-1]}, mechanism: dawa, options: {{partition_share: 0.2, merge: true}}}}"
    )
    one = read(tmp_path, REPLAY.replace("departures:", written, 1)).streams[0]
    plain = read(
        tmp_path,
        REPLAY.replace(
            "departures:", written.replace(", options: {partition_share: 0.2, merge: true}", ""), 1
        ),
    )
    assert one.declared.keys.options == {"merge": True, "partition_share": "1/5"}
    told = one.declared.plain()["keys"]
    assert told.pop("options") == {"merge": True, "partition_share": "1/5"}
    # A stream from before options existed has declared none, and continues.
    assert told == plain.streams[0].declared.plain()["keys"]
    assert planned(one).hash != planned(plain.streams[0]).hash
    windows = planned(one).kind.windows
    assert windows is not None
    assert windows.options == one.declared.keys.options
    same = written.replace("0.2", "1/5")
    assert (
        planned(read(tmp_path, REPLAY.replace("departures:", same, 1)).streams[0]).hash == planned(one).hash
    )
    unfit = written.replace("dawa", "cdf_tree").replace("partition_share: 0.2, merge: true", "branching: [1]")
    with pytest.raises(
        OperatorError, match=r"app\.yaml:\d+: streams\.departures: mechanism: cdf_tree: .*branching"
    ):
        planned(read(tmp_path, REPLAY.replace("departures:", unfit, 1)).streams[0])


def test_the_operators_endpoint_is_closed_unless_its_port_is_written(tmp_path):
    assert read(tmp_path, LIVE).operator is None
    operator = read(tmp_path, LIVE + "operator: {port: 9464}\n").operator
    assert (operator.host, operator.port) == ("127.0.0.1", 9464)
    assert "operator.port is missing" in refusal(tmp_path, LIVE + "operator: {host: 0.0.0.0}\n")


def test_the_operators_endpoint_beyond_loopback_needs_a_token(tmp_path):
    for host in ("127.0.0.1", "localhost", "'::1'"):
        check_operator(read(tmp_path, LIVE + f"operator: {{host: {host}, port: 9464}}\n").operator)
    beyond = LIVE + "operator: {host: 0.0.0.0, port: 9464}\n"
    with pytest.raises(ConfigError, match=r"^operator\.host: 0\.0\.0\.0 is not loopback.*_OPERATOR_TOKEN"):
        check_operator(read(tmp_path, beyond).operator)
    (tmp_path / "app.yaml").write_text(beyond.replace("9464}", "9464, token: written-in-the-file}"))
    written = load(tmp_path / "app.yaml", {}).operator
    assert written is not None
    assert written.token == "written-in-the-file"
    given = load(tmp_path / "app.yaml", {OPERATOR_TOKEN: "0123456789abcdef"}).operator
    assert given is not None
    check_operator(given)
    assert given.token == "0123456789abcdef"
    assert given.token not in repr(given)


@pytest.mark.parametrize("token", ["short-secret", "spaces in my secret words", "ünïcode-sécret-wörds"])
def test_token_with_characters_that_no_header_carries_is_refused_unshown(tmp_path, token):
    said = refusal(tmp_path, LIVE + f"operator: {{port: 9464, token: {token}}}\n")
    assert "operator.token must be at least 16 letters" in said
    (tmp_path / "app.yaml").write_text(LIVE + "operator: {port: 9464}\n")
    with pytest.raises(ConfigError, match="STREAM_APP_OPERATOR_TOKEN must be at least 16 letters") as refused:
        load(tmp_path / "app.yaml", {OPERATOR_TOKEN: token})
    assert token not in said + str(refused.value)


@pytest.mark.parametrize(
    "example", sorted((REPOSITORY / "examples").glob("*.yaml")), ids=lambda path: path.name
)
def test_every_example_can_be_read(example):
    assert load(example, {}).streams


def test_the_example_of_the_reference_page_can_be_read(tmp_path):
    page = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
    examples = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    assert examples
    for example in examples:
        assert read(tmp_path, example).streams


SPOOL = """
ingest: {port: 9000, keys: writers.ndjson, dir: ./arrived, max_body: 2MB, remember: 2h, limits: {slow: 3s}}
streams:
  clicks:
    source: {http: web, keep: 3d}
    time: {field: at, format: ms, bin: 1m, grace: 90s, epoch: 1d}
    privacy: {epsilon: 0.1}
"""


def test_a_spool_is_read_exactly(tmp_path):
    settings = read(tmp_path, SPOOL)
    (stream,) = settings.streams
    assert stream.declared.source.name == "http:web"
    assert (stream.source.file, stream.source.keep_us) == (tmp_path / "arrived" / "web", 3 * 86_400_000_000)
    assert settings.spools == {"web": tmp_path / "arrived" / "web"}
    ingest = settings.ingest
    assert (ingest.host, ingest.port, ingest.keys) == ("127.0.0.1", 9000, tmp_path / "writers.ndjson")
    assert (ingest.most_body_bytes, ingest.remember_us) == (2_000_000, 7_200_000_000)
    assert (ingest.limits.slow_s, ingest.limits.connections) == (3.0, 1000)


def test_the_metrics_of_the_listener_have_the_operator_s_host_and_token(tmp_path):
    text = SPOOL.replace("port: 9000", "port: 9000, operator_port: 9001, tls: {certificate: a, key: b}")
    ingest = read(tmp_path, f"operator: {{port: 9002, host: '::1', token: {'t' * 20}}}\n{text}").ingest
    assert (ingest.operator.host, ingest.operator.port) == ("::1", 9001)
    assert ingest.operator.token_digest == digest_of("Bearer " + "t" * 20)
    assert "t" * 20 not in pickle.dumps(ingest).decode("latin-1")  # it must not read a worker's metrics
    assert (ingest.tls.certificate, ingest.tls.key) == (tmp_path / "a", tmp_path / "b")
    assert read(tmp_path, SPOOL).ingest.operator is None


def test_without_a_spool_nothing_is_received(tmp_path):
    assert read(tmp_path, LIVE).ingest is None


def test_zone_of_times_is_declared_and_without_it_the_stored_text_is_as_before(tmp_path):
    text = "streams: {a: {source: {file: a.csv}, privacy: {epsilon: 1}, time: {field: at, format: iso8601, "
    ends = "bin: 1h, grace: 1m, epoch: 1d}}}"
    plain = read(tmp_path, text + ends).streams[0].declared
    assert "zone" not in plain.plain()["time"]
    declared = read(tmp_path, f"{text}zone: Europe/Paris, {ends}").streams[0].declared
    assert declared.plain()["time"]["zone"] == declared.time.zone == "Europe/Paris"
    assert Declaration.of(declared.plain()) == declared != plain
    with pytest.raises(ConfigError, match="is for times that are texts"):
        read(tmp_path, f"{text}zone: Europe/Paris, {ends}".replace("iso8601", "ms"))


@pytest.mark.parametrize(
    ("made", "state", "place"),
    [
        ([], "", "state/redis"),
        (["state/redis"], "", "state/redis"),
        ([], "state: {dir: ./kept}", "kept/redis"),
        ([], "state: {dir: /kept}", "/kept/redis"),
        (["state/redis", "kept"], "state: {dir: ./kept}", "state/redis"),  # it began with an earlier build
        (["state/redis"], "state: {dir: ./kept}", "kept/redis"),  # another service began there
        (["state/redis", "kept/redis"], "state: {dir: ./kept}", "kept/redis"),
    ],
)
def test_an_embedded_server_is_in_the_state_directory(
    tmp_path: Path, made: list[str], state: str, place: str
) -> None:
    for directory in made:
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "app.yaml").write_text(f"{state}\n{REPLAY}".replace('redis: {url: "embedded:./state"}', ""))
    assert load(tmp_path / "app.yaml", {}).redis.embedded == tmp_path / place
