"""``keys.list_file``: a file of keys makes the same declaration as the list; a change of it is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from stream_app.config import ConfigError, load_text
from stream_app.config.plans import planned
from stream_app.core.records import GENESIS, EpochRecord, StreamState
from stream_app.core.strategy import Strategy
from stream_app.loops.configured import running_strategy
from stream_app.ports import OperatorError

TEXT = """
streams:
  visits:
    source: {{file: events.ndjson}}
    time: {{field: at, format: iso8601, bin: 1h, grace: 1m, epoch: 1d}}
    privacy: {{epsilon: 1}}
    keys: {{{keys}}}
"""


def strategy(directory: Path, keys: str) -> Strategy:
    [stream] = load_text(TEXT.format(keys=keys), directory / "app.yaml", {}).streams
    return planned(stream)


def refusal(directory: Path, keys: str) -> str:
    with pytest.raises(ConfigError) as refused:
        strategy(directory, keys)
    return str(refused.value)


@pytest.mark.parametrize("text", ["FR\nDE\na b\n", "\ufeffFR\r\nDE\r\n\r\na b", "\n\nFR\nDE\n\na b\n\n"])
def test_keys_of_a_file_make_the_declaration_of_the_same_list(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.txt").write_bytes(text.encode())
    in_file = strategy(tmp_path, "field: k, list_file: keys.txt")
    assert in_file.to_json() == strategy(tmp_path, 'field: k, list: [FR, DE, "a b"]').to_json()


def test_a_line_is_one_key_whatever_it_holds(tmp_path: Path) -> None:
    lines = ["010", "NO", " x ", "a, b", "# c", "u\u2028v", "null"]
    (tmp_path / "keys.txt").write_text("\n".join(lines))
    keys = strategy(tmp_path, "field: k, list_file: keys.txt, other: false").declared.keys
    assert keys is not None
    assert list(keys.labels) == lines


def test_each_of_several_fields_has_a_list_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "devices.txt").write_text("tv\npc\n")
    mixed = "fields: [c, d], list: {c: [FR, DE]}, list_file: {d: devices.txt}, other: false"
    listed = "fields: [c, d], list: {c: [FR, DE], d: [tv, pc]}, other: false"
    assert strategy(tmp_path, mixed).to_json() == strategy(tmp_path, listed).to_json()
    both = "fields: [c, d], list: {c: [FR], d: [tv]}, list_file: {d: devices.txt}"
    assert "keys.list.d is in keys.list_file as well; take one of them out" in refusal(tmp_path, both)


@pytest.mark.parametrize(
    ("content", "keys", "said"),
    [
        (None, "field: k, list_file: keys.txt", "cannot be read: No such file or directory; name a file"),
        (b"\xff\xfe", "field: k, list_file: keys.txt", "cannot be read: it is not UTF-8 text; name a file"),
        (b"\n\n", "field: k, list_file: keys.txt", "is empty; write one key a line"),
        (
            b"a\nb\na\n",
            "field: k, list_file: keys.txt",
            "line 3 of FILE repeats line 1; take one of them out",
        ),
        (
            b"a" * 201,
            "field: k, list_file: keys.txt",
            "line 1 of FILE is longer than 200 characters; shorten",
        ),
        (b"a\nother", "field: k, list_file: keys.txt", 'holds "other", which is the key of all others'),
        (
            b"a\n",
            "field: k, list: [b], list_file: keys.txt",
            "keys.list does not stand beside keys.list_file",
        ),
    ],
)
def test_a_wrong_file_gets_one_line(tmp_path: Path, content: bytes | None, keys: str, said: str) -> None:
    file = tmp_path / "keys.txt"
    if content is not None:
        file.write_bytes(content)
    line = refusal(tmp_path, keys)
    assert said.replace("FILE", str(file)) in line
    assert "\n" not in line


def test_a_changed_file_is_a_changed_declaration_in_one_short_line(tmp_path: Path) -> None:
    keys, more = [f"key{number}" for number in range(100_000)], "field: k, list_file: keys.txt"
    text = "".join(f"{key}\n" for key in keys)
    (tmp_path / "keys.txt").write_text(text)
    began = strategy(tmp_path, more)
    state = StreamState(began.to_json(), EpochRecord(0, 0, 24, 1, began.hash), 0, GENESIS, -1, -1, b"")
    assert running_strategy(state, strategy(tmp_path, more)).hash == began.hash
    (tmp_path / "keys.txt").write_text(text + "one more\n")
    with pytest.raises(OperatorError) as refused:
        running_strategy(state, strategy(tmp_path, more))
    sums = [hashlib.sha256(one.encode()).hexdigest()[:12] for one in (text, f"{text}one more\n")]
    assert str(refused.value) == (
        f"stream visits: keys.list was a list of 100,000 (SHA-256 {sums[0]}) when the stream began and is a "
        f"list of 100,001 (SHA-256 {sums[1]}) now; put it back, or give the new stream another name, "
        "with successor_of to continue this one"
    )
