"""A stream that continues another one names it, and begins where it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_app.config import load
from stream_app.config.document import ConfigError
from stream_app.config.source import ledgers_of
from stream_app.core.instants import parse_instant
from tests.blocks.pages import block

OLD = """\
streams:
  old:
    source: {file: a.ndjson}
    time: {field: at, format: s, bin: 5m, grace: 0s, epoch: 1d}
    privacy: {epsilon: 1}
"""
NEW = """\
  new:
    source: {file: a.ndjson}
    time: {field: at, format: s, bin: 1h, grace: 1m, epoch: 1d, first: "2030-01-01T00:00:00Z"}
    privacy: {epsilon: 1}
    successor_of: old
"""
EDGE_US = parse_instant("2030-01-01T00:00:00Z")


def loaded(directory: Path, text: str) -> dict[str, int | None]:
    """Return where each stream of a configuration ends."""
    (directory / "app.yaml").write_text(text)
    return {stream.name: stream.until_us for stream in load(directory / "app.yaml", {}).streams}


def test_a_stream_ends_where_its_successor_begins(tmp_path: Path) -> None:
    assert loaded(tmp_path, OLD + NEW) == {"old": EDGE_US, "new": None}
    last = NEW.replace("new:", "last:").replace("2030", "2031").replace("of: old", "of: new")
    assert loaded(tmp_path, OLD + NEW + last)["new"] == parse_instant("2031-01-01T00:00:00Z")
    # A stream that has ended may be taken out.
    assert loaded(tmp_path, "streams:\n" + NEW) == {"new": None}


def test_the_page_shows_a_stream_and_its_successor(tmp_path: Path) -> None:
    written = block("docs/how-to/change.md: streams:")  # the page change.md
    assert loaded(tmp_path, written.text) == {"clicks": EDGE_US, "clicks-hourly": None}


def test_the_page_shows_a_topic_that_moves(tmp_path: Path) -> None:
    written = block("docs/how-to/move.md: kafka:").text
    assert loaded(tmp_path, written) == {"clicks": EDGE_US, "clicks-moved": None}
    ledgers = [ledgers_of(stream, tmp_path) for stream in load(tmp_path / "app.yaml", {}).streams]
    assert ledgers == [("topic:clicks",), ("topic:clicks", "topic:new/clicks")]
    with pytest.raises(ConfigError, match=r"its topic has moved, write source\.group: topic:clicks"):
        loaded(tmp_path, written.replace(', group: "topic:clicks"', ""))


def test_a_stream_may_end_without_a_successor(tmp_path: Path) -> None:
    ends = OLD.replace("epoch: 1d", 'epoch: 1d, until: "2030-01-01T00:05:00Z"')
    assert loaded(tmp_path, ends) == {"old": EDGE_US + 300_000_000}
