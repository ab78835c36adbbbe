"""``make test-all`` in parts: run them over several nights, and write down that all passed at one commit.

    python -m tests.full_run                    all parts that have not passed at this commit
    python -m tests.full_run --minutes 240      begin no part that would end later, by its last time
    python -m tests.full_run --parts simulate,chaos
    python -m tests.full_run --record           write the result into docs/testing.md, if all parts passed

Results are kept in ``state/full_run/``. A change that is not committed belongs to no commit, so the run
refuses to begin.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from tests.kinds import results
from tests.which import LAST_RUN, REPOSITORY

FOLDER = REPOSITORY / "state" / "full_run"
PROCESSES = ("tests/e2e", "tests/chaos", "tests/faults", "tests/deployment", "tests/tutorial", "tests/blocks")
PYTEST = (sys.executable, "-m", "pytest", "-n", "4", "--dist", "worksteal", "--durations", "15")
MAKE = ("make", "--no-print-directory")
# Together the first two parts run every test of testpaths. The last column is what a part takes on two cores
# at its first run, in minutes.
PARTS: dict[str, tuple[tuple[str, ...], float]] = {
    "types": ((*MAKE, "check-types"), 3),
    "tests": ((*PYTEST, *(f"--ignore={folder}" for folder in PROCESSES)), 40),
    "processes": ((*PYTEST, *PROCESSES), 45),
    "extra": ((*PYTEST[:3], "tests/small_benchmarks.py", "tests/deployment/lowest_versions.py"), 15),
    "simulate": ((*MAKE, "simulate"), 60),
    "chaos": ((*MAKE, "chaos"), 90),
    "smoke": ((*MAKE, "smoke"), 6),
    "upgrade": ((*MAKE, "upgrade"), 12),
    "mirror": ((*MAKE, "mirror"), 4),
    "engines": ((*MAKE, "engines"), 4),
}


@dataclass(frozen=True)
class Result:
    """How a part ended last. Attributes: tests, of pytest; 0 for other programs."""

    commit: str
    passed: bool
    tests: int
    seconds: float
    date: str


def last_result(part: str) -> Result | None:
    """Return how a part ended last, or None if it never ran here."""
    file = FOLDER / f"{part}.json"
    return Result(**json.loads(file.read_text())) if file.exists() else None


def passed_at(commit: str) -> dict[str, Result]:
    """Return the results of the parts that passed last at a commit."""
    last = {part: last_result(part) for part in PARTS}
    return {
        part: one for part, one in last.items() if one is not None and one.passed and one.commit == commit
    }


def run(part: str, commit: str) -> Result:
    """Run a part, and keep its result."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    command, _ = PARTS[part]
    junit = FOLDER / f"{part}.xml"
    junit.unlink(missing_ok=True)
    if "pytest" in command:
        command = (*command, f"--junitxml={junit}")
    began_s = time.monotonic()
    passed = subprocess.run(command, cwd=REPOSITORY, check=False).returncode == 0
    tests = len(results(junit)) if junit.exists() else 0
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    ended = Result(commit, passed, tests, round(time.monotonic() - began_s, 1), today)
    (FOLDER / f"{part}.json").write_text(json.dumps(asdict(ended)))
    return ended


def sentence(ended: Sequence[Result]) -> str:
    """Return what ``docs/testing.md`` says about a run whose parts all passed."""
    date = datetime.fromisoformat(max(one.date for one in ended))
    tests, minutes = sum(one.tests for one in ended), sum(one.seconds for one in ended) / 60
    return (
        f"`make test-all` last passed on {date.day} {date:%B %Y} at `{ended[0].commit}` "
        f"({tests:,} tests; all parts took {minutes:,.0f} minutes)."
    )


def record(commit: str, page: Path = LAST_RUN) -> str:
    """Write the result into the page; return the sentence. Raises: ClickException if a part is missing."""
    ended = passed_at(commit)
    if missing := ", ".join(part for part in PARTS if part not in ended):
        raise click.ClickException(f"not passed at {commit}: {missing}; run python -m tests.full_run")
    text, changed = re.subn(
        r"`make test-all` last passed on .*", lambda _: sentence([*ended.values()]), page.read_text(), count=1
    )
    if not changed:
        raise click.ClickException(f"{page}: no line begins with `make test-all` last passed on")
    page.write_text(text)
    return sentence([*ended.values()])


def committed() -> str:
    """Return the commit that is checked out. Raises: ClickException if something is not committed."""
    asked = ("git", "status", "--porcelain"), ("git", "rev-parse", "--short=8", "HEAD")
    changed, commit = (
        subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()
        for command in asked
    )
    if changed:
        raise click.ClickException(f"commit or stash first, a result belongs to a commit:\n{changed}")
    return commit


@click.command()
@click.option("--parts", default="", help=f"Some of {', '.join(PARTS)}; without it, those still to pass.")
@click.option("--minutes", default=float("inf"), help="Begin no part that would end later than this.")
@click.option("--record", "write", is_flag=True, help="Write the result into docs/testing.md.")
def main(parts: str, minutes: float, write: bool) -> None:
    """Run the parts of make test-all, one after the other."""
    commit = committed()
    if write:
        click.echo(record(commit))
        return
    if unknown := [part for part in parts.split(",") if part and part not in PARTS]:
        raise click.BadParameter(f"--parts {','.join(unknown)}: use some of {', '.join(PARTS)}")
    asked = parts.split(",") if parts else [part for part in PARTS if part not in passed_at(commit)]
    began_s, failed = time.monotonic(), []
    for part in asked:
        before = last_result(part)
        takes_s = before.seconds if before is not None else 60 * PARTS[part][1]
        if time.monotonic() - began_s + takes_s > 60 * minutes:
            click.echo(f"{part}: left for another night, it takes {takes_s / 60:.0f} minutes")
            continue
        click.echo(f"{part}: begins", err=True)
        ended = run(part, commit)
        click.echo(f"{part}: {'passed' if ended.passed else 'FAILED'} in {ended.seconds / 60:.0f} minutes")
        failed += [] if ended.passed else [part]
    if failed:
        raise click.ClickException(f"failed at {commit}: {', '.join(failed)}")
    if len(passed_at(commit)) == len(PARTS):
        click.echo(f"all parts have passed at {commit}; python -m tests.full_run --record writes it down")


if __name__ == "__main__":
    main()
