"""The model of costs finds the costs that made its measurements, and the projections follow from them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from benchmarks.scale.model import LISTED, check, fit, held, passed, work
from benchmarks.scale.points import FITTED, HELD_OUT, Point
from benchmarks.scale.queueing import BUSY, TURN_S, Deployment, needed, projected, simulated

KEPT = {"row": 1e-3, "key_of_row": 1e-5}
COSTS = {
    "cpu_s": {
        "worker_second": 0.02,
        "instant": 1e-2,
        "event": 1e-6,
        "event_with_key": 3e-7,
        "piece": 1e-3,
        "call": 1.5e-4,
        "call_uncached": 1e-4,
        "cell": 1e-6,
        "closing": 2e-3,
        "cut": 3e-4,
        "closing_of_key": 3e-6,
        "closing_of_key_ahead": 9e-6,
    },
    "redis_cpu_s": {
        "second": 0.015,
        "piece": 5e-5,
        "call": 4e-5,
        "cell": 2e-6,
        "cell_passed": 2e-8,
        "closing": 5e-4,
        "cut": 5e-5,
        "closing_of_key": 1e-6,
        "closing_of_key_ahead": 4e-6,
    },
    "worker_mb": {
        "process": 100.0,
        "stream": 0.1,
        "partition_of_stream": 0.01,
        "key_of_stream": 1e-3,
        "noise_ahead": 1e-6,
    },
    "redis_mb": {
        "process": 6.0,
        "worker": 0.2,
        "stream": 0.05,
        "partition_of_stream": 0.002,
        "key_of_stream": 1e-4,
        "cell_open": 6e-5,
        "noise_ahead": 2e-6,
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
        done = work(row) if what.endswith("cpu_s") else held(row)
        row[what] = sum(cost * done[name] for name, cost in costs.items()) * noise.uniform(0.98, 1.02)
    return row


def test_fitted_costs_predict_points_that_were_not_fitted() -> None:
    noise = random.Random(3)
    table = check(
        fit([made_up(point, noise) for point in FITTED], KEPT), [made_up(point, noise) for point in HELD_OUT]
    )
    ratios = [row[what] for row in table for what in COSTS]
    assert len(ratios) == 4 * len(HELD_OUT)
    assert all(0.9 < ratio < 1.1 for ratio in ratios), table


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


def test_fewer_partitions_close_sooner() -> None:
    many, few = (Deployment(1_000, 1_000, 1, 60.0, 1_440, partitions) for partitions in (12, 2))
    late_s, early_s = projected(COSTS, many).closing_s, projected(COSTS, few).closing_s
    assert late_s is not None
    assert early_s is not None
    assert early_s < late_s / 2


def test_points_that_check_are_not_points_that_were_fitted() -> None:
    assert not set(FITTED) & set(HELD_OUT)


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
    assert found.closing_s is not None
    assert 0 < found.lag_s < 1
    assert 0 < found.closing_s < 60
