"""Run schedules: ``python -m tests.simulator --schedules 10000``; replay one: ``--seed N``.

With ``--differential 100`` instead, it compares logs that differ by one hostile record. It tries every kind
of record under 100 seeds. With ``--spools 1000``, the log is a spool: requests are repeated, the listener
dies at any system call, and the power fails.
"""

from __future__ import annotations

import faulthandler
import logging
import time
from collections.abc import Callable

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulator.differential import tried
from tests.simulator.spooled import run_spooled
from tests.simulator.world import run_schedule


@click.command()
@click.option("--schedules", default=10_000, show_default=True, help="How many seeds to run.")
@click.option("--first-seed", default=0, show_default=True, help="The first of them.")
@click.option("--seed", type=int, default=None, help="Run this one schedule and print its trace.")
@click.option("--differential", default=0, help="So many seeds of the differential test, instead.")
@click.option("--spools", default=0, help="So many seeds over a spool, instead.")
@click.option(
    "--patience", default=60.0, show_default=True, help="Seconds until a slow seed shows its stack."
)
def main(
    schedules: int, first_seed: int, seed: int | None, differential: int, spools: int, patience: float
) -> None:
    """Run the service's loops under seeded faults; exit with status 1 at the first broken rule."""
    logging.getLogger("stream_app").setLevel(logging.CRITICAL)  # faults are expected here
    console = Console()
    if seed is not None:
        raise SystemExit(_replay(seed, console))
    check: Callable[[int], object]
    check, kind = (_differs, "--differential 1 ") if differential else (run_schedule, "")
    if spools:
        check, kind = run_spooled, "--spools 1 "
    schedules = spools or differential or schedules
    started = time.monotonic()
    columns = (TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("schedules", total=schedules)
        for number in range(first_seed, first_seed + schedules):
            faulthandler.dump_traceback_later(patience, repeat=True)
            try:
                check(number)
            except AssertionError as broken:
                progress.stop()
                console.print(f"seed {number}: {broken}", markup=False, highlight=False, soft_wrap=True)
                again = f"{kind}--first-seed {number}" if kind else f"--seed {number}"
                console.print(f"replay it with: python -m tests.simulator {again}", markup=False)
                raise SystemExit(1) from None
            finally:
                faulthandler.cancel_dump_traceback_later()
            progress.advance(bar)
    console.print(f"{schedules} schedules in {time.monotonic() - started:.0f} s, every rule held")


def _differs(seed: int) -> None:
    """Check that a hostile record of any kind changes nothing but itself. Raises: AssertionError."""
    found = tried(seed)
    assert not found, "; ".join(found)


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
