"""How busy deployments are that nobody has here, and how long an event waits there until it is counted.

    python -m benchmarks.scale.queueing [--simulate]

A worker reads in turns: each takes what has come of its partitions, and counts it. It pauses between turns
that bring few events (``model.read_every_s``). A turn that does not pause, with n events, takes
``turn_s + n * event_s``. Events that come at a rate r then wait for the rest of one turn and for the whole
next one, and a turn's length settles at ``turn_s / (1 - r * event_s)``: it grows without bound as the worker
becomes busy.

How long after its closing instant a bin is released is measured, not computed (docs/how-to/sizing.md).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.scale.model import read_every_s, work

RESULTS = Path(__file__).parents[1] / "results"
BUSY = 0.7  # the largest share of a worker, or of a shard of Redis, that is planned for
TURN_S = 0.02  # of a turn without events that does not pause: fetch, exchange with Redis
EVENTS = ("event", "event_with_key")


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a company runs. Args: bin_s, epoch_bins, of all streams; they close at the same instants."""

    events_per_s: float
    streams: int
    keys: int
    bin_s: float
    epoch_bins: int
    partitions: int
    workers: int = 1
    shards: int = 1

    def row(self) -> dict[str, float]:
        """Return a second of the deployment, as ``model.work`` reads measurements."""
        rate, closings = self.events_per_s, self.streams / self.bin_s
        return asdict(self) | {"events": rate, "read": rate, "seconds": 1.0, "closings": closings}

    def second(self) -> dict[str, float]:
        """Return what is done in a second, as ``model.work`` counts it."""
        return work(self.row()) | {"second": self.shards}


@dataclass(frozen=True, slots=True)
class Projection:
    """What a deployment shows. ``None``: it cannot keep up.

    Args:
        busy, redis_busy: share of the time that a worker, or a shard, works.
        lag_s: how long an event waits until it is counted, in the mean.
        recovery: how fast a backlog shrinks, as a multiple of the rate at which events come.
    """

    busy: float
    redis_busy: float
    lag_s: float | None
    recovery: float | None


def projected(costs: Mapping[str, Mapping[str, float]], one: Deployment) -> Projection:
    """Return the projection of a deployment. Args: costs, of ``model.fit``."""
    done = one.second()
    busy = _spent(costs["cpu_s"], done) / one.workers
    redis_busy = _spent(costs["redis_cpu_s"], done) / one.shards
    if busy >= 1 or redis_busy >= 1:
        return Projection(busy, redis_busy, None, None)
    turn_s = TURN_S / (1 - busy)
    lag_s = 1.5 * max(read_every_s(one.streams), turn_s)
    counting = sum(costs["cpu_s"][name] * done[name] for name in EVENTS) / one.workers
    return Projection(busy, redis_busy, lag_s, (1 - busy) / max(counting, 1e-12))


def _spent(costs: Mapping[str, float], done: Mapping[str, float]) -> float:
    return sum(cost * done[name] for name, cost in costs.items())


def needed(costs: Mapping[str, Mapping[str, float]], load: Deployment) -> Deployment:
    """Return the smallest deployment of the same load in which nothing is busier than ``BUSY``.

    A worker without a partition reads nothing, so there are at least as many partitions as workers.
    """
    one = replace(load, workers=1, shards=1)
    while True:
        found = projected(costs, one)
        if found.busy <= BUSY and found.redis_busy <= BUSY:
            return one
        workers, shards = one.workers, one.shards
        if found.busy > BUSY:
            workers = max(workers + 1, int(workers * min(found.busy / BUSY, 2)))
        if found.redis_busy > BUSY:
            shards += 1
        # A stream lives in one shard.
        if workers > 100_000 or shards > one.streams:
            raise ValueError(f"{load}: no number of workers and shards is enough for this load")
        one = replace(one, workers=workers, shards=shards, partitions=max(load.partitions, workers))


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


BINS, PARTITIONS = 1_440, 12  # of an epoch, and of the topic, of each load
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
    print(f"epochs of {BINS:,} bins; {PARTITIONS} partitions, or one for each worker")
    print("events/s  streams keys  bin   workers shards  busy  Redis  lag     recovery")
    for events_per_s, streams, keys, bin_s in LOADS:
        load = Deployment(events_per_s, streams, keys, bin_s, BINS, PARTITIONS)
        for one in (needed(costs, load), replace(load, workers=100, shards=10, partitions=100)):
            print(_line(one, projected(costs, one)))
    if asked.simulate:
        for busy in (0.1, 0.5, 0.7, 0.9):
            event_s = 2e-5
            said, found = 1.5 * TURN_S / (1 - busy), simulated(busy / event_s, event_s)
            print(f"worker {busy:.0%} busy: mean wait {said * 1e3:.1f} ms, simulated {found * 1e3:.1f} ms")


def _line(one: Deployment, found: Projection) -> str:
    load = f"{one.events_per_s:8.0e}  {one.streams:7} {one.keys:4}  {one.bin_s:3.0f} s"
    places = f"{one.workers:7} {one.shards:6}  {found.busy:4.0%}  {found.redis_busy:5.0%}"
    if found.lag_s is None or found.recovery is None:
        return f"{load}  {places}  cannot keep up"
    return f"{load}  {places}  {found.lag_s:5.2f} s  {found.recovery:5.1f}x"


if __name__ == "__main__":
    main()
