"""``python -m tests.chaos --faults 200 --seed 1``: exit with 1 at the first broken rule.

With ``--freezes 100`` instead, the only faults are workers that are frozen just after closing instants.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.chaos.schedule import draw_freezes, draw_steps
from tests.chaos.world import RECOVERY_S, World
from tests.ending import end_all_with_this_run
from tests.simulator.checks import Broken

LOAD = 5  # the more records wait when a worker goes on, the more a wrong cut loses


@click.command()
@click.option("--faults", default=200, show_default=True, help="How many faults.")
@click.option("--freezes", default=0, help="So many freezes at closing instants, instead of faults.")
@click.option("--seed", type=int, default=None, help="Which schedule; drawn and printed if not given.")
@click.option("--recovery", default=RECOVERY_S, show_default=True, help="The longest recovery, in seconds.")
@click.option("--keep", is_flag=True, help="Keep the folder with all logs, also when every rule held.")
def main(faults: int, freezes: int, seed: int | None, recovery: float, keep: bool) -> None:
    """Run a schedule of faults on real processes."""
    logging.disable(logging.CRITICAL)
    console, started = Console(), time.monotonic()
    seed = secrets.randbelow(10**6) if seed is None else seed
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    console.print(f"seed {seed}, logs in {folder}", highlight=False, soft_wrap=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        steps = list(draw_freezes(seed, freezes) if freezes else draw_steps(seed, faults))
        bar = progress.add_task("starting", total=len(steps))

        def tell(line: str) -> None:
            progress.update(bar, description=line, advance=1 if line.startswith("fault ") else 0)
            if not console.is_terminal:
                console.print(line, highlight=False, soft_wrap=True)

        try:
            summary = World(folder, seed, steps, tell, LOAD if freezes else 1, recovery).run()
        except Broken as broken:
            progress.stop()
            console.print(f"seed {seed}: {broken}", markup=False, highlight=False, soft_wrap=True)
            raise SystemExit(1) from None
    console.print(f"{summary}; {time.monotonic() - started:.0f} s", highlight=False, soft_wrap=True)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    end_all_with_this_run()
    main()
