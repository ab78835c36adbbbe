"""A stream goes on with the file that it began with, and with no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stream_app.config import StreamSettings, load
from stream_app.event_logs import check_file
from stream_app.ports import OperatorError

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
    """Its events may be the same people's: counted again, they would cost twice what the ledger says."""
    stream, state = stream_in(tmp_path), tmp_path / "state"
    check_file(stream, state)
    check_file(stream, state)
    edited = replace(stream, source=replace(stream.source, file=tmp_path / "edited.ndjson"))
    with pytest.raises(
        OperatorError, match=r"^streams\.clicks\.source\.file: .*edited.ndjson is not the file"
    ):
        check_file(edited, state)
    other_field = replace(stream, time=replace(stream.time, field="seen"))
    with pytest.raises(OperatorError, match="read in another way"):
        check_file(other_field, state)


def test_everything_may_be_moved_together(tmp_path: Path) -> None:
    check_file(stream_in(tmp_path / "here"), tmp_path / "here" / "state")
    (tmp_path / "here").rename(tmp_path / "there")
    check_file(stream_in(tmp_path / "there"), tmp_path / "there" / "state")
