"""The model of costs finds the costs that made its measurements, and the projections follow from them."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.scale.__main__ import turns
from benchmarks.scale.model import COSTS as THINGS
from benchmarks.scale.model import (
    LISTED,
    READ_TIMEOUT_S,
    check,
    fit,
    held,
    passed,
    polls_of,
    read_every_s,
    work,
)
from benchmarks.scale.points import DELAYS, FITTED, KNOWN, SEED, Point, fresh
from benchmarks.scale.queueing import BUSY, TURN_S, Deployment, needed, projected, simulated
from benchmarks.scale.repeats import joined, noise

KEPT = {"row": 1e-3, "key_of_row": 1e-5}
COSTS = {
    "cpu_s": {
        "worker_second": 0.02,
        "poll": 2e-3,
        "event": 1e-6,
        "event_with_key": 3e-7,
        "piece": 1e-3,
        "piece_with_key": 5e-4,
        "call": 1.5e-4,
        "slice": 5e-5,
        "cell_new": 4e-6,
        "closing": 2e-3,
        "closing_of_worker": 1e-3,
        "closing_of_key": 3e-6,
    },
    "redis_cpu_s": {
        "second": 0.015,
        "worker_second": 2e-3,
        "piece": 5e-5,
        "call": 4e-5,
        "slice": 2e-5,
        "cell": 2e-6,
        "cell_new": 3e-6,
        "cell_passed": 2e-8,
        "cut": 5e-5,
    },
    "worker_mb": {
        "process": 100.0,
        "stream": 0.1,
        "key_of_stream": 1e-3,
        "noise_ahead": 8e-6,
        "drawing": 3e-5,
    },
    "redis_mb": {
        "process": 6.0,
        "worker": 0.2,
        "stream_with_rows": 0.01,
        "partition_of_stream": 0.002,
        "key_of_stream": 1e-4,
        "cell_open": 6e-5,
        "noise_ahead": 4e-6,
        **KEPT,
    },
}


def made_up(point: Point, noise: random.Random) -> dict[str, float]:
    """Return a measurement whose costs are those of ``COSTS``, each up to 2 % wrong."""
    row: dict[str, float] = {name: getattr(point, name) for name in Point.__slots__}
    row |= {
        "seconds": 15.0,
        "read": point.events * (15.0 if point.live else 1.0),
        "closings": 0.0,
        "rows": 0.0,
        "epoch_bins": 3_600 / point.bin_s if point.live else 24,
    }
    if point.live:
        row["closings"] = row["rows"] = 15.0 / point.bin_s * point.streams
    for what, costs in COSTS.items():
        done = work(row) | held(row)
        row[what] = sum(cost * done[name] for name, cost in costs.items()) * noise.uniform(0.98, 1.02)
    return row


def test_fitted_costs_predict_points_that_were_not_fitted() -> None:
    noise = random.Random(3)
    held_out = [*KNOWN, *fresh(SEED)]
    costs = fit([made_up(point, noise) for point in FITTED], KEPT)
    table = check(costs, [made_up(point, noise) for point in held_out])
    ratios = [row[what] for row in table for what in THINGS]
    assert all(0.9 < ratio < 1.1 for ratio in ratios), table


@pytest.mark.parametrize("point", [Point(3, 4, 46, 1, 90, 3), Point(1, 20, 1, 5, 4, 1)])
def test_a_worker_without_a_partition_reads_nothing(point: Point) -> None:
    noise = random.Random(4)
    few = work(made_up(point, noise))
    many = work(made_up(replace(point, workers=point.workers + 2), noise))
    reads = ("poll", "event", "piece", "call", "slice", "cell")
    assert [many[name] for name in reads] == [few[name] for name in reads]
    assert many["worker_second"] > few["worker_second"]


def test_a_row_has_the_medians_of_its_repeats_and_the_noise_is_their_deviation() -> None:
    chance = random.Random(8)
    rows = []
    for number in range(300):
        row: dict[str, Any] = {}
        for _ in range(3):
            found = {"streams": number, "cpu_s": 2.0 * math.exp(chance.gauss(0, 0.2)), "load": 0.5}
            row = joined(row, found)
        assert [one["cpu_s"] for one in row["repeats"]].index(found["cpu_s"]) == 2
        assert sorted(one["cpu_s"] for one in row["repeats"])[1] == pytest.approx(row["cpu_s"], abs=5e-4)
        assert "load" not in row
        rows.append(row)
    assert noise(rows, "cpu_s") == pytest.approx(0.2, rel=0.15)
    assert noise([joined({}, {"streams": 1, "cpu_s": 2.0})], "cpu_s") is None


@pytest.mark.parametrize(("keys", "cells"), [(50, 400), (300, 200), (1_000, 2_000), (20_000, 2_500)])
def test_cells_passed_are_those_of_a_list_that_is_searched_from_its_start(keys: int, cells: int) -> None:
    noise = random.Random(5)
    listed: list[int] = []
    found = 0
    for _ in range(cells):
        key = noise.randrange(keys)
        found += listed.index(key) if key in listed else len(listed)
        if key not in listed:
            listed.append(key)
        if len(listed) > LISTED:
            break
    assert passed(keys, cells) == pytest.approx(found, rel=0.25)


@pytest.mark.parametrize(("streams", "events"), [(1, 1), (4, 8), (10, 25), (15, 3), (40, 50)])
def test_polls_are_those_of_reads_that_wait_for_events(streams: int, events: int) -> None:
    chance, every_s = random.Random(9), read_every_s(streams)
    now_s = next_s = 0.0
    reads = 0
    while now_s < 2_000:
        reads += 1
        found_s = min(max(now_s, next_s), now_s + READ_TIMEOUT_S)  # the first event, or the timeout
        while next_s <= found_s:
            next_s += chance.expovariate(events)
        now_s = every_s * (math.floor(found_s / every_s + 1e-6) + 1)
    row = {
        "streams": streams,
        "events": events,
        "workers": 1,
        "partitions": 2,
        "bin_s": 1e9,
        "seconds": now_s,
    }
    assert polls_of(row, 0.0) == pytest.approx(reads, rel=0.05)


def test_points_that_check_are_not_points_that_were_fitted() -> None:
    drawn = fresh(SEED)
    assert len({*FITTED, *KNOWN, *drawn}) == len(FITTED) + len(KNOWN) + len(drawn)
    assert {*DELAYS} <= {*FITTED, *KNOWN}


def test_points_that_check_are_measured_more_often_than_points_that_are_fitted() -> None:
    points = {"fitted": FITTED, "known": KNOWN, "fresh": fresh(SEED)}
    order = list(turns(points, None))
    all_points = len(FITTED) + len(KNOWN) + len(fresh(SEED))
    assert {repeat for repeat, _, _ in order[:all_points]} == {0}
    assert len({point for _, _, point in order[:all_points]}) == all_points
    again = [name for _, name, _ in order[all_points:]]
    assert again[: again.index("fitted")] == 2 * (["known"] * len(KNOWN) + ["fresh"] * len(fresh(SEED)))
    assert len({*order}) == len(order)


@pytest.mark.parametrize("busy", [0.1, 0.5, 0.7])
def test_the_wait_in_turns_is_that_of_a_simulation(busy: float) -> None:
    event_s = 2e-5
    assert simulated(busy / event_s, event_s, 40.0) == pytest.approx(1.5 * TURN_S / (1 - busy), rel=0.05)


def test_projections_say_what_cannot_keep_up_and_needed_deployments_do() -> None:
    load = Deployment(1e6, 20, 50, 60.0, 1_440, 12)
    assert projected(COSTS, load).lag_s is None
    enough = needed(COSTS, load)
    found = projected(COSTS, enough)
    assert max(found.busy, found.redis_busy) <= BUSY
    assert projected(COSTS, replace(enough, workers=enough.workers - 1)).busy > BUSY
    assert enough.partitions >= enough.workers
    assert found.lag_s is not None
    assert 0 < found.lag_s < 1
