"""Processes of one ``stream-app run`` are killed and frozen in a drawn order; the counts must stay exact.

python -m tests.e2e.under_faults logs --faults 60 --seed 1
python -m tests.e2e.under_faults contacts --faults 40 --seed 1
"""

from __future__ import annotations

import random
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from tests.e2e.service import Service
from tests.ending import end_all_with_this_run

_PROGRAMS = {
    "ingest": "stream_app.shell.child ingest",
    "worker": "shell.child worker",
    "redis": "redis-server",
}


def order(kinds: tuple[str, ...], faults: int, rng: random.Random) -> Iterator[tuple[int, str]]:
    """Yield the number and the name of each fault: every kind once, then drawn ones."""
    drawn = [*rng.sample(kinds, len(kinds)), *rng.choices(kinds, k=faults)][:faults]
    yield from enumerate(drawn, start=1)


def started(folder: Path) -> Service:
    """Start the service of a folder."""
    return Service(["run", "--config", "app.yaml"], folder)


def strike(service: Service, fault: str, longest_freeze_s: float, rng: random.Random) -> Service:
    """Let one fault happen, for example ``freeze worker``; return the service that runs afterwards."""
    what, _, whom = fault.partition(" ")
    if whom == "all":
        service.kill_everything()
        service.close()
        return started(service.folder)
    if what == "kill":
        service.kill_child(_PROGRAMS[whom])
    else:
        service.freeze_child(_PROGRAMS[whom], rng.uniform(0.1, longest_freeze_s))
    return service


@click.command()
@click.argument("what", type=click.Choice(["logs", "contacts"]))
@click.option("--faults", default=60, show_default=True, help="How many faults.")
@click.option("--seed", type=int, default=None, help="Which schedule; drawn and printed if not given.")
def main(what: str, faults: int, seed: int | None) -> None:
    """Run a schedule of faults on real processes."""
    from tests.e2e import contacts_under_faults, logs_under_faults  # they import this module

    seed = secrets.randbelow(10**6) if seed is None else seed
    click.echo(f"seed {seed}")
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"{what}-") as name:
        if what == "logs":
            said = logs_under_faults.run(Path(name), faults, seed, click.echo)
        else:
            said = contacts_under_faults.run(Path(name), faults, seed, 6 * faults, click.echo)
    click.echo(f"{said}; {time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    end_all_with_this_run()
    main()
