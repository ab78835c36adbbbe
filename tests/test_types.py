"""mypy finds no fault in the repository. This is a test so that mypy runs beside the other tests."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_mypy_finds_nothing() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
