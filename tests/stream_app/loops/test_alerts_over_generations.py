"""Alert rules name a stream, and go on with its next generation."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from stream_app.core.alerts.rules import Rule, parse_condition
from stream_app.core.segments.endings import ENDED
from stream_app.loops.alert_watch import AlertWatcher
from tests.models.memory import MemoryStore
from tests.models.memory_alerts import MemoryAlertStore
from tests.stream_app.published import FIRST_BIN, HOUR_US, Published
from tests.stream_app.published_axes import PublishedAxes

EXACT = "1000000000"
EDGE = FIRST_BIN + 4


def rule(name: str, text: str, **options: Any) -> Rule:
    return Rule(name, text, parse_condition(text), **options)


RULES = [
    rule("busy", "sum(departures, 1h) > 5"),
    rule("slow", "sum(departures, 1h) > 5", for_us=3 * HOUR_US),
    rule("wide", "sum(departures, 2h) > 15"),
    rule("finer", "sum(departures, 30m) > 1"),
]
Told = list[tuple[str, str, int, int]]


async def told_by(store: MemoryAlertStore) -> Told:
    found = [json.loads(text) for _, text in await store.transitions("", 10_000)]
    keys = [told["key"] for told in found]
    assert len(keys) == len(set(keys))
    assert {told["stream"] for told in found} <= {"departures"}
    return [(told["rule"], told["kind"], told.get("generation", 1), told["seq"]) for told in found]


async def opened(store: MemoryStore, number: int, first: int) -> Published:
    """Return an opened generation."""
    before = "departures" if number == 2 else f"departures@{number - 1}"
    names: dict[str, Any] = {} if number == 1 else {"name": f"departures@{number}", "successor_of": before}
    stream = Published(store, epsilon=EXACT, epoch_bins=16, first_bin=first, **names)
    await stream.open()
    return stream


async def finish(stream: Published) -> None:
    """End a generation at the edge."""
    state = await stream.store.load(stream.name)
    assert state is not None
    await stream.store.end_epoch(stream.name, state.epoch.epoch, state.seq, ENDED)


COUNTS = [[9, 0, 9, 9], [9, 9, 0, 7], [8, 0, 0]]  # of each generation


@pytest.mark.parametrize("restarts", [False, True])
def test_every_release_of_every_generation_is_decided_once(restarts: bool) -> None:
    async def run() -> Told:
        store, alerts = MemoryStore(), MemoryAlertStore()
        watcher, first = AlertWatcher(RULES, store.reader(), alerts), FIRST_BIN
        for number, counts in enumerate(COUNTS, 1):
            stream = await opened(store, number, first)
            first += len(counts)
            for count in counts:
                await watcher.look()
                await stream.close([count])
                if restarts:
                    watcher = AlertWatcher(RULES, store.reader(), alerts)
            if number == 1:
                await watcher.look()
            await finish(stream)
        await watcher.look()
        return await told_by(alerts)

    found = asyncio.run(run())
    assert [one for one in found if one[0] == "busy"] == [
        ("busy", "firing", 1, 1),
        ("busy", "resolved", 1, 2),
        ("busy", "firing", 1, 3),
        ("busy", "resolved", 2, 3),
        ("busy", "firing", 2, 4),
        ("busy", "resolved", 3, 2),
    ]
    # It became pending in the first generation, and fires in the second.
    assert ("slow", "pending", 1, 3) in found
    assert ("slow", "firing", 2, 2) in found
    # No window reaches over the edge, and no bin of an hour tells about half an hour.
    assert [one for one in found if one[0] == "wide"] == [
        ("wide", "firing", 1, 4),
        ("wide", "resolved", 2, 3),
    ]
    assert not [one for one in found if one[0] == "finer"]


def test_a_generation_waits_until_the_one_before_is_complete() -> None:
    async def run() -> Told:
        store, alerts = MemoryStore(), MemoryAlertStore()
        before = await opened(store, 1, FIRST_BIN)
        await before.close([0, 0, 0])
        watcher = AlertWatcher(RULES[:1], store.reader(), alerts)
        await watcher.look()
        after = await opened(store, 2, EDGE)
        await after.close([0])
        await watcher.look()
        await before.close([9])
        await watcher.look()
        return await told_by(alerts)

    assert asyncio.run(run()) == [("busy", "firing", 1, 4), ("busy", "resolved", 2, 1)]


def test_a_new_watcher_begins_at_the_newest_generation() -> None:
    async def run() -> tuple[Told, dict[str, int]]:
        store, alerts = MemoryStore(), MemoryAlertStore()
        for number, first in ((1, FIRST_BIN), (2, EDGE)):
            stream = await opened(store, number, first)
            await stream.close([0, 0, 9, 9])
        watcher = AlertWatcher(RULES[:1], store.reader(), alerts)
        await watcher.look()
        await stream.close([9])
        await watcher.look()
        _, decided = await alerts.load()
        return await told_by(alerts), decided

    told, decided = asyncio.run(run())
    assert told == [("busy", "firing", 2, 5)]
    assert decided == {"departures@2": 5}


def test_rules_about_new_keys_and_buckets_wait_for_their_generation() -> None:
    async def run() -> Told:
        store, alerts = MemoryStore(), MemoryAlertStore()
        named = [
            rule("new", "sum(departures['XX'], 1h) > 5"),
            rule("left", "sum(departures['UA'], 1h) > 5"),
            rule("edge", "cdf(departures, 35, 1h) > 0.4"),
        ]
        watcher = AlertWatcher(named, store.reader(), alerts)
        settings: dict[str, Any] = {"epsilon": EXACT, "epoch_bins": 4}
        streams = [
            PublishedAxes(store, name="departures", carriers=("UA",), high=120, buckets=3, **settings),
            PublishedAxes(
                store,
                name="departures@2",
                carriers=("XX",),
                low=-5,
                high=75,
                buckets=2,
                first_bin=EDGE,
                successor_of="departures",
                **settings,
            ),
        ]
        for stream in streams:
            await stream.open()
            await watcher.look()
            for _ in range(4):
                await stream.close_cells(np.full((1, 2, stream.buckets), 9, dtype=np.int64))
                await watcher.look()
        return await told_by(alerts)

    assert asyncio.run(run()) == [
        ("left", "firing", 1, 1),
        ("new", "firing", 2, 1),
        ("edge", "firing", 2, 1),
    ]
