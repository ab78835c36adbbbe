"""Writes the results of a reproduction: CSVs of tables, figures and claims, pictures, and one page."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from research.drawing import can_draw, draw
from research.findings import Claim, Findings, Result


def write(findings: Findings, folder: Path) -> list[Path]:
    """Write everything and return the files.

    Args: folder, created if needed; files in it of the same names are replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = [_write_numbers(result, folder) for result in findings.results]
    files.append(_write_claims(findings.claims, folder))
    figures = [result for result in findings.results if result.kind != "table"] if can_draw() else []
    for result in figures:
        files += draw(result, folder)
    page = folder / "README.md"
    page.write_text(_page(findings, figures), encoding="utf-8")
    return [page, *files]


def _write_numbers(result: Result, folder: Path) -> Path:
    header = ("panel", "series", "x", "here", "standard_error", "paper", "here_over_paper", "differs")
    rows = [
        (
            number.panel,
            number.series,
            number.x,
            _digits(number.here),
            _digits(number.standard_error),
            _digits(number.paper),
            _digits(number.here / number.paper if number.paper else None),
            number.differs,
        )
        for number in result.numbers
    ]
    return _write_csv(folder / f"{result.name}.csv", header, rows)


def _write_claims(claims: Sequence[Claim], folder: Path) -> Path:
    header = ("claim", "paper", "here", "holds", "tolerance", "differs")
    rows = [
        (
            claim.text,
            claim.paper,
            claim.here,
            "yes" if claim.holds else "no",
            claim.tolerance or "none",
            claim.differs,
        )
        for claim in claims
    ]
    return _write_csv(folder / "claims.csv", header, rows)


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def _digits(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.6g}"


def _page(findings: Findings, figures: Sequence[Result]) -> str:
    lines = [f"# {findings.title}", "", f"Measured on: {findings.data}.", "", "## What the paper says", ""]
    lines += ["| claim | paper | here | holds | what differs |", "|---|---|---|---|---|"]
    lines += [
        f"| {claim.text} | {claim.paper} | {claim.here} | {verdict} | {claim.differs} |"
        for claim in findings.claims
        for verdict in [
            ("yes" if claim.holds else "**no**") + f" ({claim.tolerance})" * bool(claim.tolerance)
        ]
    ]
    for result in findings.results:
        lines += ["", f"## {result.title}", "", f"Numbers: [{result.name}.csv]({result.name}.csv)"]
        if result.note:
            lines += ["", f"{result.note[0].upper()}{result.note[1:]}."]
        if result in figures:
            lines += ["", f"![{result.title}]({result.name}.svg)"]
        elif result.kind == "table":
            lines += ["", *_table(result)]
    return "\n".join(lines) + "\n"


def _table(result: Result) -> list[str]:
    """Show a table with ours and the paper's number in every cell, "ours (paper's)"."""
    columns = list(dict.fromkeys(number.series for number in result.numbers))
    cells: dict[str, dict[str, str]] = {}
    for number in result.numbers:
        row = f"{number.panel or number.x}"
        paper = "" if number.paper is None else f" ({number.paper:g})"
        cells.setdefault(row, {})[number.series] = f"{number.here:.4g}{paper}"
    lines = [f"| | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    lines += [
        f"| {row} | {' | '.join(found.get(column, '') for column in columns)} |"
        for row, found in cells.items()
    ]
    return [*lines, "", "In brackets what the paper prints."]
