"""What a load needs: workers, shards of Redis, memory, from the costs that were measured.

python -m benchmarks.scale.sizing        print a table of typical loads

python -m benchmarks.scale.sizing EVENTS_PER_S STREAMS KEYS BIN_S EPOCH_BINS DAYS PARTITIONS
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from benchmarks.scale.model import held
from benchmarks.scale.queueing import RESULTS, Deployment, Projection, needed, projected

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Load:
    """What comes in.

    Args: bin_s, epoch_bins, of all streams; days, of keeping releases after their epoch;
    partitions, of the topic.
    """

    events_per_s: float
    streams: int
    keys: int
    bin_s: float
    epoch_bins: int
    days: float
    partitions: int = 12


@dataclass(frozen=True, slots=True)
class Size:
    """The smallest deployment for a load. Args: worker_mb, of each; redis_mb, at most, of all shards."""

    deployment: Deployment
    projection: Projection
    worker_mb: float
    redis_mb: float


COLUMNS = (
    *("events/s", "streams", "keys", "bin", "epoch", "kept", "partitions"),
    *("workers", "worker busy", "worker memory", "shards", "shard busy", "Redis memory"),
)
LOADS = (
    Load(100, 1, 1, 60, 10_080, 365),
    Load(1_000, 10, 20, 60, 10_080, 365),
    Load(2_000, 50, 100, 60, 43_200, 365),
    Load(10_000, 20, 50, 60, 10_080, 365),
    Load(100_000, 20, 50, 60, 10_080, 365),
    Load(1_000_000, 20, 50, 60, 10_080, 365),
    Load(1_000, 1_000, 1, 60, 1_440, 90),
    Load(1_000, 1_000, 1, 60, 1_440, 90, 2),
    Load(1_000, 1, 100_000, 3_600, 720, 365),
    Load(1_000, 20, 1, 1, 3_600, 7),
)


def sized(costs: Mapping[str, Mapping[str, float]], load: Load) -> Size:
    """Return the smallest deployment for a load. Args: costs, of ``model.fit``.

    Raises: ValueError if no number of workers is enough.
    """
    given = (load.events_per_s, load.streams, load.keys, load.bin_s, load.epoch_bins, load.partitions)
    one = needed(costs, Deployment(*given))
    # An epoch leaves whole, once it ended so long ago.
    rows = load.streams * (load.days * DAY_S / load.bin_s + load.epoch_bins)
    kept = held(asdict(one) | {"events": load.events_per_s, "rows": rows})
    memory = {
        what: sum(cost * kept[name] for name, cost in costs[what].items())
        for what in ("worker_mb", "redis_mb")
    }
    again = (one.shards - 1) * costs["redis_mb"]["process"]
    again += kept["noise_ahead"] * costs["redis_mb"]["noise_ahead"]  # the next epoch's
    return Size(one, projected(costs, one), memory["worker_mb"], memory["redis_mb"] + again)


def table(costs: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield the lines of the table of loads."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    for load in LOADS:
        yield _line(load, sized(costs, load))


def _line(load: Load, size: Size) -> str:
    found, one = size.projection, size.deployment
    cells = [f"{load.events_per_s:,.0f}", f"{load.streams:,}", f"{load.keys:,}", f"{load.bin_s:,.0f} s"]
    cells += [f"{load.epoch_bins:,} bins", f"{load.days:g} days", f"{one.partitions:,}"]
    cells += [f"{one.workers:,}", f"{found.busy:.0%}", _memory(size.worker_mb)]
    cells += [f"{one.shards:,}", f"{found.redis_busy:.0%}", _memory(size.redis_mb)]
    return f"| {' | '.join(cells)} |"


def _memory(mb: float) -> str:
    return f"{mb:,.0f} MB" if mb < 1_000 else f"{mb / 1_000:,.1f} GB"


def main() -> None:
    """Print the table, or one load."""
    costs = json.loads((RESULTS / "scale.json").read_text())["costs"]
    lines = list(table(costs))
    if own := sys.argv[1:]:
        rate, streams, keys, bin_s, epoch_bins, days, partitions = map(float, own)
        load = Load(rate, int(streams), int(keys), bin_s, int(epoch_bins), days, int(partitions))
        lines = [*lines[:2], _line(load, sized(costs, load))]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
