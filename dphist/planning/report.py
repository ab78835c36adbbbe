"""``dphist plan``: compare candidates as a table, a figure or JSON, before anything is counted."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from dphist.arrays import FloatArray
from dphist.planning.candidates import RELEASES, Candidate, candidates, least_epsilon
from dphist.privacy import Neighbours, exact
from dphist.tree.design import Release
from dphist.workloads import PREFIX, Workload

# Points of a plotted line; each is a mean over a run of bins, because single errors jump too much.
_POINTS = 64
_CAPTION = (
    "errors: roots of mean squared errors, in events, predicted exactly; worst: of any running count; "
    "draws: noise drawn while a bin closes, mean/most (ahead: before the epoch)"
)
_WIDEST = 1_000  # columns; no table of ours needs as many


class Refusal(click.ClickException):
    """An error that somebody must correct: one line and exit status 2, as for a wrong option."""

    exit_code = 2


def candidate_table(rows: Sequence[Candidate], title: str, workload: Workload, chosen: str = "") -> Table:
    """Return the comparison table, with the row named ``chosen`` highlighted."""
    table = Table(
        title=title,
        title_justify="left",
        caption=_CAPTION,
        caption_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
    )
    # On 80 columns, names and trees wrap between words; numbers never wrap.
    table.add_column("way to count", min_width=12)
    table.add_column("tree", min_width=10)
    # The running count has its own column; any other workload gets a second one.
    other = [] if workload == PREFIX else [str(workload)]
    for heading in (*other, "running count"):
        table.add_column(heading, justify="right", max_width=8, overflow="fold")
    for heading in ("worst", "draws", "an epoch", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            row.tree,
            *(["" if row.error is None else f"{row.error:,.2f}"] if other else []),
            f"{row.running_error:,.2f}",
            f"{row.worst_error:,.2f}",
            f"{row.mean_draws:,.2f}/{row.most_draws:,}" if row.most_draws else "ahead",
            f"{row.draws:,}",
            bytes_in_words(row.memory),
            style="bold" if row.name == chosen else "",
        )
    for column in table.columns:
        if column.no_wrap:  # or the last ones would be cut off
            column.min_width = max(len(str(cell)) for cell in (column.header, *column.cells))
    return table


def print_whole(table: Table) -> None:
    """Print a table. If the terminal is too narrow for its numbers, the table is wider than the terminal."""
    console = Console()
    needed = console.measure(table, options=console.options.update(max_width=_WIDEST))
    (console if needed.minimum <= console.width else Console(width=needed.maximum)).print(table)


def candidate_figure(rows: Sequence[Candidate], path: Path, title: str) -> None:
    """Plot each candidate's standard error of the running count; plans are highlighted.

    Raises: Refusal without matplotlib, or if the file cannot be written.
    """
    with _figure_file(path) as figure:
        axes = figure.subplots()
        for row in sorted(rows, key=lambda row: -row.running_error):
            ends, errors = _outline(row.variances)
            planned = row.name.startswith("planned")
            label = f"{row.name} ({row.running_error:,.1f})"
            axes.plot(ends, errors, label=label, lw=2.2 if planned else 1.0, ls="-" if planned else "--")
        axes.set_yscale("log")
        for axis in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            axis(lambda value, _: f"{value:,.3g}")
        axes.set_xlabel("bins since the epoch began")
        axes.set_ylabel("standard error of the running count (events)")
        axes.set_title(title, loc="left")
        axes.grid(alpha=0.3)
        figure.legend(loc="outside right upper", fontsize="small", title="root mean square over the epoch")


@contextmanager
def _figure_file(path: Path) -> Iterator[Any]:
    """Yield a matplotlib figure to draw on, then write the figure to the file that ``--plot`` names."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Refusal('--plot needs matplotlib; pip install "dphist[plot]"') from None
    figure = Figure(figsize=(10, 5), layout="constrained")
    yield figure
    try:
        figure.savefig(path, dpi=150)
    except (ValueError, OSError) as wrong:
        raise Refusal(f"--plot {path}: {wrong}") from None


@click.command("plan")
@click.option("--horizon", type=click.IntRange(1), required=True, help="Bins of an epoch.")
@click.option("--epsilon", default="1", show_default=True, help="The privacy budget of an epoch.")
@click.option(
    "--workload",
    "questions",
    default="prefix",
    show_default=True,
    help='prefix, bins, sliding(24), ranges, or weights: "prefix: 0.7, bins: 0.3".',
)
@click.option("--release", type=click.Choice(RELEASES), default="anticipating", show_default=True)
@click.option("--neighbours", type=click.Choice(["add_remove", "substitute"]), default="add_remove")
@click.option("--max-events", type=click.IntRange(1), default=1, help="Events of one unit in an epoch.")
@click.option("--width", type=click.IntRange(1), default=1, help="Cells of a bin.")
@click.option("--target-rmse", type=float, help="Show the smallest epsilon that reaches this error instead.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the error over time here."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def plan(
    horizon: int,
    epsilon: str,
    questions: str,
    release: Release,
    neighbours: Neighbours,
    max_events: int,
    width: int,
    target_rmse: float | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Compare the ways to count a stream of HORIZON bins: predicted error, noise draws, memory.

    \b
    dphist plan --horizon 8760
    dphist plan --horizon 8760 --workload "sliding(24)" --target-rmse 20
    """
    try:
        workload = read_workload(questions)
        budget = exact(epsilon)
        if target_rmse is not None:
            budget = least_epsilon(horizon, target_rmse, workload, release, neighbours, max_events)
        rows = list(candidates(horizon, budget, workload, neighbours, max_events, width))
    except ValueError as wrong:
        raise Refusal(str(wrong)) from None
    title = f"{horizon:,} bins, epsilon {in_decimals(budget)}, planned for {workload}"
    if as_json:
        click.echo(
            json.dumps({"epsilon": str(budget), "candidates": [as_fields(row) for row in rows]}, indent=2)
        )
    else:
        if target_rmse is not None:
            click.echo(
                f"epsilon {in_decimals(budget)} is the smallest with an error of at most {target_rmse:g}"
            )
        print_whole(candidate_table(rows, title, workload, f"planned, {release}"))
    if plot is not None:
        candidate_figure(rows, plot, title)


def read_workload(text: str) -> Workload:
    """Read a workload from a command line: a kind, or "kind: weight, kind: weight".

    Raises: ValueError as ``Workload.of``.
    """
    if ":" not in text:
        return Workload.of(text.strip())
    pairs = [pair.split(":", 1) for pair in text.strip("{} ").split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f'workload: {text!r} is not read; write for example "prefix: 0.7, bins: 0.3"')
    return Workload.of({kind.strip(): weight.strip() for kind, weight in pairs})


def as_fields(row: Candidate) -> dict[str, object]:
    """Return a candidate as JSON values."""
    return {
        "name": row.name,
        "tree": row.tree,
        "error": row.error,
        "running_error": row.running_error,
        "worst_running_error": row.worst_error,
        "draws_an_epoch": row.draws,
        "draws_a_bin_mean": row.mean_draws,
        "draws_a_bin_most": row.most_draws,
        "memory_bytes": row.memory,
    }


def in_decimals(number: Fraction) -> str:
    """Return a fraction as a decimal number."""
    return str(number) if number.denominator == 1 else f"{float(number):g}"


def _outline(variances: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the points of a plotted line: each is the root of the mean variance over a run of bins."""
    stretch = -(-len(variances) // _POINTS)
    starts = np.arange(0, len(variances), stretch)
    lengths = np.minimum(stretch, len(variances) - starts)
    return starts + lengths / 2.0, np.sqrt(np.add.reduceat(variances, starts) / lengths)


def bytes_in_words(count: float) -> str:
    """Return a number of bytes with its unit.

    >>> bytes_in_words(17), bytes_in_words(23_800), bytes_in_words(2_500_000_000)
    ('17 B', '23.8 kB', '2.5 GB')
    """
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} GB"
