"""Upgrade from an older build and roll back, over running streams; ``python -m tests.upgrade``.

A real broker and a real Redis run. The worker of an older build counts five streams: two without noise, one
with, one with keys, one with caps per user. This build's worker takes its place; then the older build comes
back, as docs/how-to/upgrade.md says. Events are sent all the while. No row may ever have two values, no bin
may be in two rows, and the streams without noise must equal what was sent, bin by bin.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.ending import end_all_with_this_run
from tests.upgrade.builds import REPOSITORY, Build, checked_out, current, with_environment
from tests.upgrade.deployment import EXACT, STREAMS, USERS, Broken, Deployment

# The last build before the stored format had a number, before one with format 2, and the last one that
# began streams with a share of epsilon per node.
BEFORE_NUMBERS, FORMAT_2, SHARES_PER_NODE = "5a93cb9b", "f81f34e5", "6ef2e243"
SECONDS = 20  # visible bins of each build


def upgrade_and_back(folder: Path, old: Build) -> None:
    """The older build, this build, and the older build again over a restored store."""
    deployment = Deployment(folder)
    try:
        deployment.run(old, SECONDS)
        backup = deployment.back_up()
        deployment.end_worker()
        say("the older build has counted", deployment)
        deployment.run(current(), SECONDS)
        deployment.end_worker()
        say("this build went on", deployment)
        for name in STREAMS:
            if deployment.epochs(name) != [0]:
                raise Broken(f"{name}: the upgrade ended an epoch")
        if any(missing for _, missing in deployment.check_counts().values()):
            raise Broken("the upgrade lost bins")
        deployment.restore(backup)
        deployment.run(old, SECONDS)
        deployment.end_worker()
        say("the older build went on over the backup", deployment)
        for name in STREAMS:
            if len(deployment.epochs(name)) != 2:
                raise Broken(f"{name}: the restored store did not end its epoch")
    finally:
        deployment.close()


def back_without_backup(folder: Path, old: Build) -> None:
    """The older build again over this build's store: which streams does it go on with?"""
    streams = (*EXACT, "noisy", "keyed")  # without users the stored format stays 1
    deployment = Deployment(folder, streams)
    try:
        deployment.run(current(), SECONDS)
        deployment.end_worker()
        deployment.run(old, SECONDS)
        deployment.end_worker()
        say("without streams that protect users, the older build went on over this build's store", deployment)
    finally:
        deployment.close()


def rebuilt(folder: Path) -> None:
    """This build loses its store; a command puts back what readers saw, and the worker goes on."""
    deployment = Deployment(folder)
    try:
        deployment.run(current(), SECONDS)
        deployment.end_worker()
        before = deployment.visible()
        deployment.lose_store()
        status, line = current().ended(folder, "rebuild")
        assert status == 0, line
        # A row that was in its witness and not yet visible when the worker ended may be visible now, too.
        after = deployment.visible()
        lacking = {name: (before[name], after[name]) for name in before if after[name] < before[name]}
        assert not lacking, f"not all of it is back; visible rows before and after: {lacking}"
        deployment.look()
        deployment.run(current(), SECONDS)
        deployment.end_worker()
        say("this build went on after it had lost its store, which was rebuilt", deployment)
    finally:
        deployment.close()


def refusals(folder: Path, old: Build, format_2: Build) -> None:
    """What older builds do with streams that protect users, whose stored format they do not know."""
    deployment = Deployment(folder, (USERS,))
    try:
        deployment.run(current(), SECONDS)
        deployment.end_worker()
        print(f"a build that knows format 2, over format 3: {format_2.refused(folder, 'worker')}")
        status, _ = old.ended(folder, "worker")
        assert status, "a build that cannot read users' records released bins without them"
        print(f"a build from before numbers, over format 3: ends with status {status} at the first bin")
        deployment.run(current(), SECONDS)
        deployment.end_worker()
        assert deployment.epochs(USERS) == [0], "the older build has ended the epoch"
        say("this build went on after it", deployment)
    finally:
        deployment.close()


def shares_per_node(folder: Path, older: Build) -> None:
    """A stream that began with a share of epsilon per node."""
    deployment = Deployment(folder, ("noisy",))
    try:
        deployment.run(older, SECONDS)
        deployment.end_worker()
        print(f"a stream with a share per node: {current().refused(folder, 'worker')}")
    finally:
        deployment.close()


def say(what: str, deployment: Deployment) -> None:
    """Print what was reached."""
    counts = deployment.check_counts()
    ended = {name: deployment.epochs(name) for name in deployment.streams}
    print(
        f"{what}: {len(deployment.seen)} rows, each with one value; bins and missing bins of the streams "
        f"without noise {json.dumps(counts)}; epochs {json.dumps(ended)}",
        flush=True,
    )


def main() -> int:
    """Run all parts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--builds", type=Path, default=REPOSITORY / "state" / "builds")
    parser.add_argument(
        "parts", nargs="*", help="upgrade, back, rebuilt, refusals, shares; all if none is named"
    )
    asked = parser.parse_args()
    asked.builds.mkdir(parents=True, exist_ok=True)
    old = with_environment(BEFORE_NUMBERS, asked.builds / BEFORE_NUMBERS)
    format_2 = Build(checked_out(FORMAT_2, asked.builds / FORMAT_2), current().python)
    shares = Build(checked_out(SHARES_PER_NODE, asked.builds / SHARES_PER_NODE), old.python)
    parts = {
        "upgrade": lambda at: upgrade_and_back(at, old),
        "back": lambda at: back_without_backup(at, old),
        "rebuilt": rebuilt,
        "refusals": lambda at: refusals(at, old, format_2),
        "shares": lambda at: shares_per_node(at, shares),
    }
    began = time.monotonic()
    for name in asked.parts or parts:
        with tempfile.TemporaryDirectory(prefix="upgrade-") as folder:
            try:
                parts[name](Path(folder))
            except (AssertionError, subprocess.TimeoutExpired) as failure:
                print(f"{name}: broken: {failure}", file=sys.stderr)
                return 1
    print(f"{time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    end_all_with_this_run()
    sys.exit(main())
