"""A stream continues with the file with which it began, and with no other file."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from stream_app.config import SourceSettings, StreamSettings, load
from stream_app.core.strategy import Strategy
from stream_app.durable import secret_directory
from stream_app.ports import OperatorError
from stream_app.sources.file import FileSource
from stream_app.wiring.event_logs import check_file, check_told_apart, named_by
from tests.stream_app.declared import changed_stream, strategy_of
from tests.stream_app.files import AT

TEXT = """
state: {dir: ./state}
streams:
  clicks:
    source: {file: clicks.ndjson, group: people}
    time: {field: at, format: iso8601, bin: 5m, grace: 30s, epoch: 1d}
    privacy: {epsilon: 1.0}
"""


def stream_in(folder: Path) -> StreamSettings:
    folder.mkdir(exist_ok=True)
    (folder / "clicks.ndjson").touch()
    config = folder / "app.yaml"
    config.write_text(TEXT)
    return load(config).streams[0]


def test_another_file_under_a_stream_that_has_begun_is_refused(tmp_path: Path) -> None:
    """Events in the other file may be the same people's. Counting them again would double the stated cost."""
    stream, state = stream_in(tmp_path), tmp_path / "state"
    check_file(stream, state)
    check_file(stream, state)
    assert isinstance(stream.source, SourceSettings)
    edited = replace(stream, source=replace(stream.source, file=tmp_path / "edited.ndjson"))
    with pytest.raises(
        OperatorError, match=r"^streams\.clicks\.source\.file: .*edited.ndjson is not the file"
    ):
        check_file(edited, state)
    other_field = changed_stream(stream, time={"field": "seen"})
    with pytest.raises(OperatorError, match="read in another way"):
        check_file(other_field, state)


def test_a_state_directory_is_known_wherever_it_is_moved_to(tmp_path: Path) -> None:
    stream = stream_in(tmp_path / "events")
    assert isinstance(stream.source, SourceSettings)
    source = FileSource(stream.source.file, "ndjson", AT, secret_directory(tmp_path / "notes"))

    def named(state: Path) -> Any:
        state.mkdir(exist_ok=True)
        return named_by(source, strategy_of(), state).declared.source.state_id

    (tmp_path / "there").mkdir()
    first = named(tmp_path / "state")
    assert named(tmp_path / "state") == first
    assert named(tmp_path / "other") != first
    (tmp_path / "state").rename(tmp_path / "there" / "state")
    assert named(tmp_path / "there" / "state") == first
    asyncio.run(source.close())


def test_everything_may_be_moved_together(tmp_path: Path) -> None:
    check_file(stream_in(tmp_path / "here"), tmp_path / "here" / "state")
    (tmp_path / "here").rename(tmp_path / "there")
    check_file(stream_in(tmp_path / "there"), tmp_path / "there" / "state")


def test_a_topic_that_is_read_under_two_names_is_refused() -> None:
    """Two addresses of one cluster look like two clusters until a topic of both is open."""

    began = strategy_of()

    def opened(stream: str, source: str, topic_id: str) -> Strategy:
        log = structs.replace(began.declared.source, name=source, topic="clicks", topic_id=topic_id)
        return replace(began, stream=stream, declared=structs.replace(began.declared, source=log))

    one, same = opened("a", "topic:clicks", "id-1"), opened("b", "topic:clicks", "id-1")
    check_told_apart([one, same, opened("c", "topic:eu/clicks", "id-2")])
    with pytest.raises(OperatorError, match="stream c: its topic clicks is read as topic:clicks too"):
        check_told_apart([one, same, opened("c", "topic:eu/clicks", "id-1")])
