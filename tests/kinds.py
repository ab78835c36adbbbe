"""What kinds of tests there are, and how long each kind takes: ``python -m tests.kinds JUNIT_FILE...``.

``make test`` and ``make test-all`` write such files into ``state/``. ``conftest.py`` marks each test in them
with its kind.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

KIND = "kind"
# The first folder or file that holds a test decides, then the test's marks.
PLACES = {
    "tests/test_documents.py": "documents",
    "tests/test_site.py": "documents",
    "tests/test_published_figures.py": "documents",
    "tests/tutorial/": "documents",
    "tests/blocks/": "documents",
    "tests/deployment/test_packages.py": "packaging",
    "tests/deployment/lowest_versions.py": "packaging",
    "tests/e2e/": "processes",
    "tests/chaos/": "processes",
    "tests/faults/test_roll_over.py": "processes",
    "tests/deployment/": "processes",
}
MARKS = {"browser": "browser", "kafka": "Kafka", "redis": "Redis"}
REST = "in process"


class Result(NamedTuple):
    """How one test ended. Attributes: file, the test's module, with dots."""

    kind: str
    file: str
    seconds: float
    passed: bool


def kind_of(node_id: str, marks: Iterable[str]) -> str:
    """Return the kind of a test."""
    names = set(marks)
    places = (kind for place, kind in PLACES.items() if node_id.startswith(place))
    return next(places, next((kind for mark, kind in MARKS.items() if mark in names), REST))


def results(file: Path) -> list[Result]:
    """Return the results that a junit file holds."""
    return [
        Result(
            next((one.get("value", REST) for one in case.iter("property") if one.get("name") == KIND), REST),
            case.get("classname", ""),
            float(case.get("time", 0)),
            case.find("failure") is None and case.find("error") is None,
        )
        for case in ElementTree.parse(file).iter("testcase")
    ]


def table(found: Sequence[Result]) -> str:
    """Return the table of ``docs/testing.md``: the kinds, the longest first."""
    kinds: dict[str, list[Result]] = defaultdict(list)
    for one in found:
        kinds[one.kind].append(one)
    seconds = {kind: sum(one.seconds for one in own) for kind, own in kinds.items()}
    total_s = sum(seconds.values())
    lines = ["| kind | tests | seconds | share | longest file |", "|---|---|---|---|---|"]
    for kind in sorted(kinds, key=lambda kind: -seconds[kind]):
        files: dict[str, float] = defaultdict(float)
        for one in kinds[kind]:
            files[one.file] += one.seconds
        longest = max(files, key=lambda file: files[file])
        lines.append(
            f"| {kind} | {len(kinds[kind]):,} | {seconds[kind]:,.0f} | {seconds[kind] / (total_s or 1):.0%} "
            f"| `{longest}`, {files[longest]:,.0f} s |"
        )
    return "\n".join([*lines, f"| all | {len(found):,} | {total_s:,.0f} | 100% | |"])


if __name__ == "__main__":
    print(table([one for file in sys.argv[1:] for one in results(Path(file))]))
