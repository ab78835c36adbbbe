"""Runs ``stream-app init`` with answers, and reads what it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stream_app.config import StreamSettings, load, load_text
from stream_app.shell.commands import main
from stream_app.shell.init.answers import Answers, Counted
from stream_app.sources.decode import TimeField
from tests.stream_app.counted import counts_of

ANSWERS = {
    "events": "visits.csv",
    "time": "seen",
    "first": "2026-01-01",
    "user": "none",
    "count": "all",
    "epsilon": "1",
    "bin": "1h",
}
HEADER = "seen,visitor,town,spent"
ROWS = [f"2026-01-05T{n % 24:02d}:00:07Z,vera{n:04d},Xanten{n % 3},{n % 7}.25" for n in range(60)]
PLAIN = Answers(
    events=Path("a b.csv"),
    form="csv",
    time=TimeField("at", "ms"),
    first=None,
    to=None,
    user=None,
    max_events=0,
    counted=Counted(),
    keys=(),
    span=None,
    epsilon="1",
    bin="1h",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, with a file of events."""
    (tmp_path / "visits.csv").write_text("\n".join([HEADER, *ROWS]) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(**answers: str | None) -> Result:
    options = [
        f"--{name.replace('_', '-')}={answer}" for name, answer in answers.items() if answer is not None
    ]
    return CliRunner().invoke(main, ["init", *options])


def counted(folder: Path) -> int:
    """Return how many events the written configuration counts, with so little noise that it is exact."""
    text = (folder / "stream-app.yaml").read_text()
    exact = text.replace("epsilon: 1 ", "not_private: true\n      epsilon: 1.0e9 ")
    [counts] = counts_of(load_text(exact, folder / "stream-app.yaml", {})).values()
    return counts.total


def written(folder: Path) -> StreamSettings:
    (stream,) = load(folder / "stream-app.yaml", {}).streams
    return stream
