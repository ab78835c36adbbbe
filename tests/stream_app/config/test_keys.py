"""The section ``keys``: lists, files, several fields, normalised and found keys, and what is refused."""

from __future__ import annotations

import hashlib
import json
import re
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from dphist.discovery import DiscoveryRule
from stream_app.config import ConfigError, Settings, load_text
from stream_app.config.plans import planned
from stream_app.core.counting.keys import KeyField, KeyList, Normalise, check_pattern, normalised
from stream_app.core.counting.unlisted import Discover, key_names
from stream_app.core.declaration import Declaration
from stream_app.core.kinds import Discovering
from stream_app.core.meaning import meaning_of
from stream_app.core.records import GENESIS, EpochRecord, StreamState
from stream_app.core.strategy import Strategy
from stream_app.loops.configured import running_strategy
from stream_app.ports import OperatorError
from stream_app.shell.commands import main
from stream_app.shell.planning.answers import rows_of
from stream_app.shell.planning.promises import promises
from tests.blocks.pages import block

FIELDS = "fields: [geo.country, device], list: {geo.country: [FR, DE], device: [mobile, 7, NO]}"
IN_FILE = "field: k, list_file: keys.txt"
DISCOVER = block("docs/how-to/discover.md: streams:").text  # the page discover.md


def read(keys: str, rest: str = "", top: str = "", directory: Path = Path("/app")) -> Settings:
    """Return the settings of a stream with these keys. Args: rest, of the stream; top, beside the streams."""
    text = f"""
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: iso8601, bin: 1h, grace: 1m, epoch: 1d}}
    privacy: {{epsilon: 1.0{", unit: {user: who, max_events: 3}" if "user" in rest else ""}}}
    keys: {{{keys}}}
    {rest if "user" not in rest else ""}
{top}"""
    return load_text(text, directory / "app.yaml", {})


def declared_keys(keys: str, rest: str = "") -> KeyList:
    found = read(keys, rest).streams[0].declared.keys
    assert found is not None
    return found


def strategy(directory: Path, keys: str) -> Strategy:
    return planned(read(keys, directory=directory).streams[0])


# Several fields.


def test_lists_and_others_of_each_field_are_declared() -> None:
    declared = read(FIELDS).streams[0].declared
    assert declared.keys == KeyList(
        fields=(KeyField("geo.country", ("FR", "DE"), True), KeyField("device", ("mobile", "7", "NO"), True)),
        total=False,
    )
    assert declared.cells.width == 12
    assert declared.cell_fields == ("geo.country", "device")
    assert [part.other for part in declared_keys(f"{FIELDS}, other: {{device: false}}").parts] == [
        True,
        False,
    ]
    none = declared_keys(f"{FIELDS}, other: false, total: true")
    assert (none.count, none.total) == (6, True)


@pytest.mark.parametrize(
    "rest",
    [
        "value: {field: delay, min: 0, max: 60, buckets: 4}",
        "value: {field: delay, min: 0, max: 60, buckets: 4, mode: window, window: 1d}",
        "sum: {field: amount, min: 0, max: 5, unit: 0.01}",
        "where: {device: mobile}",
        "tree: {release: causal}",
        "user",
    ],
)
def test_fields_stand_beside_other_sections_and_the_strategy_is_read_back(rest: str) -> None:
    found = planned(read(FIELDS, rest).streams[0])
    assert Strategy.from_json(found.to_json()).to_json() == found.to_json()
    assert b'"fields":[{"field":"geo.country","list":["FR","DE"],"other":true},' in found.to_json()


def test_windows_of_combinations_are_planned() -> None:
    windows = planned(read(f"{FIELDS}, mode: window, window: 1d").streams[0]).kind.windows
    assert windows is not None
    assert windows.buckets == 12


def test_rules_take_cells_patterns_and_each() -> None:
    one, each = (
        read(FIELDS, top=f'alerts: {{rules: {{busy: {{when: "sum(clicks[{keys}], 1h) > 5"}}}}}}').alerts.rules
        for keys in ("'FR/*', 'DE/mobile'", "each")
    )
    assert one[0].condition.keys == ("FR/*", "DE/mobile")
    assert len(each) == 12
    assert (each[1].name, each[1].labels["geo_country"]) == ("busy[FR/7]", "FR")
    assert each[1].labels == {"key": "FR/7", "geo_country": "FR", "device": "7"}


# Lists in files.


@pytest.mark.parametrize("text", ["FR\nDE\na b\n", "\ufeffFR\r\nDE\r\n\r\na b", "\n\nFR\nDE\n\na b\n\n"])
def test_keys_of_a_file_make_the_declaration_of_the_same_list(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.txt").write_bytes(text.encode())
    listed = strategy(tmp_path, 'field: k, list: [FR, DE, "a b"]')
    assert strategy(tmp_path, IN_FILE).to_json() == listed.to_json()


def test_a_line_is_one_key_whatever_it_holds(tmp_path: Path) -> None:
    lines = ["010", "NO", " x ", "a, b", "# c", "u\u2028v", "null"]
    (tmp_path / "keys.txt").write_text("\n".join(lines))
    keys = strategy(tmp_path, f"{IN_FILE}, other: false").declared.keys
    assert keys is not None
    assert list(keys.labels) == lines


def test_each_of_several_fields_has_a_list_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "devices.txt").write_text("tv\npc\n")
    mixed = "fields: [c, d], list: {c: [FR, DE]}, list_file: {d: devices.txt}, other: false"
    listed = "fields: [c, d], list: {c: [FR, DE], d: [tv, pc]}, other: false"
    assert strategy(tmp_path, mixed).to_json() == strategy(tmp_path, listed).to_json()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory; name a file"),
        (b"\xff\xfe", "cannot be read: it is not UTF-8 text; name a file"),
        (b"\n\n", "is empty; write one key a line"),
        (b"a\nb\na\n", "line 3 of FILE repeats line 1; take one of them out"),
        (b"a" * 201, "line 1 of FILE is longer than 200 characters; shorten"),
        (b"a\nother", 'holds "other", which is the key of all others'),
    ],
)
def test_a_wrong_file_gets_one_line(tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "keys.txt").write_bytes(content)
    line = re.escape(said.replace("FILE", str(tmp_path / "keys.txt")))
    with pytest.raises(ConfigError, match=line) as refused:
        strategy(tmp_path, IN_FILE)
    assert "\n" not in str(refused.value)


def test_a_changed_file_is_a_changed_declaration_in_one_short_line(tmp_path: Path) -> None:
    text = "".join(f"key{number}\n" for number in range(100_000))
    (tmp_path / "keys.txt").write_text(text)
    began = strategy(tmp_path, IN_FILE)
    state = StreamState(began.to_json(), EpochRecord(0, 0, 24, 1, began.hash), 0, GENESIS, -1, -1, b"")
    assert running_strategy(state, strategy(tmp_path, IN_FILE)).hash == began.hash
    (tmp_path / "keys.txt").write_text(text + "one more\n")
    with pytest.raises(OperatorError) as refused:
        running_strategy(state, strategy(tmp_path, IN_FILE))
    sums = [hashlib.sha256(one.encode()).hexdigest()[:12] for one in (text, f"{text}one more\n")]
    assert str(refused.value) == (
        f"stream clicks: keys.list was a list of 100,000 (SHA-256 {sums[0]}) when the stream began and is a "
        f"list of 100,001 (SHA-256 {sums[1]}) now; put it back, or give the new stream another name, "
        "with successor_of to continue this one"
    )


# Found keys.


def test_block_of_the_page_is_planned_and_says_what_a_key_needs() -> None:
    settings = load_text(DISCOVER, Path("app.yaml"), {})
    [stream] = settings.streams
    found = planned(stream)
    assert isinstance(found.kind, Discovering)
    assert Strategy.from_json(found.to_json()) == found
    assert found.epsilon == 1
    [said] = [asked for asked, _ in rows_of(stream) if "appears" in asked]
    [needed] = map(int, re.findall(r"^a key appears once about (\d+) users have brought it$", said))
    check_needed(found.kind.rule, needed)
    assert "by at most a factor e^1 (about 2.7), and adds at most" in next(iter(promises(settings, 0)))


def test_a_default_that_is_written_out_changes_nothing() -> None:
    written = DISCOVER.replace("delta: 1e-9", "delta: 1e-9, room: 1000000, epochs: 4, users: {minimum: 1}")
    assert written != DISCOVER
    [one], [other] = (load_text(text, Path("app.yaml"), {}).streams for text in (DISCOVER, written))
    assert planned(one).hash == planned(other).hash


@pytest.mark.parametrize(("epsilon", "users"), [("3", 11), ("1", 31), ("0.5", 60)])
def test_page_says_how_many_users_a_key_needs(epsilon: str, users: int) -> None:
    check_needed(Discover(Fraction(epsilon), Fraction(1, 10**9)).rule(365 * 24), users)  # a year


def check_needed(rule: DiscoveryRule, users: int) -> None:
    """Check that this many users are the least with which a decision names a key more often than not."""
    assert rule.chances([users - 1]).sum() < 0.5 <= rule.chances([users]).sum()


def test_doctor_and_plan_name_no_key_of_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    events = [
        {"at": f"2026-01-01T{n:02}:00:00Z", "user": {"id": "a"}, "page": f"/secret-{n}"} for n in range(9)
    ]
    Path("events.ndjson").write_text("".join(f"{json.dumps(one)}\n" for one in events))
    Path("app.yaml").write_text(DISCOVER)
    doctor, plan = (CliRunner().invoke(main, [name, "--config", "app.yaml"]) for name in ("doctor", "plan"))
    assert "9 of 9 events of a sample have a key in page" in doctor.output
    assert "names of keys cost epsilon 0.5" in plan.output
    assert "/secret" not in doctor.output + plan.output


# Keys as people write them: one public rule, the same for listed and for found keys.


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        ({"query": ()}, {"/a?b=c": "/a", "/a": "/a", "/a?": "/a"}),
        ({"query": ("q", "p")}, {"/a?p=1&x=2&q=3": "/a?q=3&p=1", "/a?x=1": "/a", "/a?p": "/a?p"}),
        ({"percent": True}, {"/a%20b?c=%C3%A9": "/a b?c=é", "/%FF": "/%FF", "/%": "/%"}),
        ({"percent": True}, {"/%e9": "/%E9", "/a%2Fb": "/a/b", "/%C3%a9": "/é", "/%2525": "/%25"}),
        ({"percent": True}, {"/é%C3%A9%": "/éé%", "/%c3a%a9": "/%C3a%A9", "/%C3é%A9%6a": "/%C3é%A9%6A"}),
        ({"query": (), "none": True}, {
            "/a?" + "b" * 1_997: "/a", "/a?" + "b" * 1_998: "/a?" + "b" * 1_998, "?" * 3_000: "?" * 3_000,
        }),
        ({"percent": True, "nfc": True}, {"%CE%B1%CC%93%CC%80%CD%85" * 80: "ᾂ" * 80}),
        ({"nfc": True}, {"α\u0313\u0300\u0345" * 200: "ᾂ" * 200, "e\u0301" * 401: "e\u0301" * 401}),
        ({"nfc": True}, {"e\u0301": "é"}),
        ({"lower": True}, {"/A?B": "/a?b"}),
        ({"strip_slash": True}, {"/a//": "/a", "/": "/", "//": "/", "/a/?b": "/a?b", "": ""}),
        ({"patterns": ((r"/u/(\d+)/(.+)", r"/u/*/\2"), ("/.*", "page"))}, {
            "/u/7/a": "/u/*/a", "/u/x/a": "page", "u": "u", "/" + "a" * 300: "/" + "a" * 300,
        }),
        ({"patterns": ((r"(/|/blog/.+)", r"\1"), (".*", "/elsewhere"))}, {
            "/": "/", "/blog/a": "/blog/a", "/BUY-NOW": "/elsewhere", "/?a=b": "/elsewhere",
        }),
        ({"replace": (("FR", "France"),)}, {"FR": "France", "fr": "fr"}),
        ({"lower": True, "replace": (("fr", "FR"),)}, {"FR": "FR", "Fr": "FR"}),
        ({"lower": True}, {200.0: "200", 7: "7", 1.5: 1.5, True: "true", None: None}),
        ({"none": True}, {None: "none", "": "none", "a": "a", 0: "0"}),
    ],
)  # fmt: skip
def test_value_becomes_its_key(rule: dict[str, Any], values: dict[Any, Any]) -> None:
    assert list(normalised(Normalise(**rule), list(values))) == list(values.values())


def test_values_that_can_be_no_key_stay() -> None:
    given: list[Any] = [["a"], {"a": 1}, float("inf")]
    assert list(normalised(Normalise(lower=True), given)) == given
    assert normalised(None, given) is given


@given(st.lists(st.one_of(st.text(), st.integers(), st.booleans(), st.floats(), st.none()), max_size=20))
def test_key_depends_on_its_own_value_only(values: list[Any]) -> None:
    rule = Normalise(query=("a",), percent=True, nfc=True, lower=True, strip_slash=True, none=True)
    together = key_names(normalised(rule, values))
    assert together == [key_names(normalised(rule, [value]))[0] for value in values]


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a+)+", "(a|b)*c", "a*b*c*", r"(a)\1", "(?=a)b", "[", "(a){2,}", "a{1,9}b+c*"),
        *(r"\\*\\*\\*x", r"[\]]*a*b*[x]", "[]a]*b*c*", "a?" * 9, "(a|aa)" * 9),
        *(".*" + "a?" * 5 + ".*b", "/.+(a|b|c)?/?(d|e)?.*"),
    ],
)
def test_pattern_that_may_take_long_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"may take long|is no regular expression"):
        check_pattern(pattern, "x")


@pytest.mark.parametrize(
    "pattern", [r"\*\+\*\)*\++", "[*+?|(?]*[^*]+", r"/(a|b|c|d)/(\d+)/?", "a{2}b{3}c{4}d?"]
)
def test_signs_that_are_letters_do_not_count_as_repeats(pattern: str) -> None:
    check_pattern(pattern, "x")


@pytest.mark.parametrize(
    ("rule", "hostile"),
    [
        ({"patterns": ((r".*a.*b", "x"),)}, ["a" * length for length in range(100, 200)]),
        ({"patterns": ((".*" + "a?" * 4 + ".*b", "x"),)}, ["a" * length for length in range(100, 200)]),
        ({"replace": tuple((str(n), "x") for n in range(10_000))}, [f"/{n}" for n in range(5_000)]),
        ({"nfc": True}, ["a" + "\u0315\u0300" * length for length in (*range(800, 999), 50_000)]),
        ({"query": tuple("abcdefghijklmnopqrst")}, ["?" + "&" * 400_000]),
        ({"percent": True}, ["%" * 1_000_000, "%FF" * 300_000]),
    ],
)  # fmt: skip
def test_rule_is_quick_on_hostile_values(rule: dict[str, Any], hostile: list[str]) -> None:
    began_s = time.process_time()
    normalised(Normalise(**rule), hostile)
    assert time.process_time() - began_s < 0.5


RULE = 'field: page, list: [/a, "200"], normalise: {strip_slash: true}'


def test_rule_is_declared_and_said() -> None:
    rule = "normalise: {strip_slash: true, query: [p]}, none: true"
    declared = read(RULE.replace("normalise: {strip_slash: true}", rule)).streams[0].declared
    assert declared.keys is not None
    assert declared.keys.labels == ("/a", "200", "none", "other")
    assert declared.keys.places(["/a/", 200.0, None, "/b"]).tolist() == [0, 1, 2, 3]
    said = "with the parameters p only, without a slash at the end, as none if the field is missing."
    assert meaning_of(declared).counts.endswith(f"Values of page are keys {said}")
    assert Declaration.of(declared.plain()) == declared


def test_stream_without_a_rule_has_the_text_that_it_had() -> None:
    plain = read(RULE.partition(", normalise")[0]).streams[0].declared.plain()
    assert "normalise" not in plain["keys"]  # type: ignore[operator]


def test_rules_of_the_page_are_read() -> None:
    written = block("docs/how-to/discover.md: keys:").text.replace("\n", "\n    ")
    above, _, below = DISCOVER.partition("    keys:")
    assert below
    keys = load_text(f"{above}    {written}", Path("app.yaml"), {}).streams[0].declared.keys
    assert keys is not None
    assert keys.normalise is not None
    given = ("/Blog/?utm=1&page=2", "/user/17/posts/", "/index.html", None)
    assert list(map(keys.normalise.of, given)) == ["/blog?page=2", "/user/*/posts", "/", "none"]
