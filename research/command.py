"""``python -m research``: run a paper's experiments again and write what was found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from research.findings import Findings
from research.trials import Report

PAPERS = ("hay2010", "dawa2014", "cdf")


@click.command()
@click.argument("paper", type=click.Choice(PAPERS))
@click.option("--quick", is_flag=True, help="Fewer bins, epsilons and trials: seconds, not for comparison.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reproduction"),
    show_default=True,
    help="The folder for results; trials that are in it are not run again.",
)
@click.option("--trials", type=click.IntRange(1), help="Trials of each configuration; otherwise the paper's.")
def reproduce(paper: str, quick: bool, out: Path, trials: int | None) -> None:
    """Make a PAPER's tables and figures again, each number beside the paper's.

    The papers' histograms are read from the folder that DPHIST_DATA names, or from data/dpbench in a folder
    beside the checkout. Without them, open data of the same shapes are used, and the results say so.
    """
    # Imported here because only this command needs them.
    from research.histograms import Setting, papers_data_here
    from research.report import can_draw, write
    from research.trials import Trials

    folder = out / (f"{paper}-quick" if quick else paper)
    try:
        if paper != "cdf" and not papers_data_here():
            click.echo("DPHIST_DATA is not set: generated histograms replace the paper's", err=True)
        with _progress() as report:
            runner = Trials(folder / "trials.jsonl", report)
            findings: Findings = import_module(f"research.{paper}").reproduce(Setting(runner, quick, trials))
        files = write(findings, folder)
    except OSError as wrong:
        raise click.ClickException(str(wrong)) from None
    _print_claims(findings)
    if not can_draw():
        click.echo("figures not drawn, numbers only: matplotlib is missing; install private-counts[plot]")
    click.echo(f"{len(files)} files, {runner.ran} trials run now; start at {files[0]}")


@contextmanager
def _progress() -> Iterator[Report]:
    """Show a progress bar with the current measurement, on a terminal."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description:>20}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=None)

        def report(what: str, done: int, of: int) -> None:
            if done == 0:
                bar.reset(task, description=what, total=of)
            bar.update(task, completed=done)

        yield report


def _print_claims(findings: Findings) -> None:
    table = Table(
        "what the paper says", "paper", "here", "holds", header_style="bold", box=None, padding=(0, 2, 1, 0)
    )
    for claim in findings.claims:
        table.add_row(escape(claim.text), claim.paper, claim.here, "yes" if claim.holds else "[bold]no[/]")
    Console().print(table)
