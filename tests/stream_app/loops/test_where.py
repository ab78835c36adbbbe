"""A stream with a condition counts and refuses as a stream does whose log holds the matching records only."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from stream_app.core.arrival import LatePolicy
from stream_app.core.counting.where import Condition, Not, OneOf, Present
from tests.stream_app.declared import FIRST_BIN, strategy_of
from tests.stream_app.one_source import OneSource

BINS = 12
LOGS = 6
USERS = ["ann", "bob", "eve", None]
Event = tuple[float, str | None]  # its time in bins, and its user
CONDITIONS: dict[str, tuple[Condition, set[str | None]]] = {
    "one of": (OneOf("user", ("ann", "eve")), {"ann", "eve"}),
    "not": (Not(OneOf("user", ("bob",))), {"ann", "eve", None}),
    "present": (Present("user"), {"ann", "bob", "eve"}),
    "nobody": (OneOf("user", ("zoe",)), set()),
}


def drawn(rng: random.Random) -> list[list[Event]]:
    """Draw the events that arrive in each bin: late, early, far ahead, of nobody, and broken times."""
    moves = [0, 0, 0, 0, -1, -3, 1, 40, -200]
    return [
        [
            (FIRST_BIN + bin + rng.choice(moves) + rng.random(), rng.choice(USERS))
            for _ in range(rng.randrange(9))
        ]
        for bin in range(BINS)
    ]


def counted(
    directory: Path, arrivals: list[list[Event]], **facts: object
) -> tuple[Counter[int], Counter[str]]:
    """Return the exact counts of all bins, and how many letters each reason has."""
    directory.mkdir()
    with closing(OneSource(directory, strategy_of(**facts))) as one:  # type: ignore[arg-type]

        async def count() -> Counter[int]:
            ingest, closer = one.ingest(), one.closer()
            await closer.reconcile()
            for bin, events in enumerate(arrivals, start=FIRST_BIN):
                one.append_of(*events)
                await ingest.step()
                one.clock.set_bin(bin + 1)
                await ingest.step()
                await closer.close_due()
            return Counter(await one.released())

        return asyncio.run(count()), Counter(one.letters.reasons())


@pytest.mark.parametrize("late", ["next_bin", "drop", "dead_letter"])
@pytest.mark.parametrize("max_events", [None, 2])
@pytest.mark.parametrize("name", CONDITIONS)
def test_records_that_do_not_match_are_neither_counted_nor_refused_nor_in_anybody_s_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, max_events: int | None, late: LatePolicy
) -> None:
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    condition, users = CONDITIONS[name]
    for seed in range(LOGS):
        arrivals = drawn(random.Random(seed))
        matching = [[(at, user) for at, user in events if user in users] for events in arrivals]
        facts = {"max_events": max_events, "late": late}
        found = counted(tmp_path / f"all{seed}", arrivals, where=condition, **facts)
        assert found == counted(tmp_path / f"matching{seed}", matching, **facts)
        assert (sum(found[0].values()) > 0) == bool(users)
