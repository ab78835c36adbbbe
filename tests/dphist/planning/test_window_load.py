"""The load of windows: the noise itself counts draws, and a clock of the test gives the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.noise import Scale, SeededNoise
from dphist.planning.load import DRAWS_PER_SECOND, WindowLoad, all_different
from dphist.windows.design import window_mechanisms
from tests.dphist.windows.test_design import design_of


def standing() -> float:
    return 0.0


class Listed(SeededNoise):
    """Seeded noise that remembers the size of every draw."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sizes: list[int] = []

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        self.sizes.append(int(np.prod(shape)))
        return super().discrete_laplace(scale, shape)

    def select(self, scores: NDArray[np.integer[Any]], scale: Scale) -> int:
        self.sizes.append(scores.size)
        return super().select(scores, scale)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", window_mechanisms())
def test_draws_are_those_of_a_release(mechanism: str) -> None:
    design = design_of(mechanism, histograms=1, buckets=64)
    load = WindowLoad.of(design, standing)
    drawn = []
    for counts in (np.zeros(64, np.int64), all_different(design)):
        noise = Listed(0)
        design.release(counts, noise)
        drawn.append(sum(noise.sizes))
    assert load.window_draws == (drawn[0], max(drawn))
    assert load.seconds == pytest.approx(max(drawn) / DRAWS_PER_SECOND)
    # Every histogram draws its own noise; two windows per epoch keep eight bytes per cell.
    three = WindowLoad.of(replace(design, histograms=3), standing)
    assert three.window_draws == (3 * drawn[0], 3 * max(drawn))
    assert three.released_bytes == 2 * 3 * 64 * 8


def test_data_dependent_mechanisms_are_tried_on_the_slowest_counts() -> None:
    for mechanism in ("mwem", "adaptive_tree", "structure_first"):
        easy, hard = WindowLoad.of(design_of(mechanism, buckets=256), standing).window_draws
        assert hard > 1.3 * easy, mechanism
    design = design_of(buckets=256)
    counts = all_different(design)
    assert sorted(counts.tolist()) == [
        i * 13 for i in range(256)
    ]  # neighbours in value differ by 13 (at least 12.5)
    assert np.abs(np.diff(counts)).min() > 256


def test_load_includes_computing_and_drawing_but_not_the_first_import() -> None:
    def clock(*lengths: float) -> Callable[[], float]:
        """Return a clock on which one run after the other takes these lengths of time."""
        ticks = iter(np.repeat(np.cumsum((0.0, *lengths)), 2)[1:])
        return lambda: float(next(ticks))

    design = design_of(histograms=5, buckets=8)
    drawing = 5 * 8 / DRAWS_PER_SECOND
    assert WindowLoad.of(design, clock(90, 2, 3)).seconds == pytest.approx(5 * 3 + drawing)
    assert WindowLoad.of(design, clock(90, 4, 3)).seconds == pytest.approx(5 * 4 + drawing)


def test_load_above_half_a_bin_is_refused_with_a_remedy() -> None:
    load = WindowLoad.of(design_of(histograms=2, buckets=8), map(float, count()).__next__)
    assert load.seconds == pytest.approx(2 + 16 / DRAWS_PER_SECOND)
    load.check(4_001_000)
    with pytest.raises(ValueError, match=r"16 noise draws and 2\.0 s of a bin of 4 s; at most half of it"):
        load.check(4_000_000)


def test_a_mechanisms_limits_are_known_before_anything_is_counted() -> None:
    WindowLoad.of(design_of("dawa", buckets=4096), standing)
    with pytest.raises(ValueError, match=r"^mechanism: dawa_all: "):
        WindowLoad.of(design_of("dawa_all", histograms=1, buckets=2**14), standing)
