"""How large a reproduction is, and its trials: each runs once, and is kept under the hash of its causes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dphist

# Modules that no measurement imports.
_NOT_REACHED = ("__init__.py", "__main__.py", "cli.py", "comparison.py", "epochs.py", "units.py")
_ROOMS_NOT_REACHED = ("tree/", "product/", "toeplitz/", "windows/", "planning/")
_MEASURES = ("intervals.py", "measures.py", "trials.py")

Outcome = dict[str, Any]
# (name of the measurement, trials done, trials in total)
Report = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Job:
    """One trial: a function of ``measures.py`` and all its arguments (numbers, words, arrays)."""

    measure: Callable[..., Outcome]
    given: Mapping[str, Any]

    def key(self, source: str) -> str:
        """Return the hash of the function's name, of its arguments and of ``source``."""
        digest = hashlib.sha256(f"{source} {self.measure.__name__}".encode())
        for name, value in sorted(self.given.items()):
            digest.update(name.encode())
            if isinstance(value, np.ndarray):
                digest.update(f"{value.dtype.str} {value.shape}".encode())
                digest.update(np.ascontiguousarray(value).data)
            else:
                digest.update(json.dumps(value, sort_keys=True).encode())
        return digest.hexdigest()


class Trials:
    """Runs jobs; reuses results in the file and adds new ones.

    Args: file of JSON lines, created if needed; None keeps nothing; report, called after every trial.
    """

    def __init__(self, file: Path | None = None, report: Report | None = None) -> None:
        self._file = file
        self._report = report or (lambda what, done, of: None)
        self._source = source_hash()
        self._known = _read(file) if file is not None and file.is_file() else {}
        self.ran = 0

    def run(self, what: str, jobs: Sequence[Job]) -> list[Outcome]:
        """Return the outcome of each job, in order."""
        outcomes = []
        self._report(what, 0, len(jobs))
        for done, job in enumerate(jobs, start=1):
            outcomes.append(self._outcome(job))
            self._report(what, done, len(jobs))
        return outcomes

    def _outcome(self, job: Job) -> Outcome:
        key = job.key(self._source)
        if key not in self._known:
            self.ran += 1
            self._known[key] = job.measure(**job.given)
            if self._file is not None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with self._file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"key": key, "outcome": self._known[key]}) + "\n")
        return self._known[key]


def source_hash() -> str:
    """Return the hash of all source code that a trial may run."""
    digest = hashlib.sha256()
    for name, path in reached_source().items():
        digest.update(name.encode() + path.read_bytes())
    return digest.hexdigest()


def reached_source() -> dict[str, Path]:
    """Return the files whose code a trial may run: the mechanisms and the code that measures them."""
    folder, here = Path(dphist.__file__).parent, Path(__file__).parent
    library = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.py"))}
    reached = {
        name: path
        for name, path in library.items()
        if name not in _NOT_REACHED and not name.startswith(_ROOMS_NOT_REACHED)
    }
    return reached | {f"research/{name}": here / name for name in _MEASURES}


def _read(file: Path) -> dict[str, Outcome]:
    known = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # the program ended while it wrote this trial
        known[row["key"]] = row["outcome"]
    return known
