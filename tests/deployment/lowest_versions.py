"""The lowest versions that pyproject.toml allows work together: all modules load, and some tests pass.

    pytest tests/deployment/lowest_versions.py

It is not among the tests that ``make test`` finds, because it fetches packages: three minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).parents[2]
PROJECT, LIBRARY = (
    tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    for folder in (REPOSITORY, REPOSITORY / "dphist")
)
OURS = ("private-counts", "dphist")
EXTRAS = "all,frames"
TOOLS = ("pytest", "pytest-rerunfailures", "pytest-timeout", "pytest-xdist", "hypothesis", "playwright")
TESTS = (
    "tests/stream_app/api/test_routes.py",
    "tests/stream_app/api/test_server.py",
    "tests/stream_app/client",
    "tests/stream_app/sources/test_decode.py",
    "tests/stream_app/kafka/test_tokens.py",
    "tests/stream_app/vault",
)
IMPORT_ALL = """
import importlib, pkgutil
for root in ("dphist", "stream_app"):
    for module in pkgutil.walk_packages(importlib.import_module(root).__path__, root + "."):
        if not module.name.endswith(("__main__", "stream_app.worker")):  # they run something
            importlib.import_module(module.name)
"""


def lowest(requirement: str) -> str | None:
    """Return the requirement of the lowest version that a requirement allows; None if it has no lower bound.

    >>> lowest("redis[hiredis]>=8.0,<9"), lowest("aiokafka==0.14.*"), lowest("types-pyyaml")
    ('redis==8.0', 'aiokafka==0.14.0', None)
    """
    parsed = Requirement(requirement)
    floors = [one.version for one in parsed.specifier if one.operator in {">=", "=="}]
    return f"{parsed.name}=={floors[0].replace('*', '0')}" if floors else None


def run(*command: object, cwd: Path = REPOSITORY, **environment: str) -> None:
    """Run a command. If it fails, fail the test with its output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**kept, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_lowest_versions_install_and_pass_tests(tmp_path: Path) -> None:
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *LIBRARY["dependencies"]]
    asked += [one for listed in extras.values() for one in listed]
    floors = [floor for one in asked if not one.startswith(OURS) and (floor := lowest(one))]
    assert len(floors) > 30
    (tmp_path / "floors.txt").write_text("\n".join(floors) + "\n")
    for folder in (REPOSITORY, REPOSITORY / "dphist"):
        run(sys.executable, "-m", "hatchling", "build", "-d", tmp_path, "-t", "wheel", cwd=folder)
    [wheel], [library] = tmp_path.glob("private_counts-*.whl"), tmp_path.glob("dphist-*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "environment")
    python = tmp_path / "environment" / "bin" / "python"
    tools = [one for one in extras["dev"] if re.match(r"[\w-]+", one)[0] in TOOLS]  # type: ignore[index]
    quiet = ("-q", "--disable-pip-version-check", "--prefer-binary")
    run(
        python,
        "-m",
        "pip",
        "install",
        *quiet,
        "-c",
        tmp_path / "floors.txt",
        library,
        f"{wheel}[{EXTRAS}]",
        *tools,
    )
    run(python, "-c", IMPORT_ALL, cwd=tmp_path)
    chosen = ("-q", "-p", "no:cacheprovider", "-m", "not browser and not kafka and not redis and not slow")
    run(python, "-m", "pytest", *chosen, *TESTS, PYTHONPATH=str(REPOSITORY))
