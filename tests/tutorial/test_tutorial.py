"""The first lesson runs as it is written; ``make docs`` runs all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tutorial.lesson import FIRST_TERMINAL, FOLDER, LESSONS, Typed, Written, steps
from tests.tutorial.terminals import REPOSITORY, Failed, Terminals

pytestmark = pytest.mark.redis


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_first_lesson_runs_as_written() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.tutorial", "file"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_lesson_has_a_page_with_commands() -> None:
    assert {page.stem for page in FOLDER.glob("*.md")} == {*LESSONS, "index"}
    for lesson in LESSONS:
        taken = list(steps(FOLDER / f"{lesson}.md"))
        assert [step for step in taken if isinstance(step, Typed)], lesson


def test_a_page_is_read_as_files_and_commands_with_what_they_print(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```yaml title="a.yaml"\na: 1\n```\n```yaml\nnot: saved\n```\n'
        '```console\n$ cat a.yaml\na: 1\n$ true\n```\n```console title="second terminal"\n$ sleep 9\n```\n'
    )
    assert list(steps(page)) == [
        Written("a.yaml", "a: 1\n"),
        Typed("cat a.yaml", FIRST_TERMINAL, ("a: 1",)),
        Typed("true", FIRST_TERMINAL),
        Typed("sleep 9", "second terminal"),
    ]


def test_command_that_prints_something_else_or_fails_is_reported(tmp_path: Path) -> None:
    terminals = Terminals(tmp_path, patience_s=0.0)
    terminals.take(Typed("echo 12 bins", FIRST_TERMINAL, ("7 bins",)))
    with pytest.raises(Failed, match="the page says:\none bin"):
        terminals.take(Typed("echo two bins", FIRST_TERMINAL, ("one bin",)))
    with pytest.raises(Failed, match="status 3"):
        terminals.take(Typed("exit 3", FIRST_TERMINAL))
