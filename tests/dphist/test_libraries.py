"""The page that compares libraries: its code runs, and its numbers are those of the code.

dphist and OpenDP run here. ``OTHER_LIBRARIES`` names a folder with the environments ``diffprivlib`` and
``tumult``; without it their code is not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "explanation" / "libraries.md").read_text(encoding="utf-8")
CODE = dict(re.findall(r'```py(?:thon)? title="(\w+)"\n(.*?)```', PAGE, flags=re.DOTALL))
TASKS = re.findall(r"^# (\d .*)$", CODE["dphist"], flags=re.MULTILINE)
HERE = ("dphist", "opendp")
OTHERS = ("diffprivlib", "tumult")


def interpreter(name: str) -> Path:
    if name in HERE:
        return Path(sys.executable)
    folder = os.environ.get("OTHER_LIBRARIES")
    if folder is None:
        pytest.skip(f"not run: {name} has an environment of its own; OTHER_LIBRARIES names its folder")
    return Path(folder) / name / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*HERE, *OTHERS])
def test_code_of_each_library_runs_and_answers_well(name: str, tmp_path: Path) -> None:
    checks = "print(float(epsilon))" if name != "tumult" else "print(len(list(running)))"
    program = "\n".join([CODE["setup"], CODE[name], checks])
    python = interpreter(name)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY) if name in HERE else ""}
    environment["PYSPARK_PYTHON"] = str(python)
    done = subprocess.run(
        [python, "-c", program], capture_output=True, text=True, env=environment, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = float(done.stdout.split()[-1])
    assert f"{said:.2f}" in PAGE if name != "tumult" else said == 8


def test_stated_numbers_of_lines_are_those_of_the_code() -> None:
    for number, task in enumerate(TASKS, start=1):
        assert task.startswith(str(number))
        row = re.search(rf"^\| {re.escape(task)} \| ([\d |]+) \|$", PAGE, flags=re.MULTILINE)
        assert row is not None, task
        stated = [int(cell) for cell in row[1].split("|")]
        assert stated == [lines_of(name, task) for name in (*HERE, *OTHERS)], task


def lines_of(name: str, task: str) -> int:
    """Return how many lines of code stand below a task's comment, up to the next one."""
    below = CODE[name].partition(f"# {task}\n")[2]
    own = re.split(r"^# \d", below, flags=re.MULTILINE)[0]
    return len([line for line in own.splitlines() if line.strip()])
