"""Alert rules name a stream, and go on with its next generation."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from stream_app.core.alerts.readings import readings, shown_now
from stream_app.core.answers.succession import continued
from stream_app.core.counting.where import OneOf
from stream_app.core.segments.endings import ENDED
from stream_app.loops.alert_watch import AlertWatcher
from tests.models.memory import MemoryStore
from tests.models.memory_alerts import MemoryAlertStore
from tests.stream_app.core.test_query import read
from tests.stream_app.loops.test_alert_watch import EXACT, rule
from tests.stream_app.published import FIRST_BIN, HOUR_US, Published
from tests.stream_app.published_axes import PublishedAxes
from tests.world.counted import counted
from tests.world.features import FEATURES

EDGE = FIRST_BIN + 4


RULES = [
    rule("busy", "sum(departures, 1h) > 5"),
    rule("slow", "sum(departures, 1h) > 5", for_us=3 * HOUR_US),
    rule("wide", "sum(departures, 2h) > 15"),
    rule("finer", "sum(departures, 30m) > 1"),
    rule("drop", "sum(departures, 1h) < 0.5 * sum(departures, 1h, 5h ago)"),
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
async def test_every_release_of_every_generation_is_decided_once(restarts: bool) -> None:
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
    found = await told_by(alerts)
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
    # 0 against 9 of the second generation; the 8 before it, against 9 of the first one, is no drop.
    assert [one for one in found if one[0] == "drop"] == [("drop", "firing", 3, 2)]


async def test_a_generation_waits_until_the_one_before_is_complete() -> None:
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
    assert await told_by(alerts) == [("busy", "firing", 1, 4), ("busy", "resolved", 2, 1)]


async def test_a_new_watcher_begins_at_the_newest_generation() -> None:
    store, alerts = MemoryStore(), MemoryAlertStore()
    for number, first in ((1, FIRST_BIN), (2, EDGE)):
        stream = await opened(store, number, first)
        await stream.close([0, 0, 9, 9])
    watcher = AlertWatcher(RULES[:1], store.reader(), alerts)
    await watcher.look()
    await stream.close([9])
    await watcher.look()
    _, decided = await alerts.load()
    told, decided = await told_by(alerts), decided
    assert told == [("busy", "firing", 2, 5)]
    assert decided == {"departures@2": 5}


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({}, ""),
        ({"bin_us": HOUR_US // 2, "first_bin": 2 * EDGE}, "bins of another length"),
        ({"where": OneOf("kind", ("a",))}, "before the first interval, 2013-01-01T04:00:00Z"),
        ({"successor_of": None}, "before the first interval"),
    ],
)
async def test_a_past_that_is_not_known_fires_nothing_and_says_so(
    changed: dict[str, Any], missing: str
) -> None:
    past = rule("past", "sum(departures, 1h) < 0.5 * sum(departures, 1h, 2h ago)")
    store, alerts = MemoryStore(), MemoryAlertStore()
    before = await opened(store, 1, FIRST_BIN)
    await before.close([9, 9, 9, 9])
    await finish(before)
    watcher = AlertWatcher([past], store.reader(), alerts)
    await watcher.look()
    facts: dict[str, Any] = {"first_bin": EDGE, "successor_of": "departures"} | changed
    after = Published(store, "departures@2", EXACT, 16, **facts)
    await after.open()
    await after.close([1] * (2 if "bin_us" in changed else 1))
    await watcher.look()
    views = [await read(None, store, name) for name in ("departures", "departures@2")]
    told, view = await told_by(alerts), views[1].following(continued(views[1], {"departures": views[0]}.get))
    [now] = shown_now([past.condition], view)
    assert missing in now.missing
    assert (now.value, now.against) == ((None, None) if missing else (1.0, 4.5))
    assert told == ([] if missing else [("past", "firing", 2, 1)])


def test_noise_of_two_kinds_has_no_exact_law_and_fires_nothing() -> None:
    views = []
    for name in ("events", "approximate"):
        with counted(FEATURES[name], "causal", 7, epsilon="1") as (world, _):
            views.append(world.view())
    pure, after = views
    history = after.following((pure,))
    history.epochs = [*(epoch.shifted(-7) for epoch in pure.epochs), *after.epochs]
    past = rule("past", f"count({after.name}, 10s) > 2 * count({after.name}, 10s, 80s ago)")
    [now] = shown_now([past.condition], history)
    assert "noise of another kind" in now.missing
    assert readings([past], history) == [None]


async def test_rules_about_new_keys_and_buckets_wait_for_their_generation() -> None:
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
    assert await told_by(alerts) == [
        ("left", "firing", 1, 1),
        ("new", "firing", 2, 1),
        ("edge", "firing", 2, 1),
    ]
