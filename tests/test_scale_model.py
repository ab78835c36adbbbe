"""The model of costs finds the costs that made its measurements, and the projections follow from them."""

from __future__ import annotations

import random

import pytest

from benchmarks.scale.model import CPU, MEMORY, TURN_S, check, fit, held, work
from benchmarks.scale.points import FITTED, HELD_OUT, Point
from benchmarks.scale.queueing import BUSY, Deployment, needed, projected, simulated

KEPT = {"row": 1e-3, "key_of_row": 1e-5}
COSTS = {
    "cpu_s": dict(zip(CPU, (0.02, 1e-4, 1e-2, 1e-6, 2e-7, 1e-6, 1e-8, 2e-3, 3e-6, 9e-6), strict=True)),
    "redis_cpu_s": dict(zip(CPU, (0.01, 1e-5, 1e-3, 1e-8, 1e-8, 2e-7, 2e-8, 5e-4, 1e-6, 4e-6), strict=True)),
    "worker_mb": dict(zip(MEMORY, (100.0, 0.1, 1e-3, 1e-5, 1e-6), strict=True)),
    "redis_mb": dict(zip(MEMORY, (6.0, 0.05, 1e-4, 6e-5, 2e-6), strict=True)) | KEPT,
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


def test_points_that_check_are_not_points_that_were_fitted() -> None:
    assert not set(FITTED) & set(HELD_OUT)


@pytest.mark.parametrize("busy", [0.1, 0.5, 0.7])
def test_the_wait_in_turns_is_that_of_a_simulation(busy: float) -> None:
    event_s = 2e-5
    assert simulated(busy / event_s, event_s, 40.0) == pytest.approx(1.5 * TURN_S / (1 - busy), rel=0.05)


def test_projections_say_what_cannot_keep_up_and_needed_deployments_do() -> None:
    load = Deployment(1e6, 1, 1, 20, 50, 60.0, 1_440)
    assert projected(COSTS, load).lag_s is None
    enough = needed(COSTS, load)
    found = projected(COSTS, enough)
    assert max(found.busy, found.redis_busy) <= BUSY
    fewer = Deployment(1e6, enough.workers - 1, enough.shards, 20, 50, 60.0, 1_440)
    assert projected(COSTS, fewer).busy > BUSY
    assert found.lag_s is not None
    assert found.closing_s is not None
    assert 0 < found.lag_s < 1
    assert 0 < found.closing_s < 60
