"""Writes the results of a reproduction: CSVs of tables, figures and claims, pictures, and one page."""

from __future__ import annotations

import csv
import importlib.util
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from research.findings import Claim, Findings, Number, Result

# Colours that colour-blind readers can tell apart (Okabe, Ito), each with its own marker.
_STYLES = (
    ("#0072b2", "o"),
    ("#d55e00", "s"),
    ("#009e73", "^"),
    ("#cc79a7", "v"),
    ("#e69f00", "D"),
    ("#56b4e9", "P"),
    ("#8c564b", "X"),
    ("#7f7f7f", "<"),
    ("#000000", "*"),
)
# Series with the same style in all figures of a paper; others take the remaining styles, in order.
_PLACES = {
    "DAWA": 0,
    "QuadTree": 1,
    "DAWA as printed": 1,
    "DAWA, authors' code (not private)": 2,
    "Partition+Geometric": 3,
    "Identity": 3,
    "Privelet": 4,
    "MWEM": 5,
    "EFPA": 6,
    "P-HP": 7,
    "StructureFirst": 8,
    "optimal": 8,
}
_SETTINGS = {
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "svg.hashsalt": "dphist",
    "svg.fonttype": "none",
}
_LEGEND_ROWS_HEIGHT = 0.22


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(result: Result, folder: Path) -> list[Path]:
    """Write a figure as PNG and SVG and return the two files.

    Both axes are logarithmic. Bars are two standard errors. A cross is the number in the paper.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys(number.panel for number in result.numbers))
    series = list(dict.fromkeys(number.series for number in result.numbers))
    columns = len(panels) if len(panels) <= 3 else 2
    rows = math.ceil(len(panels) / columns)
    categories = len({number.x for number in result.numbers}) if result.kind == "points" else 0
    width = max(3.8, 0.45 * categories) if len(panels) > 1 else max(6.5, 0.9 * categories)
    legend_columns = max(1, min(len(series), int(width * columns / 2.3)))
    legend_rows = math.ceil((len(series) + 1) / legend_columns)
    with rc_context(_SETTINGS):
        figure = Figure(
            figsize=(width * columns, 3.1 * rows + 0.6 + _LEGEND_ROWS_HEIGHT * legend_rows),
            layout="constrained",
        )
        axes = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel().tolist()
        for panel, place in zip(panels, axes, strict=False):
            numbers = [number for number in result.numbers if number.panel == panel]
            (_draw_lines if result.kind == "lines" else _draw_points)(place, numbers, series)
            place.set_title(panel, loc="left")
            place.set_xlabel(result.x_label)
        for row in range(rows):
            axes[row * columns].set_ylabel(result.y_label)
        for spare in axes[len(panels) :]:
            spare.set_axis_off()
        _label(figure, axes, result, legend_columns)
        paths = [folder / f"{result.name}.{suffix}" for suffix in ("png", "svg")]
        figure.savefig(paths[0], dpi=150)
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def _label(figure: Any, axes: Sequence[Any], result: Result, legend_columns: int) -> None:
    figure.suptitle(result.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    handles: dict[str, Any] = {}
    for place in axes:
        for handle, label in zip(*place.get_legend_handles_labels(), strict=True):
            # For a series with error bars, the legend shows only the line and marker.
            handles.setdefault(label, handle[0] if isinstance(handle, tuple) else handle)
    if len(handles) > 1:
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower left", ncols=legend_columns, frameon=False
        )


def _style(series: Sequence[str], label: str) -> dict[str, Any]:
    left = [place for place in range(len(_STYLES)) if place not in {_PLACES.get(name) for name in series}]
    others = [name for name in series if name not in _PLACES]
    place = _PLACES[label] if label in _PLACES else left[others.index(label)]
    color, marker = _STYLES[place]
    return {"color": color, "marker": marker, "label": label}


def _draw_lines(place: Any, numbers: Sequence[Number], series: Sequence[str]) -> None:
    for label in series:
        own = [number for number in numbers if number.series == label]
        if own:
            place.errorbar(
                [number.x for number in own],
                [number.here for number in own],
                _two_errors(own),
                markersize=3.5 if len(own) < 30 else 0,
                linewidth=1.3,
                elinewidth=0.8,
                **_style(series, label),
            )
    place.set_xscale("log", base=10 if isinstance(numbers[0].x, float) else 2)
    place.set_yscale("log")
    spots = sorted({float(number.x) for number in numbers})
    if len(spots) <= 6:
        place.set_xticks(spots, [f"{spot:g}" for spot in spots])
        place.minorticks_off()
    _plain_short_axis(place, numbers)


def _draw_points(place: Any, numbers: Sequence[Number], series: Sequence[str]) -> None:
    names = list(dict.fromkeys(str(number.x) for number in numbers))
    for position in range(0, len(names), 2):
        place.axvspan(position - 0.5, position + 0.5, color="#f6f6f6", linewidth=0)
    printed: list[tuple[float, float]] = []
    for order, label in enumerate(series):
        own = [number for number in numbers if number.series == label]
        shift = (order - (len(series) - 1) / 2) * 0.8 / len(series)
        spots = [names.index(str(number.x)) + shift for number in own]
        place.errorbar(
            spots,
            [number.here for number in own],
            _two_errors(own),
            linestyle="none",
            markersize=4.5,
            elinewidth=0.8,
            **_style(series, label),
        )
        printed += [
            (spot, number.paper) for spot, number in zip(spots, own, strict=True) if number.paper is not None
        ]
    if printed:
        place.scatter(*zip(*printed, strict=True), marker="x", s=45, color="black", label="paper", zorder=4)
    place.set_yscale("log")
    place.set_xlim(-0.5, len(names) - 0.5)
    place.grid(axis="x", visible=False)
    crowded = len(names) > 4 or max(map(len, names)) > 12
    place.set_xticks(range(len(names)), names, rotation=35 if crowded else 0)
    if crowded:
        for tick in place.get_xticklabels():
            tick.set_horizontalalignment("right")
    _plain_short_axis(place, numbers)


def _two_errors(numbers: Sequence[Number]) -> list[float]:
    return [0.0 if math.isnan(number.standard_error) else 2 * number.standard_error for number in numbers]


def _plain_short_axis(place: Any, numbers: Sequence[Number]) -> None:
    """Write out the ticks of an axis that spans less than a power of ten."""
    values = [number.here for number in numbers]
    if max(values) < 10 * min(values):
        from matplotlib.ticker import LogLocator, StrMethodFormatter

        place.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        place.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        place.yaxis.set_minor_formatter("")


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
