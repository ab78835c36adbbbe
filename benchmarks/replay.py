"""The year of flights through the whole service: file, store with an fsync before every reply, release.

    python -m benchmarks.replay            the replay compared with a plain recount; JSON under results/
    python -m benchmarks.replay --profile  also where its time goes

The replay is compared with a recount of the same file in a loop of plain Python, on the same machine just
before. Besides counting, the replay decodes, orders, stores every step durably, draws noise, releases and
witnesses 8,760 bins.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import pstats
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from stream_app.config import Settings, load_text
from stream_app.shell.flights import write_flights
from stream_app.wiring.workers import run_worker

RESULTS = Path(__file__).parent / "results" / "replay.json"
RUNS = 3
CONFIGURATION = """
redis: {url: "embedded:./redis"}
streams:
  departures:
    source: {file: ../flights.ndjson, replay: {from: 2013-01-01T05:00:00Z, to: 2014-01-01T05:00:00Z}}
    time: {field: scheduled, format: iso8601, bin: 1h, epoch: 365d}
    privacy: {epsilon: 1.0}
"""


def settings_in(directory: Path) -> Settings:
    """Return the settings of a replay with its state in this directory."""
    directory.mkdir()
    return load_text(CONFIGURATION, directory / "replay.yaml", {})


def replay(directory: Path) -> None:
    """Replay the year into a new directory."""
    asyncio.run(run_worker(settings_in(directory)))


def recount(file: Path) -> Counter[str]:
    """Count the events per hour in plain Python."""
    with file.open() as lines:
        return Counter(json.loads(line)["scheduled"][:13] for line in lines)


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start_s = time.perf_counter()
    work()
    return time.perf_counter() - start_s


def main() -> None:
    """Measure both in one run and write the result."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        events = write_flights(directory / "flights.ndjson")
        pairs = []
        for run in range(RUNS):
            plain_s = seconds(lambda: recount(directory / "flights.ndjson"))
            replay_s = seconds(lambda at=directory / f"run{run}": replay(at))  # type: ignore[misc]
            pairs.append((replay_s, plain_s))
            print(f"replay {replay_s:.2f} s, plain recount {plain_s:.2f} s, ratio {replay_s / plain_s:.2f}")
        replay_s, plain_s = min(pairs)
        result = {
            "events": events,
            "bins": 8_760,
            "replay_s": round(replay_s, 2),
            "plain_recount_s": round(plain_s, 2),
            "ratio": round(replay_s / plain_s, 2),
            "under_15_s": replay_s < 15,
        }
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")
        print(json.dumps(result))
        if "--profile" in sys.argv:
            profile = cProfile.Profile()
            profile.runcall(replay, directory / "profiled")
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
