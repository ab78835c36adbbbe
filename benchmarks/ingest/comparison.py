"""The runs of the benchmark, in turns, and their summary."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.ingest import worker
from benchmarks.ingest.programs import PROGRAMS
from benchmarks.ingest.topic import delete_topic, draw_events, hours_of, last_full_hour_us, make_topic
from benchmarks.machine import commit
from deploy.kafka import broker

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "ingest.json"
NAMES = {
    "worker": "this worker, durable",
    "rdkafka_performance": "rdkafka_performance (C), no decoding",
    "consumer_perf_test": "kafka-consumer-perf-test (Java), no decoding",
    "consume": "confluent-kafka consume, no decoding",
    "getmany": "aiokafka getmany, no decoding",
    "arrow": "confluent-kafka, Arrow's JSON reader",
    "confluent": "confluent-kafka, json.loads",
    "kafka_python": "kafka-python, json.loads",
    "faust_agent": "stock Faust agent",
}
# These contenders do nothing with the records, so there are no counts to compare.
NOT_COUNTED = {"getmany", *PROGRAMS}
# The slow contenders get the first events only; what an event costs them does not depend on their number.
PART_OF_EVENTS = {"confluent": 0.4, "kafka_python": 0.2, "faust_agent": 0.03}
# kafka-python cannot read lz4 without another package; it gets the same events uncompressed.
UNCOMPRESSED = {"kafka_python"}

Measured = dict[str, float]


@dataclass(frozen=True)
class Sizes:
    """How many events, rounds and partitions are measured."""

    rounds: int
    events: int
    growing_events: Sequence[int]
    growing_partitions: Sequence[int]


FULL = Sizes(5, 2_000_000, [100_000, 1_000_000, 10_000_000], [1, 4, 16, 64])
QUICK = Sizes(2, 400_000, [100_000, 1_000_000], [1, 16])
PARTITIONS = 4


class Bench:
    """One broker and its topics, and a folder for the workers' state."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.servers = servers
        self._folder = folder
        self._pool = draw_events(last_full_hour_us())
        self._runs = 0

    @contextmanager
    def topic(self, events: int, partitions: int, codec: str = "lz4") -> Iterator[str]:
        """Yield the name of a topic with these events; it exists for the block."""
        name = f"events-{events}-{partitions}-{codec}"
        make_topic(self.servers, name, partitions, self._pool, events, codec)
        try:
            yield name
        finally:
            delete_topic(self.servers, name)

    def run(self, contender: str, topic: str, events: int, bin_s: int = 3600) -> Measured:
        """Run a contender once, and check that it counted every event."""
        if contender == "worker":
            self._runs += 1
            expected = hours_of(self._pool, events)
            return worker.measure(self._folder / f"worker{self._runs}", self.servers, topic, expected, bin_s)
        if contender in PROGRAMS:
            return PROGRAMS[contender](self.servers, topic, events)
        command = [sys.executable, "-m", "benchmarks.ingest.contenders", contender, self.servers, topic]
        done = subprocess.run(
            [*command, str(events)], capture_output=True, text=True, check=False, cwd=ROOT, timeout=600
        )
        if done.returncode:
            raise RuntimeError(f"{contender}: {done.stderr[-400:]}")
        measured: Measured = json.loads(done.stdout.splitlines()[-1])
        if contender not in NOT_COUNTED and measured["counted"] < events:
            raise AssertionError(f"{contender} counted {measured['counted']} of {events} events")
        return measured


def events_per_s(measured: Measured) -> float:
    """Return the speed of one run."""
    return measured["events"] / measured["seconds"]


def cpu_s_per_million(measured: Measured) -> float:
    """Return the processor time that the process took for a million events."""
    return measured["cpu_seconds"] / measured["events"] * 1e6


def summary(runs: Sequence[Measured]) -> dict[str, float]:
    """Return the medians of several runs."""
    numbers = {
        "events_per_s": round(statistics.median(map(events_per_s, runs))),
        "cpu_s_per_million": round(statistics.median(map(cpu_s_per_million, runs)), 3),
        "peak_mb": round(max(run["peak_mb"] for run in runs), 1),
    }
    if all("redis_cpu_seconds" in run for run in runs):
        redis = [run["redis_cpu_seconds"] / run["events"] * 1e6 for run in runs]
        numbers["redis_cpu_s_per_million"] = round(statistics.median(redis), 3)
    return numbers


def compare(bench: Bench, sizes: Sizes, show: Console) -> dict[str, object]:
    """Run all contenders in turns; return medians, and the ratios of neighbouring runs in each round."""
    runs: dict[str, list[Measured]] = defaultdict(list)
    with (
        bench.topic(sizes.events, PARTITIONS) as compressed,
        bench.topic(sizes.events, PARTITIONS, "none") as plain,
    ):
        for number in range(sizes.rounds):
            for contender in NAMES:
                events = round(sizes.events * PART_OF_EVENTS.get(contender, 1))
                topic = plain if contender in UNCOMPRESSED else compressed
                runs[contender].append(bench.run(contender, topic, events))
                speed = events_per_s(runs[contender][-1])
                show.print(f"round {number + 1}: {NAMES[contender]} {speed:,.0f} events/s", highlight=False)
    medians = {contender: summary(measured) for contender, measured in runs.items()}
    ratios = {
        f"worker_to_{other}": _median_ratio(runs["worker"], runs[other])
        for other in NAMES
        if other != "worker"
    }
    cpu = {
        f"{other}_to_worker": round(
            medians[other]["cpu_s_per_million"] / medians["worker"]["cpu_s_per_million"], 2
        )
        for other in NAMES
        if other != "worker"
    }
    return {"contenders": medians, "speed_ratios": ratios, "cpu_ratios": cpu}


def _median_ratio(runs: Sequence[Measured], others: Sequence[Measured]) -> float:
    pairs = zip(runs, others, strict=True)
    return round(statistics.median(events_per_s(run) / events_per_s(other) for run, other in pairs), 2)


def growing(bench: Bench, sizes: Sizes, show: Console) -> dict[str, dict[str, Measured]]:
    """Measure how the worker's cost grows with events, partitions and cells, beside ``getmany``'s."""
    found: dict[str, dict[str, Measured]] = {"events": {}, "partitions": {}, "cells_a_batch": {}}
    for events in sizes.growing_events:
        with bench.topic(events, 16) as topic:
            found["events"][str(events)] = _pair(bench, topic, events, show)
    for partitions in sizes.growing_partitions:
        with bench.topic(10**6, partitions) as topic:
            found["partitions"][str(partitions)] = _pair(bench, topic, 10**6, show)
    with bench.topic(10**6, PARTITIONS) as topic:
        for cells, bin_s in ((100, 3600), (1000, 360)):
            found["cells_a_batch"][str(cells)] = _pair(bench, topic, 10**6, show, bin_s)
    return found


def _pair(bench: Bench, topic: str, events: int, show: Console, bin_s: int = 3600) -> Measured:
    bare, ours = bench.run("getmany", topic, events), bench.run("worker", topic, events, bin_s)
    ratio = round(events_per_s(ours) / events_per_s(bare), 2)
    show.print(
        f"{topic}, bins of {bin_s} s: {events_per_s(ours):,.0f} events/s, {ratio} of (a)", highlight=False
    )
    return {**summary([ours]), "speed_ratio_to_getmany": ratio}


def table(result: dict[str, dict[str, Measured]], ratios: Measured) -> Table:
    """Return the comparison as text."""
    shown = Table(title="One topic, counted per hour")
    for heading in ("", "events/s", "CPU s per million", "peak MB", "worker is"):
        shown.add_column(heading, justify="left" if not heading else "right")
    for contender, name in NAMES.items():
        numbers = result["contenders"][contender]
        ratio = "" if contender == "worker" else f"{ratios[f'worker_to_{contender}']:.2f} x"
        shown.add_row(
            name,
            f"{numbers['events_per_s']:,.0f}",
            f"{numbers['cpu_s_per_million']:.2f}",
            f"{numbers['peak_mb']:.0f}",
            ratio,
        )
    return shown


def main() -> None:
    """Measure, print and keep the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="measure less, and keep nothing")
    parser.add_argument("--rounds", type=int, help="rounds of all contenders")
    parser.add_argument("--events", type=int, help="events of their topic")
    parser.add_argument("--part", choices=["all", "contenders", "growing"], default="all")
    asked, show = parser.parse_args(), Console()
    sizes = QUICK if asked.quick else FULL
    sizes = replace(sizes, rounds=asked.rounds or sizes.rounds, events=asked.events or sizes.events)
    result: dict[str, Any] = json.loads(RESULTS.read_text()) if asked.part != "all" else {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-ingest-") as name,
        broker.running(Path(name) / "kafka") as servers,
    ):
        bench = Bench(servers, Path(name))
        if asked.part != "growing":
            result |= {"sizes": vars(sizes), "load_before": round(os.getloadavg()[0], 1)}
            result |= compare(bench, sizes, show)
            show.print(table(result, result["speed_ratios"]))
        if asked.part != "contenders":
            result |= {"growing": growing(bench, sizes, show)}
    result |= {"commit": commit(), "cores": os.cpu_count(), "machine": platform.machine()}
    result |= {"python": platform.python_version()}
    if not asked.quick:
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")
