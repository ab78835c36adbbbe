"""Runs the benchmarks of two checkouts in turns. ``python -m benchmarks.beside OTHER [NAME ...]``

OTHER is a checkout of another commit with its own environment (OTHER/.venv). The names are ``ingest``,
``exact_answers``, ``api``, ``page`` and ``web_log``; without a name all run. In each of ROUNDS rounds both
checkouts run once, and the order changes from round to round. For each figure it prints the median of the
other checkout, the median of this one, and the ratio of the two. The machine should do nothing else. Result
files stay as they were.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.ingest.topic import draw_events, hours_of, last_full_hour_us, make_topic
from deploy.kafka import broker

HERE = Path(__file__).parents[1]
NAMES = ("ingest", "exact_answers", "api", "page", "web_log")
ROUNDS = 4
EVENTS, PARTITIONS = 2_000_000, 4
# What a checkout runs to count one topic; the broker and the topic belong to this process.
COUNT = """
import json, sys
from collections import Counter
from pathlib import Path
from benchmarks.ingest import worker
folder, servers, topic, hours = json.loads(sys.argv[1])
measured = worker.measure(Path(folder), servers, topic, Counter({int(hour): n for hour, n in hours.items()}))
print(json.dumps(measured))
"""


def run(checkout: Path, *arguments: str) -> str:
    """Return what a checkout's Python printed."""
    command = [str(checkout / ".venv" / "bin" / "python"), *arguments]
    return subprocess.check_output(command, cwd=checkout, text=True)


def reported(name: str) -> Callable[[Path], dict[str, float]]:
    """Return a function that runs a benchmark in a checkout and returns the figures that it wrote."""

    def measure(checkout: Path) -> dict[str, float]:
        kept = checkout / "benchmarks" / "results" / f"{name}.json"
        before = kept.read_bytes()
        try:
            run(checkout, "-m", f"benchmarks.{name}")
            return dict(figures(json.loads(kept.read_text())))
        finally:
            kept.write_bytes(before)

    return measure


def figures(found: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield every number of a result, with its path in the result."""
    if isinstance(found, dict):
        for name, value in found.items():
            yield from figures(value, f"{path} {name}".strip())
    elif isinstance(found, int | float) and not isinstance(found, bool):
        yield path, float(found)


def in_turns(measure: Callable[[Path], dict[str, float]], other: Path) -> None:
    """Run one benchmark in both checkouts and print its figures side by side."""
    seen: dict[Path, dict[str, list[float]]] = {other: defaultdict(list), HERE: defaultdict(list)}
    for number in range(ROUNDS):
        for checkout in (other, HERE) if number % 2 else (HERE, other):
            for name, value in measure(checkout).items():
                seen[checkout][name].append(value)
    for name, values in seen[HERE].items():
        if name in seen[other]:
            before, now = statistics.median(seen[other][name]), statistics.median(values)
            ratio = f"{now / before:8.3f}" if before else f"{'':8}"
            spread = " ".join(f"{value:.4g}" for value in values)
            print(f"{name:44} {before:12.4g} {now:12.4g} {ratio}   ({spread})", flush=True)


def ingest(other: Path) -> None:
    """Let the workers of both checkouts count one topic of one broker in turns."""
    pool = draw_events(last_full_hour_us())
    with (
        tempfile.TemporaryDirectory(prefix="bench-beside-") as name,
        broker.running(Path(name) / "kafka") as servers,
    ):
        make_topic(servers, "events", PARTITIONS, pool, EVENTS)
        hours = hours_of(pool, EVENTS)

        def measure(checkout: Path) -> dict[str, float]:
            with tempfile.TemporaryDirectory(dir=name) as folder:
                argument = json.dumps([f"{folder}/worker", servers, "events", hours])
                counted = json.loads(run(checkout, "-c", COUNT, argument).splitlines()[-1])
            return {
                "events_per_s": counted["events"] / counted["seconds"],
                "cpu_s_per_million": counted["cpu_seconds"] / counted["events"] * 1e6,
                "redis_cpu_s_per_million": counted["redis_cpu_seconds"] / counted["events"] * 1e6,
                "peak_mb": counted["peak_mb"],
            }

        in_turns(measure, other)


def main() -> None:
    """Run the named benchmarks."""
    if len(sys.argv) < 2 or not (Path(sys.argv[1]) / ".venv").is_dir():
        sys.exit(f"usage: python -m benchmarks.beside OTHER [{' '.join(NAMES)}]; OTHER needs a .venv")
    other = Path(sys.argv[1]).resolve()
    for name in sys.argv[2:] or NAMES:
        print(f"== {name}: median before, median now, ratio (each run of now)", flush=True)
        if name == "ingest":
            ingest(other)
        else:
            in_turns(reported(name), other)


if __name__ == "__main__":
    main()
