"""Wrong configurations, each with the one line that refuses it, and a few correct ones that look wrong.

The line names file, line, key, value and remedy. The tables in ``refusals`` list known mistakes, one table
for each base: what is written instead of a part of it, and words of the line. ``good`` means that
check-config takes the text, ``read`` that it names files which are not there. A fuzzer makes other
mistakes. Every text must be accepted, or refused in one line; a traceback is a failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from stream_app.config import ConfigError, load_text
from stream_app.shell.commands import main

FILE = Path("app.yaml")


def rows() -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each text of the tables with the words of its refusal."""
    for file in sorted((Path(__file__).parent / "refusals").glob("*.yaml")):
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
        yield from ((expanded(text), said) for text, *said in found.get("whole", ()))
        changes = [
            ([old, new], said) for old, some in found.get("instead", {}).items() for new, *said in some
        ]
        changes += [(pairs, [said]) for *pairs, said in found.get("several", ())]
        for pairs, said in changes:
            yield expanded(changed(found["base"], *pairs)), said


def changed(text: str, *pairs: str) -> str:
    """Return a text with other words in it. Args: pairs, what is there, and what is written instead."""
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in text
        text = text.replace(old, new, 1)
    return text


def expanded(text: str) -> str:
    """Return a text with its placeholders replaced: ``<20000 keys>`` and ``<400 x 0>``."""
    text = re.sub(r"<(\d+) keys>", lambda found: ",".join(f"k{i}" for i in range(int(found[1]))), text)
    return re.sub(r"<(\d+) x (.)>", lambda found: found[2] * int(found[1]), text)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.ndjson").touch()
    return tmp_path


def refusal_of(text: str) -> str | None:
    """Return the line that refuses a text, when it is read or by check-config; None if it is good."""
    try:
        load_text(text, FILE, {})
    except ConfigError as refusal:
        return str(refusal)
    FILE.write_text(text)
    found = CliRunner().invoke(main, ["check-config", "--config", str(FILE)])
    assert isinstance(found.exception, SystemExit | None), found.exception
    assert found.exit_code in (0, 2)
    return found.output.strip().removeprefix("stream-app: ") if found.exit_code else None


@pytest.mark.parametrize(("text", "said"), list(rows()))
def test_each_is_refused_in_one_line_that_says_where_and_what(
    here: Path, text: str, said: Sequence[str]
) -> None:
    if said == ["read"]:
        load_text(text, FILE, {})
        return
    line = refusal_of(text)
    if said == ["good"]:
        assert line is None
        return
    assert line is not None
    assert re.fullmatch(r"app\.yaml(:\d+)?: [^\n]*", line)
    assert "hunter2" not in line
    for words in said:
        assert words in line.replace(str(here), "HERE")


GOOD = """
redis: {url: "redis://h:1/0", accept: may lose acknowledged writes}
kafka: {bootstrap_servers: "h:1", group: g}
api: {host: 127.0.0.1, port: 1, origins: [http://a], proxy: {header: X, addresses: [10.0.0.1]}}
operator: {host: 127.0.0.1, port: 2}
state: {dir: ./state}
secrets: {key_file: k}
ledger: {file: l}
outputs: [{stream: t, topic: o}]
publish_every: 1s
alerts: {rules: {r: {when: "sum(s, 1h) > 5", for: 1h, clear: 3, labels: {a: b}}}, webhooks: ["http://a"]}
streams:
  s:
    source: {file: a, format: csv, group: p, replay: {from: 2024-01-01T00:00:00Z, to: 2024-01-02T00:00:00Z}}
    time: {field: at, format: s, bin: 1h, grace: 1m, epoch: 1d, max_ahead: 1h}
    privacy: {epsilon: 1, neighbours: substitute, accept: measured again, unit: {user: u, max_events: 2}}
    tree: {branching: [4, 6], shares: [0.5, 0.5], release: causal, workload: {prefix: 1, bins: 2}}
    keys: {field: k, list: [a, b], other: true, total: true}
    value: {field: v, min: 0, max: 10, buckets: 4}
  t:
    source: {topic: t, start: 2024-01-01T00:00:00Z}
    time: {field: at, format: ms, bin: 1d, timezone: Europe/Paris, grace: 1m, epoch: 30d}
    privacy: {epsilon: 25, not_private: true}
    late: drop
"""
odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["0", "-1", "1e999", ".nan", "1/0", "99999999999999d", "1us", "0s", "/", ".", ".."]),
    st.sampled_from(
        ["http://", "http://[", "redis://h:99999/0", "h:99999", "[::1]:1", "embedded:", "unix://"]
    ),
    st.sampled_from(["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "count(", "sum(s,1h)>1e999", "\x00"]),
    st.lists(st.one_of(st.integers(), st.text(max_size=4)), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Return the path of every value of a document, mappings and lists included."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


DOCUMENT = yaml.safe_load(re.sub(r"(\d{4}-[\dT:-]+Z)", r"'\1'", GOOD))


@given(st.sampled_from(places(DOCUMENT)[1:]), odd, st.booleans(), st.text(max_size=6))
def test_random_value_anywhere_gives_one_line_and_no_traceback(
    place: tuple[object, ...], value: object, is_key: bool, key: str
) -> None:
    document = yaml.safe_load(yaml.safe_dump(DOCUMENT))
    above = document
    for step in place[:-1]:
        above = above[step]
    if is_key and isinstance(above, dict):
        above[key] = above.pop(place[-1])
    else:
        above[place[-1]] = value
    answers(yaml.safe_dump(document))


@given(st.text(alphabet="abs:{}[]-,&*!|>'\"#% \n\t019.", max_size=60))
def test_random_document_gives_one_line_and_no_traceback(text: str) -> None:
    answers(text)


def answers(text: str) -> None:
    try:
        load_text(text, Path("w.yaml"), {})
    except ConfigError as caught:
        refusal = str(caught)
    else:
        return
    assert re.match(r"w\.yaml(:\d+)?: .", refusal)
    assert len(refusal.splitlines()) == 1


def test_document_is_valid_before_it_is_changed() -> None:
    assert {stream.name for stream in load_text(GOOD, Path("w.yaml"), {}).streams} == {"s", "t"}
