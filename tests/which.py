"""Which tests ``make test`` runs: all short ones, and the long ones of packages that have changed.

A plugin: ``pytest -p tests.which``. Without it pytest runs every test that it is given (``make test-all``).
``long_tests.toml`` names the long tests, the seconds that each takes, and the packages that each protects.
A package has changed if a file in it differs from the commit at which ``make test-all`` last passed
(``docs/testing.md``), or from the commit BASE. Of the long tests those run whose packages have changed most,
for at most ``BUDGET_S`` seconds. The last lines of the run name the others. Property tests try fewer
examples.
"""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from tests.examples import SHORT

REPOSITORY = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("long_tests.toml")
LAST_RUN = REPOSITORY / "docs" / "testing.md"
BUDGET_S = 60.0


@dataclass(frozen=True)
class Long:
    """A file of tests, one function of it, or one of its cases, as pytest names them.

    Attributes: protects, folders and files of the tree.
    """

    tests: str
    seconds: float
    protects: tuple[str, ...]

    @property
    def file(self) -> str:
        """The file that holds the tests."""
        return self.tests.partition("::")[0]

    def holds(self, node_id: str) -> bool:
        """Return whether a test belongs to these tests."""
        return node_id.startswith(self.tests) and node_id[len(self.tests) :][:1] in ("", ":", "[")

    def changed_lines(self, changes: dict[str, int]) -> int:
        """Return how many lines have changed in what these tests protect, and in their own file."""
        places = (*self.protects, self.file)
        return sum(
            lines
            for path, lines in changes.items()
            if any(path == place or path.startswith(f"{place}/") for place in places)
        )


def long_tests(table: Path = TABLE) -> list[Long]:
    """Return the long tests of the table."""
    rows = tomllib.loads(table.read_text())
    return [Long(tests, float(row["seconds"]), tuple(row["protects"])) for tests, row in rows.items()]


def chosen(long: list[Long], changes: dict[str, int], budget_s: float = BUDGET_S) -> list[Long]:
    """Return the long tests that a change needs most, as many as the budget allows."""
    needed = [(-one.changed_lines(changes) / one.seconds, one.tests, one) for one in long]
    taken, left_s = list[Long](), budget_s
    for weight, _, one in sorted(needed):
        if weight < 0 and one.seconds <= left_s:
            taken.append(one)
            left_s -= one.seconds
    return taken


def last_full_run(page: Path = LAST_RUN) -> str:
    """Return the commit at which ``make test-all`` last passed."""
    found = re.search(r"`make test-all` last passed .*?`([0-9a-f]{8,40})`", page.read_text())
    assert found, f"{page} does not say at which commit `make test-all` last passed"
    return found[1]


def changes_since(base: str) -> dict[str, int]:
    """Return how many lines each file has changed since a commit, with what is not committed."""
    counted = _git("diff", "--numstat", "--no-renames", base)
    found = {}
    for line in counted.splitlines():
        added, removed, path = line.split("\t")
        found[path] = int(added) + int(removed) if added != "-" else 1
    for path in _git("ls-files", "--others", "--exclude-standard").splitlines():
        if (REPOSITORY / path).is_file():  # not a link to a folder
            found[path] = (REPOSITORY / path).read_bytes().count(b"\n") + 1
    return found


def _git(*command: str) -> str:
    return subprocess.run(
        ("git", *command), cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout


@cache
def _left_out() -> tuple[list[Long], list[Long]]:
    """Return the long tests that run, and those that do not. Without git all of them run."""
    long = long_tests()
    try:
        changes = changes_since(os.environ.get("BASE") or last_full_run())
    except (OSError, subprocess.CalledProcessError):
        return long, []
    run = chosen(long, changes)
    return run, [one for one in long if one not in run]


def pytest_configure() -> None:
    """Let property tests try fewer examples."""
    settings.load_profile(SHORT)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Do not even import a file whose tests do not run."""
    if collection_path.suffix != ".py" or not collection_path.is_relative_to(REPOSITORY):
        return None
    path = collection_path.relative_to(REPOSITORY).as_posix()
    return any(one.tests == path for one in _left_out()[1]) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out single functions."""
    functions = defaultdict(list)
    for one in _left_out()[1]:
        functions[one.file].append(one)
    out = [
        item
        for item in items
        if any(one.holds(item.nodeid) for one in functions.get(item.nodeid.partition("::")[0], ()))
    ]
    if out:
        config.hook.pytest_deselected(items=out)
        ids = {item.nodeid for item in out}
        items[:] = [item for item in items if item.nodeid not in ids]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which long tests have run because of a change, and that others have not."""
    run, others = _left_out()
    minutes = sum(one.seconds for one in others) / 60
    terminalreporter.section("long tests")
    terminalreporter.line(f"of packages that changed: {', '.join(one.tests for one in run) or 'none'}")
    terminalreporter.line(
        f"not run: {len(others)} files and functions, {minutes:.0f} minutes; make test-all runs them"
    )
