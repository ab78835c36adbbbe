"""Measures the figures of README, docs/limits.md and the comparison anew; writes commit and date beside them.

    python -m benchmarks.figures                  all of them: two hours of an idle machine
    python -m benchmarks.figures bench-api        only what these commands measure (names of ``FIGURES``)
    python -m benchmarks.figures --stamp          measure nothing, write the stamps into the pages

Beside each figure stand the commit and the day at which it was measured. Code that a figure depends on is
stated here. If it has changed by more than ``MOST_COMMITS`` commits since, the page says "older code", and
tests/test_published_figures.py refuses a page that does not.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from benchmarks.machine import ROOT, commit

MOST_COMMITS = 150
RESULTS = ROOT / "benchmarks" / "results"
STAMPS = RESULTS / "measured.json"
_STAMP = r"(?:, [0-9a-f]{8} of \d{4}-\d\d-\d\d(?:, older code)?)?"
LIVE = ("stream_app/loops", "stream_app/state", "stream_app/sources")


class Figure(NamedTuple):
    """What one command measures. Args: results, its files; paths, the code that decides the figures."""

    command: tuple[str, ...]
    results: tuple[str, ...]
    paths: tuple[str, ...]


def _python(*modules: str) -> tuple[str, ...]:
    return tuple(f"{sys.executable} -m {module}" for module in modules)


FIGURES = {
    "first-minutes": Figure(
        (f"{sys.executable} -m tests.tutorial.first_minutes --write",),
        ("first_minutes",),
        ("stream_app/shell", "deploy"),
    ),
    "bench-accuracy": Figure(
        _python("benchmarks.accuracy", "benchmarks.coverage"),
        ("accuracy", "coverage"),
        ("dphist/tree", "dphist/laws", "dphist/planning", "dphist/noise"),
    ),
    "bench-api": Figure(_python("benchmarks.api"), ("api",), ("stream_app/api", "stream_app/core/answers")),
    "bench-ingest": Figure(_python("benchmarks.ingest"), ("ingest",), LIVE),
    "bench-long": Figure(
        _python("benchmarks.long"), ("long",), ("stream_app/api", "dphist/laws", "dphist/tree")
    ),
    "many": Figure(_python("benchmarks.many"), ("many",), (*LIVE, "stream_app/wiring")),
    "many-keys": Figure(
        _python("benchmarks.many_keys"), ("many_keys",), ("stream_app/api", "dphist/product")
    ),
    "product": Figure(
        _python("benchmarks.product"), ("product",), ("stream_app/core/releases", "dphist/product")
    ),
    "web-log": Figure(_python("benchmarks.web_log"), ("web_log",), (*LIVE, "stream_app/core/counting")),
}
PAGES = {
    "README.md": "`make {command}`",
    "docs/limits.md": "`{result}.json`",
    "docs/explanation/comparison.md": "`benchmarks/results/{result}.json`",
}


class Stamp(NamedTuple):
    """Where and when a figure was measured."""

    commit: str
    date: str


def stamps() -> dict[str, Stamp]:
    """Return the stamps of all figures, by name."""
    return {name: Stamp(*one) for name, one in json.loads(STAMPS.read_text()).items()}


def commits_since(name: str, stamp: Stamp) -> int:
    """Return how many commits have changed a figure's code since. Raises: if the commit is not known here."""
    words = ["git", "rev-list", "--count", f"{stamp.commit}..HEAD", "--", *FIGURES[name].paths]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LookupError(
            f"{name} was measured at {stamp.commit}, which this clone does not have; measure anew"
        )
    return int(done.stdout)


def stamped(page: str, text: str) -> str:
    """Return a page's text with commit and date behind the name of each figure's command or file."""
    for name, stamp in stamps().items():
        said = f", {stamp.commit} of {stamp.date}"
        said += ", older code" if commits_since(name, stamp) > MOST_COMMITS else ""
        for result in FIGURES[name].results:
            token = re.escape(PAGES[page].format(command=name, result=result))
            text = re.sub(f"({token}){_STAMP}", rf"\g<1>{said}", text)
    return text


def measure(name: str) -> Stamp:
    """Run a figure's commands, one after the other; return the new stamp.

    Raises: CalledProcessError if a command fails; LookupError if a file of results stays as it was.
    """
    began_s, results = time.time(), [RESULTS / f"{one}.json" for one in FIGURES[name].results]
    for command in FIGURES[name].command:
        print(f"== {command}", flush=True)
        subprocess.run(command.split(), cwd=ROOT, check=True)
    if old := [path.name for path in results if path.stat().st_mtime < began_s]:
        raise LookupError(f"{', '.join(old)}: the command has not written it")
    print(f"== {name}: {(time.time() - began_s) / 60:.1f} minutes", flush=True)
    return Stamp(commit(), datetime.now(UTC).date().isoformat())


def measure_all(names: Sequence[str]) -> list[str]:
    """Measure figures and keep their stamps; return a line for each one that failed."""
    failed = []
    for name in names:
        try:
            found = stamps() | {name: measure(name)}
        except (subprocess.CalledProcessError, LookupError) as failure:
            failed.append(f"{name}: {failure}")
        else:
            STAMPS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return failed


def main() -> None:
    """Measure the named figures, or all; write the stamps into the pages. One that fails keeps its stamp."""
    asked, failed = sys.argv[1:] or list(FIGURES), list[str]()
    if asked != ["--stamp"]:
        if unknown := set(asked) - set(FIGURES):
            raise SystemExit(f"figures: {', '.join(unknown)} is unknown; known: {', '.join(FIGURES)}")
        if commit().endswith("+"):
            raise SystemExit("figures: the service differs from its last commit; commit it, then measure")
        failed = measure_all(asked)
    for page in PAGES:
        path = ROOT / page
        path.write_text(stamped(page, path.read_text()))
    print(
        "Figures are not copied into sentences: pytest tests/test_published_figures.py names those to change."
    )
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
