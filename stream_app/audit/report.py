"""The results of an audit, and its report: Markdown to read, JSON to keep, and a picture of the losses."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Measured:
    """A stated loss and the measured one. Args: low, high, bounds on the measured loss; equal if exact."""

    stated: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Check:
    """One question that was asked of one subject."""

    part: str  # of the audit: "stored", "grey box" or "black box"; "others" and "faults" for this repository
    subject: str  # a stream, or the source of several
    asked: str  # the fact that must be true, in words
    passed: bool | None  # whether it is; None: it could not be asked, and ``found`` says why
    found: str  # the result, with figures
    measured: Measured | None = None  # the loss, if the check measured one


def failed(checks: list[Check]) -> list[Check]:
    """Return the checks that failed."""
    return [check for check in checks if check.passed is False]


_WORDS = {True: "passed", False: "**failed**", None: "not asked"}
_STORED = (
    "The store, the witness, the ledgers and the configuration are separate records of the same releases. "
    "They are compared piece by piece."
)
_GREY_BOX = (
    "The real pipeline counts two made-up logs that differ by one unit. Without noise the outputs show how "
    "far each count moves. With noise that is moved against it, both logs must give the same bytes: then "
    "nothing but counts with noise is visible, and the loss is the exact sum of move / scale."
)
_BLACK_BOX = (
    "The mechanism runs many times on both logs, and the outputs are counted that the stated loss makes "
    "likeliest. The bounds hold with a probability of 1 - 1e-9. The stated loss must be kept, and the stated "
    "loss divided by 1.05 must be refuted by the same outputs."
)
_FAULTS = (
    "An audit that finds nothing proves little if it would find nothing anyway. Each of these faults was "
    "built into the code or the records of a test, and the audit had to name it."
)
_OTHERS = (
    "Programs of other people, in an environment of their own, are asked about the same composition and the "
    "same mechanisms."
)
_PARTS = {
    "stored": ("What is stored", _STORED),
    "grey box": ("Neighbouring logs", _GREY_BOX),
    "black box": ("Outputs, counted", _BLACK_BOX),
    "others": ("Independent programs", _OTHERS),
    "faults": ("Faults built in on purpose", _FAULTS),
}


def in_markdown(
    checks: Sequence[Check], command: str, made: str = "", found_with: Mapping[str, str] | None = None
) -> str:
    """Return the report as Markdown.

    Args: command, which made the report; made, the day, today unless given; found_with, the versions of the
        programs, the present ones unless given.
    """
    failures = sum(check.passed is False for check in checks)
    unasked = sum(check.passed is None for check in checks)
    verdict = "No check failed." if not failures else f"**{failures} failed.**"
    lines = [
        "# Privacy audit",
        "",
        f"{len(checks) - unasked} checks on {made or _today()}. {verdict}"
        + (f" {unasked} could not be asked; the tables say why." if unasked else ""),
        "",
        f"Made by `{command}` with {', '.join(' '.join(one) for one in (found_with or versions()).items())}.",
    ]
    for part, of_part in groupby(checks_by_part(checks), key=lambda check: check.part):
        heading, words = _PARTS[part]
        lines += ["", f"## {heading}", "", words, *_questions(list(of_part))]
    return "\n".join(lines) + "\n"


def in_json(checks: Sequence[Check], command: str) -> str:
    """Return the report as JSON."""
    report = {
        "made": _today(),
        "command": command,
        "versions": versions(),
        "failed": sum(check.passed is False for check in checks),
        "checks": [asdict(check) for check in checks],
    }
    return json.dumps(report, indent=1) + "\n"


def checks_by_part(checks: Sequence[Check]) -> list[Check]:
    """Return the checks in the order of the report's parts."""
    order = list(_PARTS)
    return sorted(checks, key=lambda check: order.index(check.part))


def versions() -> dict[str, str]:
    """Return the versions on which the findings depend."""
    packages = ("private-counts", "numpy", "scipy", "opendp", "redis")
    return {"Python": platform.python_version(), **{name: version(name) for name in packages}}


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _questions(checks: Sequence[Check]) -> Iterator[str]:
    """Yield the table of a part, a row for each finding. Subjects with the same findings share a row."""
    most = max(Counter(asked for asked, _ in {(check.asked, check.subject) for check in checks}).values())
    yield from ("", "| what | about | found |", "|---|---|---|")
    for asked, passed in dict.fromkeys((check.asked, check.passed) for check in checks):
        found: dict[str, list[str]] = {}
        for check in checks:
            if (check.asked, check.passed) == (asked, passed):
                found.setdefault(check.subject, []).append(check.found)
        subjects: dict[str, list[str]] = {}
        for subject, findings in found.items():
            subjects.setdefault(_together(findings), []).append(subject)
        question = f"{asked}: {_WORDS[passed]}"
        for text, about in subjects.items():
            named = f"all {len(about)}" if len(about) == most > 1 else ", ".join(about)
            yield f"| {_cell(question)} | {_cell(named)} | {_cell(text)} |"
            question = ""


def _together(findings: Sequence[str]) -> str:
    """Return findings as one text. Findings with the same result after a colon share it."""
    results: dict[str, list[str]] = {}
    for finding in findings:
        case, colon, result = finding.partition(": ")
        results.setdefault(colon + result, []).append(case)
    return "<br>".join("; ".join(dict.fromkeys(cases)) + result for result, cases in results.items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_COLOURS = {"grey box": "#4c72b0", "black box": "#dd8452"}
_LEGEND = {"grey box": "neighbouring logs, exact", "black box": "outputs counted, bounds"}


def draw(checks: Sequence[Check], file: Path) -> bool:
    """Draw every measured loss, in the file's format; return False if matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    measured = [check for check in checks if check.measured is not None]
    streams = list(dict.fromkeys(check.subject for check in measured))
    figure = Figure(figsize=(8, 0.6 + 0.42 * len(streams)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.axvline(1.0, color="#444444", linewidth=1)
    for check in measured:
        loss = check.measured
        assert loss is not None
        place = streams.index(check.subject) + (0.14 if check.part == "black box" else -0.14)
        ends = [loss.low / loss.stated, loss.high / loss.stated]
        mark = "o" if ends[0] == ends[1] else "|"
        axes.plot(ends, [place, place], color=_COLOURS[check.part], linewidth=3, marker=mark, markersize=5)
    for part, words in _LEGEND.items():
        axes.plot([], [], color=_COLOURS[part], linewidth=3, label=words)
    axes.set_yticks(range(len(streams)), streams)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.2)
    axes.set_xlabel("measured loss / stated loss; no mark may lie wholly to the right of 1")
    axes.legend(loc="lower left", fontsize="small", frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(file, dpi=120)
    return True
