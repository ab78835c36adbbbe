"""The pool's noise comes from its source. Each vector is handed out as a whole, and only once."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from dphist import SeededNoise, SystemNoise, plan_product
from dphist.arrays import Int64Array
from dphist.noise import Scale
from dphist.product.counter import ProductCounter
from stream_app.core.kinds import kind_of
from stream_app.loops import noise_ahead
from stream_app.loops.noise_ahead import NoisePool

DESIGN = plan_product(12, 1, keys=3, buckets=6, branching=(2, 2, 3))


class Kept:
    """The system's noise, which remembers each draw."""

    private = True

    def __init__(self) -> None:
        self.draws: list[tuple[Fraction, Int64Array]] = []

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        # Noise so wide that two vectors are never equal by chance.
        values = SystemNoise().discrete_laplace(10**9, shape)
        self.draws.append((Fraction(scale), values))
        return values

    def select(self, scores: Any, scale: Scale) -> int:
        raise AssertionError("nothing here selects")


def fill(pool: NoisePool) -> int:
    drawn = 0
    while pool.draw_one():
        drawn += 1
    return drawn


def test_closing_a_bin_takes_what_is_ready_and_nothing_twice() -> None:
    source = Kept()
    pool = NoisePool(source, kind_of(DESIGN).vectors())
    assert fill(pool) == len(DESIGN.groups) * 3
    assert fill(pool) == 0
    counter, seen = ProductCounter(DESIGN, pool), set()
    for bin in range(12):
        before = len(source.draws)
        releases = counter.push_many(np.zeros((1, DESIGN.cells), np.int64))
        assert len(source.draws) == before, f"bin {bin} had to wait for noise"
        for level in releases.levels:
            for row in level.values:
                for group in DESIGN.groups:
                    vector = row[group.columns].tolist()
                    scale = group.design.scales[level.level - 1]
                    # The noise is one whole draw at this scale, which no other node has.
                    [place] = [
                        number
                        for number, (of, values) in enumerate(source.draws)
                        if of == scale and values.ravel().tolist() == vector
                    ]
                    assert place not in seen
                    seen.add(place)
        # The pool draws again as much as the bin took, and no more.
        assert fill(pool) == sum(len(level.values) for level in releases.levels) * len(DESIGN.groups)


def test_noise_that_is_not_ready_is_drawn_at_once() -> None:
    source = Kept()
    pool = NoisePool(source, kind_of(DESIGN).vectors())
    scale = DESIGN.groups[0].design.scales[0]
    assert pool.discrete_laplace(scale, (5, DESIGN.groups[0].width)).shape == (5, DESIGN.groups[0].width)
    assert pool.discrete_laplace(3, 4).shape == (4,)
    assert [of for of, _ in source.draws] == [scale, 3]


def test_a_pool_is_as_private_as_its_source_and_not_larger_than_its_limit(monkeypatch: Any) -> None:
    assert NoisePool(SystemNoise(), {}).private
    assert not NoisePool(SeededNoise(1), {}).private
    monkeypatch.setattr(noise_ahead, "LARGEST_POOL", DESIGN.columns * 3 - 1)
    assert not NoisePool(Kept(), kind_of(DESIGN).vectors()).draw_one()
