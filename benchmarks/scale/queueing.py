"""Lag and closing delay of deployments that nobody has here, from the costs that were measured.

    python -m benchmarks.scale.queueing [--simulate]

A worker reads in turns: it takes what has come since its last turn, and counts it. A turn with n events takes
``turn_s + n * event_s``. Events that come at a rate r then wait for the rest of one turn and for the whole
next one, and the turn's length settles at ``turn_s / (1 - r * event_s)``: it grows without bound as the
worker becomes busy. When a bin closes, each worker asks for the ends of its partitions, finishes its turn,
and releases the streams that are its share one after the other, each with an exchange with Redis. A shard of
Redis serves one exchange at a time; they queue as in M/D/1.

Source: for M/D/1, Pollaczek and Khinchine's formula.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scale.model import CPU, TURN_S, work

RESULTS = Path(__file__).parents[1] / "results"
BUSY = 0.7  # the largest share of a worker, or of a shard of Redis, that is planned for
ROUND_TRIP_S = 0.002  # to Kafka or Redis in one data centre, assumed
EVENTS = ("event", "event_of_stream", "cell_of_stream", "cell_passed")
CLOSINGS = ("closing", "closing_of_key", "closing_of_key_ahead")


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a company runs. Args: bin_s, epoch_bins, of all streams; they close at the same instants."""

    events_per_s: float
    workers: int
    shards: int
    streams: int
    keys: int
    bin_s: float
    epoch_bins: int

    def second(self) -> dict[str, float]:
        """Return what is done in a second, as ``model.work`` counts it."""
        row = {name: getattr(self, name) for name in ("workers", "streams", "keys", "bin_s", "epoch_bins")}
        rate = self.events_per_s
        return work(
            row | {"events": rate, "read": rate, "seconds": 1.0, "closings": self.streams / self.bin_s}
        )


@dataclass(frozen=True, slots=True)
class Projection:
    """What a deployment shows. ``None``: it cannot keep up.

    Args:
        busy, redis_busy: share of the time that a worker, or a shard, works.
        lag_s: how long an event waits until it is counted, in the mean.
        closing_s: from a bin's closing instant until the last stream's row is released, at most in the mean.
        recovery: how fast a backlog shrinks, as a multiple of the rate at which events come.
    """

    busy: float
    redis_busy: float
    lag_s: float | None
    closing_s: float | None
    recovery: float | None


def projected(costs: Mapping[str, Mapping[str, float]], one: Deployment) -> Projection:
    """Return the projection of a deployment. Args: costs, of ``model.fit``."""
    cpu, redis, done = costs["cpu_s"], costs["redis_cpu_s"], one.second()
    events_s, closings_s = (sum(cpu[name] * done[name] for name in of) for of in (EVENTS, CLOSINGS))
    busy = sum(cpu[name] * done[name] for name in CPU) / one.workers
    redis_busy = sum(redis[name] * done[name] for name in CPU) / one.shards
    if busy >= 1 or redis_busy >= 1:
        return Projection(busy, redis_busy, None, None, None)
    turn_s = TURN_S / (1 - busy)
    redis_closing_s = sum(redis[name] * done[name] for name in CLOSINGS) * one.bin_s / one.streams
    queue_s = redis_closing_s * redis_busy / (2 * (1 - redis_busy))
    at_once_s = closings_s * one.bin_s / one.workers + redis_closing_s * one.streams / one.workers
    closing_s = ROUND_TRIP_S + turn_s + cpu["instant"] + queue_s + at_once_s
    recovery = (1 - busy) / max(events_s / one.workers, 1e-12)
    return Projection(busy, redis_busy, 1.5 * turn_s, closing_s, recovery)


def needed(costs: Mapping[str, Mapping[str, float]], one: Deployment) -> Deployment:
    """Return the smallest deployment of the same load in which nothing is busier than ``BUSY``."""
    workers = shards = 1
    while True:
        tried = Deployment(
            one.events_per_s, workers, shards, one.streams, one.keys, one.bin_s, one.epoch_bins
        )
        found = projected(costs, tried)
        if found.busy <= BUSY and found.redis_busy <= BUSY:
            return tried
        if found.busy > BUSY:
            workers = max(workers + 1, int(workers * min(found.busy / BUSY, 2)))
        if found.redis_busy > BUSY:
            shards += 1
        # A stream lives in one shard.
        if workers > 100_000 or shards > one.streams:
            raise ValueError(f"{one}: no number of workers and shards is enough for this load")


def simulated(rate: float, event_s: float, seconds: float = 200.0, seed: int = 1) -> float:
    """Return the mean wait until an event is counted, from events that come at random and turns one by one.

    Args: rate, events a second of one worker.
    """
    rng, at, waits, events = random.Random(seed), 0.0, 0.0, 0
    coming: list[float] = []
    next_s = rng.expovariate(rate)
    while at < seconds:
        while next_s <= at:
            coming.append(next_s)
            next_s += rng.expovariate(rate)
        at += TURN_S + len(coming) * event_s
        waits += sum(at - came for came in coming)
        events += len(coming)
        coming = []
    return waits / max(events, 1)


BINS = 1_440  # of an epoch of each load
LOADS: Sequence[tuple[float, int, int, float]] = (
    (1e3, 10, 1, 60.0),
    (1e4, 20, 50, 60.0),
    (1e5, 20, 50, 60.0),
    (1e5, 200, 50, 60.0),
    (1e6, 20, 50, 60.0),
    (1e6, 1_000, 1, 60.0),
    (1e7, 20, 50, 60.0),
)


def main() -> None:
    """Print the projection of each load, with as many workers as it needs, and with 100."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--simulate", action="store_true", help="compare the mean wait with a simulation")
    asked = parser.parse_args()
    measured = RESULTS / "scale.json"
    if not measured.exists():
        raise SystemExit(f"{measured} is not there: measure first, python -m benchmarks.scale")
    costs = json.loads(measured.read_text())["costs"]
    print(f"epochs of {BINS:,} bins")
    print("events/s  streams keys  bin   workers shards  busy  Redis  lag     closing  recovery")
    for events_per_s, streams, keys, bin_s in LOADS:
        load = Deployment(events_per_s, 1, 1, streams, keys, bin_s, BINS)
        for one in (needed(costs, load), Deployment(events_per_s, 100, 10, streams, keys, bin_s, BINS)):
            print(_line(one, projected(costs, one)))
    if asked.simulate:
        for busy in (0.1, 0.5, 0.7, 0.9):
            event_s = 2e-5
            said, found = 1.5 * TURN_S / (1 - busy), simulated(busy / event_s, event_s)
            print(f"worker {busy:.0%} busy: mean wait {said * 1e3:.1f} ms, simulated {found * 1e3:.1f} ms")


def _line(one: Deployment, found: Projection) -> str:
    load = f"{one.events_per_s:8.0e}  {one.streams:7} {one.keys:4}  {one.bin_s:3.0f} s"
    places = f"{one.workers:7} {one.shards:6}  {found.busy:4.0%}  {found.redis_busy:5.0%}"
    if found.lag_s is None or found.closing_s is None or found.recovery is None:
        return f"{load}  {places}  cannot keep up"
    return f"{load}  {places}  {found.lag_s:5.2f} s {found.closing_s:6.2f} s  {found.recovery:5.1f}x"


if __name__ == "__main__":
    main()
