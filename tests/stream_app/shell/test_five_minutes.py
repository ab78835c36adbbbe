"""The configurations of the first lesson work on files that somebody has."""

from __future__ import annotations

import gzip
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.ports import free_port
from stream_app.config import load
from stream_app.shell.commands import main

LESSON = Path(__file__).parents[3] / "docs" / "tutorial" / "file.md"


@pytest.mark.slow
def test_the_five_minutes_begin_with_a_file_that_somebody_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lesson = LESSON.read_text(encoding="utf-8")
    text, more = re.findall(r"```yaml[^\n]*\n(.*?)```", lesson, flags=re.DOTALL)
    written = text
    text = text.replace("first: 2026-01-05", "first: 2026-01-01")
    [doctor] = re.findall(r"^\$ stream-app (doctor \S+ \S+)", lesson, flags=re.MULTILINE)
    file = tmp_path / "clicks.yaml"
    file.write_text(f"{text}api: {{port: {free_port()}}}\n")
    lines = '{"at": "2026-01-05T10:00:00Z", "country": "FR"}\n' * 3
    (tmp_path / "clicks-2026-01-05.ndjson.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "clicks-2026-01-06.ndjson").write_text(lines.replace("05T", "06T"))
    checked = CliRunner().invoke(main, [*doctor.split()[:2], str(file)])
    assert checked.exit_code == 0, checked.output
    assert "every event of a sample can be decoded" in " ".join(checked.output.split())
    # The sentence in the example: "rotated and .gz files are one log; csv too".
    (stream,) = load(file, {}).streams
    assert stream.declared.source.format == "ndjson"
    file.write_text(text.replace(".ndjson", ".csv"))
    (stream,) = load(file, {}).streams
    assert stream.declared.source.format == "csv"
    # The file that the lesson shows is the one that its command writes.
    [init] = re.findall(r"^\$ stream-app (init .+)", lesson, flags=re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    file.unlink()
    assert CliRunner().invoke(main, shlex.split(init)).exit_code == 0
    assert file.read_text() == written
    # The block that is not run.
    file.write_text(more)
    assert [stream.name for stream in load(file, {}).streams] == ["visits"]
