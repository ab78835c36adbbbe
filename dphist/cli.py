"""The ``dphist`` command: lists mechanisms and compares their errors on a histogram."""

import inspect
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from dphist import __version__, mechanisms
from dphist.comparison import WORKLOADS, Score, applicable, named_workload, score
from dphist.planning.report import Refusal, plan
from dphist.privacy import NEIGHBOURS_IN_WORDS


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Differentially private histograms: every mechanism of the papers behind one call."""


main.add_command(plan)


@main.command("mechanisms")
@click.argument("name", required=False)
def show_mechanisms(name: str | None) -> None:
    """List the mechanisms, or describe the mechanism NAME."""
    if name is None:
        table = Table("mechanism", "axes", "workload", "what it does", box=None, header_style="bold")
        for row in map(mechanisms.describe, mechanisms.names()):
            table.add_row(row.name, str(row.dimensions), "yes" if row.uses_workload else "", row.summary)
        Console().print(table)
        return
    try:
        row = mechanisms.describe(name)
    except ValueError as wrong:
        raise Refusal(str(wrong)) from None
    click.echo(f"{row!r}\n\n{inspect.getdoc(row.function)}")


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--workload",
    default="ranges",
    show_default=True,
    help=f"The questions: {', '.join(WORKLOADS)}, or a file with a row of half-open bin edges for each.",
)
@click.option("--epsilon", type=float, default=0.1, show_default=True, help="The privacy budget.")
@click.option("--trials", type=click.IntRange(1), default=5, show_default=True, help="Releases of each.")
@click.option("--only", help="Names of mechanisms, with commas; otherwise all that apply.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def compare(file: Path, workload: str, epsilon: float, trials: int, only: str | None, as_json: bool) -> None:
    """Run the mechanisms on the histogram in FILE and show each one's error and time.

    FILE is .npy, .npz (its array x, or its only array) or text: one number per line, or for a grid one row of
    numbers per line.
    The errors shown are exact, so the histogram must be public or synthetic: nothing here is private.
    """
    try:
        counts = _read_numbers(file)
        ranges = _read_workload(workload, counts.shape)
        names = only.split(",") if only else applicable(counts.ndim)
        scores, refused = _score_all(names, counts, ranges, epsilon, trials)
    except (ValueError, OSError) as wrong:
        raise Refusal(str(wrong)) from None
    scores.sort(key=lambda each: each.mean_error)
    if as_json:
        click.echo(json.dumps({"scores": [asdict(each) for each in scores], "not_run": refused}, indent=2))
    else:
        _print_table(scores, refused, epsilon, len(ranges), trials)


def _score_all(
    names: Sequence[str], counts: NDArray[np.int64], ranges: NDArray[np.int64], epsilon: float, trials: int
) -> tuple[list[Score], dict[str, str]]:
    """Return the mechanisms' scores, and per mechanism that refused the input its reason.

    Raises: ValueError if every mechanism refused the input.
    """
    scores: list[Score] = []
    refused: dict[str, str] = {}
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("comparing", total=len(names))
        for name in names:
            progress.update(task, description=name)
            try:
                scores.append(score(name, counts, ranges, epsilon, trials=trials, timer=time.perf_counter))
            except ValueError as wrong:
                refused[name] = str(wrong)
            progress.advance(task)
    if not scores:
        raise ValueError(next(iter(refused.values()), "no mechanism was named"))
    return scores, refused


def _print_table(
    scores: Sequence[Score], refused: dict[str, str], epsilon: float, queries: int, trials: int
) -> None:
    console = Console()
    relations = " / ".join(sorted({NEIGHBOURS_IN_WORDS[each.neighbours] for each in scores}))
    click.echo(f"error per query in counts: epsilon {epsilon:g}, {queries} queries, {trials} releases each")
    click.echo(f"epsilon is for one event {relations}")
    table = Table("mechanism", box=None, header_style="bold")
    for column in ("mean error", "+-", "to the best", "rms error", "seconds"):
        table.add_column(column, justify="right")
    least = scores[0].mean_error
    for each in scores:
        table.add_row(
            each.mechanism,
            f"{each.mean_error:,.4g}",
            f"{each.standard_error:,.2g}",
            f"{each.mean_error / least:.2f}" if least > 0 else "",
            f"{each.root_mean_square:,.4g}",
            f"{each.seconds:.3f}",
        )
    console.print(table)
    for name, reason in refused.items():
        console.print(f"{name} did not run: {reason}", markup=False)


def _read_numbers(path: Path) -> NDArray[np.int64]:
    """Read one array of whole numbers."""
    try:
        if path.suffix == ".npy":
            found = np.load(path, allow_pickle=False)
        elif path.suffix == ".npz":
            found = _only_array(path)
        else:
            comma = "," in path.read_text(encoding="utf-8")
            found = np.loadtxt(path, delimiter="," if comma else None, ndmin=1)
    except (ValueError, UnicodeDecodeError) as wrong:
        raise ValueError(f"{path} holds no numbers: {wrong}") from None
    if found.dtype.kind not in "iuf" or not np.array_equal(found, np.rint(found)):
        raise ValueError(f"{path} holds numbers that are not whole; counts and bin edges are")
    return np.asarray(found, dtype=np.int64)


def _only_array(path: Path) -> NDArray[np.int64]:
    with np.load(path, allow_pickle=False) as stored:
        names = list(stored)
        if "x" not in names and len(names) != 1:
            raise ValueError(f"its arrays are {', '.join(names)}; name one of them x")
        return np.asarray(stored["x" if "x" in names else names[0]])


def _read_workload(workload: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
    if workload in WORKLOADS:
        return named_workload(workload, shape)
    if not Path(workload).is_file():
        raise ValueError(f"workload {workload!r} is neither a file nor one of {', '.join(WORKLOADS)}")
    return _read_numbers(Path(workload))
