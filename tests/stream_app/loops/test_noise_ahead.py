"""Noise drawn before it is needed is never used twice, wherever a worker stops and whatever is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dphist import SeededNoise, plan_product
from dphist.arrays import Int64Array
from dphist.noise import Scale, SystemNoise
from dphist.product.counter import ProductCounter
from dphist.product.published import draw_errors
from dphist.tree.decoder import decode_noise
from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape
from stream_app.config.plans import can_draw_ahead
from stream_app.core.kinds import kind_of
from stream_app.core.kinds import pages as noise_pages
from stream_app.core.kinds.pages import PageGeometry, part_of_page, read_page
from stream_app.core.records import EpochRecord
from stream_app.core.strategy import Strategy
from stream_app.loops import noise_ahead
from stream_app.loops.closer import NOISE_LOST
from stream_app.loops.noise_ahead import NoisePool
from tests.oracles import KeyedNoise
from tests.simulator.memory_sinks import MemoryKeys
from tests.stream_app.declared import FIRST_BIN, STREAM, design_of, strategy_of
from tests.stream_app.product_stream import product_strategy
from tests.world import World, deaths

# Noise so wide that two drawings never agree by chance.
DESIGN = replace(design_of((2, 2), Fraction(1, 10**6)), release="anticipating")
ANTICIPATING = strategy_of(DESIGN)


class Remembering:
    """The system's noise. It remembers each drawing of an epoch's noise."""

    private = True

    def __init__(self) -> None:
        self.drawn: list[Int64Array] = []

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        self.drawn.append(SystemNoise().discrete_laplace(scale, shape))
        return self.drawn[-1]

    def select(self, scores: Any, scale: Scale) -> int:
        raise AssertionError("nothing here selects")

    def errors(self) -> list[list[int]]:
        """Return, for each complete drawing, the errors of the running counts."""
        pairs = zip(self.drawn[::2], self.drawn[1::2], strict=False)
        return [decode_noise(DESIGN, pair)[:, 0].tolist() for pair in pairs]


@pytest.fixture
def _two_bins_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_pages, "BINS_PER_PAGE", 2)


def stored_epochs(world: World) -> tuple[EpochRecord, ...]:
    """Return the epochs that readers know: four bins each, without events."""
    return world.public().epochs


def each_epoch_has_one_drawing(rows: list[dict[str, Any]], noise: Remembering) -> None:
    """Check that each epoch publishes the errors of its own drawing. There are no events."""
    used: dict[int, set[int]] = {}
    for row in rows:
        bin = row["bin"] - next(r["bin"] for r in rows if r["epoch"] == row["epoch"])
        could_be = {
            number for number, errors in enumerate(noise.errors()) if errors[bin] == row["published"][0]
        }
        used[row["epoch"]] = used.get(row["epoch"], could_be) & could_be
    assert all(len(drawings) == 1 for drawings in used.values()), used
    assert len(set.union(*used.values())) == len(used)


@pytest.mark.slow
@pytest.mark.usefixtures("_two_bins_a_page")
def test_a_worker_stopped_at_any_call_uses_no_noise_twice() -> None:
    """Calls from the first opening into the next epoch: each bin is released once, no epoch ends early."""
    number = 0
    for death in deaths():
        number += 1
        noise = Remembering()
        with World(ANTICIPATING, noise=noise) as world:
            world.run_until(106, death=death)
            seen = world.stored()
            world.run_until(107)
            assert world.stored()[: len(seen)] == seen
            assert world.bins() == [*range(FIRST_BIN, 107)]
            assert world.epochs() == [(0, 100, 1), (1, 104, 5)]
            each_epoch_has_one_drawing(world.rows(), noise)
            # Nothing is left of noise that was drawn but with which no epoch began or is to begin.
            nonces = {nonce for nonce, _ in world.secrets().noise}
            assert world.state().noise in nonces
            assert len(nonces) <= 2
    assert number > 40


def keys_gone(world: World) -> None:
    assert isinstance(world.keys, MemoryKeys)
    world.keys.kept.clear()


def page_gone(world: World) -> None:
    world.secrets().noise.clear()


def page_damaged(world: World) -> None:
    pages = world.secrets().noise
    pages.update({key: data[:-1] + bytes([data[-1] ^ 1]) for key, data in pages.items()})


def pages_swapped(world: World) -> None:
    pages, nonce = world.secrets().noise, world.state().noise
    pages[nonce, 0], pages[nonce, 1] = pages[nonce, 1], pages.get((nonce, 0), b"")


@pytest.mark.parametrize("last_bin", [99, 100, 101, 102])
@pytest.mark.parametrize("loss", [keys_gone, page_gone, page_damaged, pages_swapped])
@pytest.mark.usefixtures("_two_bins_a_page")
def test_lost_noise_ends_the_epoch_and_is_never_drawn_again(
    loss: Callable[[World], None], last_bin: int
) -> None:
    noise = Remembering()
    with World(ANTICIPATING, noise=noise) as world:
        world.run_until(last_bin + 1)
        loss(world)
        world.run_until(106)
        first, second = stored_epochs(world)[:2]
        assert (first.last_bin, first.end_reason) == (last_bin, NOISE_LOST)
        assert second.first_bin == last_bin + 1
        assert world.reserved()[:2] == [("visits", 0, 100), ("visits", 1, second.first_bin)]
        assert world.bins() == [*range(100, 106)]
        each_epoch_has_one_drawing(world.rows(), noise)


@pytest.mark.usefixtures("_two_bins_a_page")
def test_spent_pages_are_gone_from_store_and_keys() -> None:
    with World(ANTICIPATING) as world:
        world.run_until(102)
        nonce = world.state().noise
        [(first, _)] = world.run(world.keys.chains(STREAM, 0, nonce))
        assert {page for of, page in world.secrets().noise if of == nonce} == {1}
        assert first == 1


def test_pages_together_are_the_whole_drawing() -> None:
    strategy = Strategy(STREAM, ANTICIPATING.declared, kind_of(DESIGN, width=3))
    noise, geometry = Remembering(), strategy.kind.page_geometry()
    pages = [read_page(geometry, number, data) for number, data in enumerate(strategy.kind.draw_pages(noise))]
    assert len(pages) == geometry.pages == 1
    assert np.array_equal(pages[0].errors, decode_noise(DESIGN, noise.drawn))
    assert all(np.array_equal(a, b) for a, b in zip(pages[0].nodes, noise.drawn, strict=True))
    part = part_of_page(geometry, pages[0], range(1, 3))
    assert np.array_equal(part.errors, pages[0].errors[1:3])
    assert [values.tolist() for values in part.nodes] == [
        noise.drawn[0][0:1].tolist(),
        noise.drawn[1][1:3].tolist(),
    ]
    with pytest.raises(ValueError, match="damaged"):
        read_page(geometry, 0, bytes(8))


@pytest.mark.parametrize(
    ("error", "bytes_a_number"), [(2**31 - 1, 4), (-(2**31), 4), (2**31, 8), (-(2**40), 8)]
)
def test_a_page_is_as_narrow_as_its_largest_number_allows(error: int, bytes_a_number: int) -> None:
    geometry = PageGeometry(2, 1, ())
    page = noise_pages._packed(np.array([[7], [error]]))
    assert len(page) == 2 * bytes_a_number
    assert read_page(geometry, 0, page).errors.tolist() == [[7], [error]]


def test_pages_over_several_axes_hold_the_errors_of_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_pages, "BINS_PER_PAGE", 4)
    strategy = product_strategy(Fraction(1, 10**6), total=True, release="anticipating")
    assert strategy.kind.product is not None
    geometry = strategy.kind.page_geometry()
    pages = [
        read_page(geometry, number, data)
        for number, data in enumerate(strategy.kind.draw_pages(KeyedNoise(2, draws=20_000)))
    ]
    assert [(page.first_bin, len(page.errors), page.nodes) for page in pages] == [(0, 4, ()), (4, 2, ())]
    errors = draw_errors(strategy.kind.product, KeyedNoise(2, draws=20_000))
    assert np.array_equal(np.vstack([page.errors for page in pages]), errors)
    assert np.array_equal(part_of_page(geometry, pages[1], range(5, 6)).errors, errors[5:6])


def test_a_stream_too_wide_to_draw_ahead_is_known() -> None:
    assert can_draw_ahead(ANTICIPATING.kind)
    # At most three numbers per cell and bin, and a page holds at least one bin.
    assert can_draw_ahead(kind_of(DESIGN, 2**20 // 24))
    assert not can_draw_ahead(kind_of(DESIGN, 2**20 // 24 + 1))
    long = TreeDesign(TreeShape((10**7,)), 10**7, Fraction(1), (Fraction(1),), release="anticipating")
    assert can_draw_ahead(kind_of(long))
    assert not can_draw_ahead(kind_of(long, 2))


WIDE = plan_product(12, 1, keys=3, buckets=6, branching=(2, 2, 3))


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
    pool = NoisePool(source, kind_of(WIDE).vectors())
    assert fill(pool) == len(WIDE.groups) * 3
    assert fill(pool) == 0
    counter, seen = ProductCounter(WIDE, pool), set()
    for bin in range(12):
        before = len(source.draws)
        releases = counter.push_many(np.zeros((1, WIDE.cells), np.int64))
        assert len(source.draws) == before, f"bin {bin} had to wait for noise"
        for level in releases.levels:
            for row in level.values:
                for group in WIDE.groups:
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
        assert fill(pool) == sum(len(level.values) for level in releases.levels) * len(WIDE.groups)


def test_noise_that_is_not_ready_is_drawn_at_once() -> None:
    source = Kept()
    pool = NoisePool(source, kind_of(WIDE).vectors())
    scale = WIDE.groups[0].design.scales[0]
    assert pool.discrete_laplace(scale, (5, WIDE.groups[0].width)).shape == (5, WIDE.groups[0].width)
    assert pool.discrete_laplace(3, 4).shape == (4,)
    assert [of for of, _ in source.draws] == [scale, 3]


def test_a_pool_is_as_private_as_its_source_and_not_larger_than_its_limit(monkeypatch: Any) -> None:
    assert NoisePool(SystemNoise(), {}).private
    assert not NoisePool(SeededNoise(1), {}).private
    monkeypatch.setattr(noise_ahead, "LARGEST_POOL", WIDE.columns * 3 - 1)
    assert not NoisePool(Kept(), kind_of(WIDE).vectors()).draw_one()
