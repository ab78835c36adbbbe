"""Published running counts of all columns: one noisy tree per column, exact shifts, exact laws."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dphist import SeededNoise, SystemNoise
from dphist.arrays import Int64Array
from dphist.noise import Scale
from dphist.planning.product import plan_product
from dphist.product import published
from dphist.product.answers import Histogram
from dphist.product.columns import column_sum
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from dphist.product.published import CellTotals, draw_errors, publish_bins, published_range
from tests.dphist.product.strategies import cells_of, product_designs, spent
from tests.examples import examples


def anticipating(design: ProductDesign, **changed: Any) -> ProductDesign:
    return replace(design, time=replace(design.time, release="anticipating", **changed))


class Recorded:
    """A noise source that records every draw and its scale."""

    private = False

    def __init__(self, seed: int) -> None:
        self.noise = SeededNoise(seed)
        self.scales: list[Fraction] = []
        self.draws: list[Int64Array] = []

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        self.scales.append(Fraction(scale))
        self.draws.append(self.noise.discrete_laplace(scale, shape))
        return self.draws[-1]

    def select(self, scores: NDArray[np.integer[Any]], scale: Scale) -> int:
        raise NotImplementedError


class Repeated(Recorded):
    """A noise source that repeats recorded draws, each plus its shift."""

    def __init__(self, kept: Recorded, shifts: list[Int64Array]) -> None:
        super().__init__(0)
        self.left = list(zip(kept.draws, shifts, strict=True))

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        draw, shift = self.left.pop(0)
        return draw + shift


def shifts_of(design: ProductDesign, change: Int64Array) -> list[Int64Array]:
    """Return R x for a change x of the cells per bin, in the order in which noise is drawn.

    Groups come one after the other, and within a group the levels over time.
    """
    found, columns = [], design.columns_of(change)
    for group in design.groups:
        for width in design.time.shape.widths[1:]:
            starts = np.arange(0, len(change), width)
            found.append(np.add.reduceat(columns[:, group.columns], starts, axis=0))
    return found


@given(product_designs(), st.integers(0, 99), st.data())
def test_rows_equal_those_of_anticipating_counters(
    design: ProductDesign, seed: int, data: st.DataObject
) -> None:
    design = anticipating(design)
    cells = cells_of(design, seed)
    expected = ProductCounter(design, SeededNoise(seed)).push_many(cells).published
    errors = draw_errors(design, SeededNoise(seed))
    cut = data.draw(st.integers(0, len(cells)))
    first, state = publish_bins(design, CellTotals.first(design), cells[:cut], errors[:cut])
    state = CellTotals.from_bytes(state.to_bytes())
    rest, state = publish_bins(design, state, cells[cut:], errors[cut:])
    assert np.array_equal(np.concatenate([first, rest]), expected)
    assert (state.bin, state.cells.tolist()) == (len(cells), cells.sum(axis=0).tolist())


@examples(60)
@given(product_designs(dyadic=True), st.integers(0, 99), st.data())
def test_one_event_shifts_the_noise_of_its_nodes_and_costs_all_of_epsilon(
    design: ProductDesign, seed: int, data: st.DataObject
) -> None:
    design = anticipating(design)
    cells, kept = cells_of(design, seed), Recorded(seed)
    rows, _ = publish_bins(design, CellTotals.first(design), cells, draw_errors(design, kept))
    change = np.zeros_like(cells)
    change[data.draw(st.integers(0, len(cells) - 1)), data.draw(st.integers(0, design.cells - 1))] = 1
    if design.time.neighbours == "substitute":
        # One event becomes another; the first one is there, as cells are not negative.
        cells = cells + change
        again = Repeated(kept, [np.zeros_like(draw) for draw in kept.draws])
        rows, _ = publish_bins(design, CellTotals.first(design), cells, draw_errors(design, again))
        other = np.zeros_like(cells)
        other[data.draw(st.integers(0, len(cells) - 1)), data.draw(st.integers(0, design.cells - 1))] = 1
        change = other - change
    shifts = shifts_of(design, change)
    moved = Repeated(kept, [-shift for shift in shifts])
    neighbour, _ = publish_bins(design, CellTotals.first(design), cells + change, draw_errors(design, moved))
    assert np.array_equal(neighbour, rows)
    loss = sum(
        (int(np.abs(shift).sum()) / scale for shift, scale in zip(shifts, kept.scales, strict=True)),
        Fraction(0),
    )
    most = design.epsilon * spent(design)
    assert loss <= most
    assert design.time.sensitivity > 1 or loss == most


def test_a_decoder_that_rounds_totals_fails_the_shift_test() -> None:
    """A decoder that rounds its published values does not commute with shifts."""
    design = anticipating(plan_product(6, 1, keys=2, buckets=4, branching=(2, 3)))
    kept = Recorded(3)
    errors = draw_errors(design, kept)
    change = np.zeros((6, design.cells), np.int64)
    change[1, 2] = 1
    moved = draw_errors(design, Repeated(kept, [-shift for shift in shifts_of(design, change)]))
    exact = design.columns_of(change.cumsum(axis=0)) << 16
    assert np.array_equal(moved + exact, errors)
    rounded, moved_rounded = (np.rint(e / 2.0**17).astype(np.int64) << 17 for e in (errors, moved))
    assert not np.array_equal(moved_rounded + exact, rounded)


def test_columns_drawn_in_blocks_have_the_same_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    design = anticipating(plan_product(6, 1e9, keys=3, buckets=5))
    cells = cells_of(design, 1)
    monkeypatch.setattr(published, "NODES_AT_ONCE", 1)
    source = Recorded(1)
    rows, _ = publish_bins(design, CellTotals.first(design), cells, draw_errors(design, source))
    nodes = sum(design.time.drawn_nodes(design.time.horizon))
    assert sum(draw.size for draw in source.draws) == design.columns * nodes
    assert max(draw.shape[1] for draw in source.draws) == 1
    assert np.array_equal(rows, design.columns_of(cells).cumsum(axis=0) << 16)


@examples(40)
@given(product_designs(), st.integers(0, 99), st.data())
def test_ranges_without_noise_are_exact(design: ProductDesign, seed: int, data: st.DataObject) -> None:
    design = anticipating(design, epsilon=Fraction(10**9))
    cells = cells_of(design, seed)
    rows, _ = publish_bins(design, CellTotals.first(design), cells, draw_errors(design, SystemNoise()))
    a, b = sorted((data.draw(st.integers(0, len(cells))), data.draw(st.integers(0, len(cells)))))
    key = data.draw(st.none() | st.integers(0, design.keys.keys - 1))
    table = cells[a:b].sum(axis=0).reshape(design.keys.keys, -1)
    truth = table.sum(axis=0) if key is None else table[key]
    found = Histogram.of(published_range(design, rows, a, b), key).cdf()
    assert np.allclose(found.values, truth.cumsum(), atol=1e-3)
    assert np.allclose(found.upper - found.lower, 0.0, atol=1e-2)


def test_stated_laws_match_the_observed_errors() -> None:
    """Each of 4,000 keys is a separate run. A law of 2/3 or 3/2 of the scale fails the check."""
    design = anticipating(plan_product(7, 1, keys=4000, buckets=3, branching=(2, 4)))
    errors = draw_errors(design, SeededNoise(5))
    for a, b in ((0, 7), (2, 5), (6, 7)):
        total = published_range(design, errors, a, b)
        for group in total.groups:
            measured = float(np.mean(group.values[:, 0] ** 2))
            # The fourth moment of such sums is below 6 variances squared: 5 standard errors are 18 %.
            assert measured == pytest.approx(group.law.variance, rel=0.18)
        one = column_sum(design, 7)
        [law] = [one.published_laws(np.array([a]), np.array([b])).law(0)]
        assert law.variance == pytest.approx(one.of_range(total).variance)
        assert one.of_range(total).variance == pytest.approx(Histogram.of(total, 7).count().variance)


def test_wrong_arrays_are_refused_without_being_shown() -> None:
    design = anticipating(plan_product(4, 1, keys=2, buckets=3))
    errors, first = draw_errors(design, SeededNoise(1)), CellTotals.first(design)
    for cells, noise, word in [
        (np.zeros((1, 5), np.int64), errors[:1], "counts"),
        (np.zeros((1, 6)), errors[:1], "integers"),
        (np.full((1, 6), -7), errors[:1], "below 0"),
        (np.zeros((1, 6), np.int64), errors[:2], "noise"),
        (np.zeros((5, 6), np.int64), np.vstack([errors, errors[:1]]), "horizon"),
    ]:
        with pytest.raises(ValueError, match=word) as refusal:
            publish_bins(design, first, cells, noise)
        assert "7" not in str(refusal.value)
    for data in (b"", first.to_bytes()[:-1], b"dpAC" + first.to_bytes()[4:]):
        with pytest.raises(ValueError, match="cell totals"):
            CellTotals.from_bytes(data)
    with pytest.raises(ValueError, match="range"):
        published_range(design, errors, 2, 9)
    assert "cells" not in repr(CellTotals.first(design))
