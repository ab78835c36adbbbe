"""Run schedules: ``python -m tests.simulator --schedules 10000``; replay one: ``--seed N``."""

from __future__ import annotations

import logging
import time

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulator.world import run_schedule


@click.command()
@click.option("--schedules", default=10_000, show_default=True, help="How many seeds to run.")
@click.option("--first-seed", default=0, show_default=True, help="The first of them.")
@click.option("--seed", type=int, default=None, help="Run this one schedule and print its trace.")
def main(schedules: int, first_seed: int, seed: int | None) -> None:
    """Run the service's loops against seeded schedules of faults; exit with 1 at the first broken rule."""
    logging.getLogger("stream_app").setLevel(logging.CRITICAL)  # faults are what this is about
    console = Console()
    if seed is not None:
        raise SystemExit(_replay(seed, console))
    started = time.monotonic()
    columns = (TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("schedules", total=schedules)
        for number in range(first_seed, first_seed + schedules):
            try:
                run_schedule(number)
            except AssertionError as broken:
                progress.stop()
                console.print(f"seed {number}: {broken}", markup=False, highlight=False, soft_wrap=True)
                console.print(f"replay it with: python -m tests.simulator --seed {number}", markup=False)
                raise SystemExit(1) from None
            progress.advance(bar)
    console.print(f"{schedules} schedules in {time.monotonic() - started:.0f} s, every rule held")


def _replay(seed: int, console: Console) -> int:
    """Run one schedule with its trace; return the exit status."""
    trace: list[str] = []
    try:
        report = run_schedule(seed, trace.append)
    except AssertionError as broken:
        outcome, status = f"seed {seed}: {broken}", 1
    else:
        outcome, status = f"seed {seed}: {report}", 0
    for line in (*trace, outcome):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return status


if __name__ == "__main__":
    main()
