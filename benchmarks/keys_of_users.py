"""Cost of caps on each user's keys, beside a cap on each user's events alone, over contact-like records.

Run with ``python -m benchmarks.keys_of_users``; results go to ``benchmarks/results/keys_of_users.json``. The
records are those of people with heavy-tailed numbers of events, each with favourite keys. Both caps let ten
events of a user count. They are measured in turns on one core, which client and server share. Seconds are
their processor time, so that other work on the machine does not count. Adding records is the same work under
every cap; choosing which of them count differs.
"""

from __future__ import annotations

import asyncio
from itertools import cycle
from pathlib import Path

import numpy as np

from benchmarks.users import BINS, CELLS, FIRST_BIN, RECORDS, SLICE, Bench, Slice, keep
from dphist.caps import Caps
from stream_app.core.counting.bounding import Bounds
from stream_app.state.connection import execute
from stream_app.state.embedded import EmbeddedRedis

RESULTS = Path(__file__).parent / "results" / "keys_of_users.json"
ROUNDS, PARTITIONS = 3, 4
CAPS = {
    "max_events_10": Caps(10),
    "max_keys_5_max_per_key_2": Caps(None, 5, 2),
    "max_keys_10_max_per_key_2_max_events_10": Caps(10, 10, 2),
    "max_keys_50_max_per_key_1": Caps(None, 50, 1),
}
POPULATIONS = {
    "busy_people": (5_000, 1.1),
    "many_people": (50_000, 1.5),
}  # users, and the tail of their events
FAVOURITES = 1.2  # the tail of a user's keys


def contacts(users: int, tail: float, seed: int) -> list[Slice]:
    """Return records of users with heavy-tailed numbers of events over their favourite keys."""
    rng = np.random.default_rng(seed)
    share = rng.pareto(tail, users) + 1
    people = rng.choice(users, RECORDS, p=share / share.sum())
    keys = (people * 37 + np.minimum(rng.pareto(FAVOURITES, RECORDS) * 2, CELLS).astype(np.int64)) % CELLS
    bins = rng.integers(FIRST_BIN, FIRST_BIN + BINS, RECORDS)
    parts = np.split(np.arange(RECORDS), RECORDS // SLICE)
    return [
        Slice(str(number), [f"user-{person:08d}" for person in people[part].tolist()], bins[part], keys[part])
        for number, part in zip(cycle(range(PARTITIONS)), parts, strict=False)
    ]


async def measure(server: EmbeddedRedis, users: int, tail: float) -> dict[str, dict[str, float]]:
    """Return events per second and bytes per event under each of the caps, from the best of some rounds."""
    bench = Bench(server)
    await execute(bench.client, "CONFIG", "SET", "auto-aof-rewrite-percentage", 0)
    adding: list[float] = []
    choosing: dict[str, list[float]] = {name: [] for name in CAPS}
    found: dict[str, dict[str, float]] = {name: {} for name in CAPS}
    for seed in range(ROUNDS):
        slices = contacts(users, tail, seed)
        for name, caps in CAPS.items():
            await bench.open(PARTITIONS)
            added = await bench.spent(bench.add(slices))
            await bench.seal()
            chosen = await bench.spent(bench.tally(Bounds(caps)))
            adding.append(added.seconds)
            choosing[name].append(chosen.seconds)
            found[name]["file_bytes_per_event"] = (added.bytes + chosen.bytes) / RECORDS
            found[name]["ms_of_a_tally"] = chosen.seconds / bench.calls * 1e3
    await bench.close()
    alone = found["max_events_10"]
    for name, seconds in choosing.items():
        found[name] |= {
            "added_events_per_s": RECORDS / min(adding),
            "chosen_events_per_s": RECORDS / min(seconds),
            "events_per_s": RECORDS / (min(adding) + min(seconds)),
        }
    for one in found.values():
        one["ratio_to_max_events"] = one["events_per_s"] / alone["events_per_s"]
        one["ratio_of_bytes"] = one["file_bytes_per_event"] / alone["file_bytes_per_event"]
    return {
        name: {fact: round(number, 2) for fact, number in sorted(one.items())} for name, one in found.items()
    }


def main() -> None:
    """Measure both populations."""
    keep(
        RESULTS,
        lambda server: {
            name: asyncio.run(measure(server, users, tail)) for name, (users, tail) in POPULATIONS.items()
        },
    )


if __name__ == "__main__":
    main()
