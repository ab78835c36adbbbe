"""The product counter: batches, copies and failures change no release; totals without noise are exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dphist import SeededNoise, SystemNoise
from dphist.planning.product import plan_product
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from dphist.tree.design import Release
from tests.dphist.product.strategies import cells_of, product_designs
from tests.oracles import FailingNoise, KeyedNoise


@given(product_designs(), st.data())
def test_batches_and_restarts_release_the_same(design: ProductDesign, data: st.DataObject) -> None:
    # The test's noise is drawn by scale. Groups with equal scales would get each other's noise in another
    # order.
    scales = [scale for group in design.groups for scale in group.design.scales]
    assume(len(set(scales)) == len(scales))
    cells = cells_of(design, 3)
    cut = data.draw(st.integers(0, len(cells)))
    whole = ProductCounter(design, KeyedNoise(2, draws=20_000)).push_many(cells)
    noise = KeyedNoise(2, draws=20_000)
    counter = ProductCounter(design, noise)
    parts = [counter.push_many(cells[:cut])]
    counter = ProductCounter.restore(design, noise, counter.to_bytes())
    assert counter.bin == cut
    parts.append(counter.push_many(cells[cut:]))
    for level, expected in enumerate(whole.levels):
        found = np.concatenate([part.levels[level].values for part in parts])
        assert np.array_equal(found, expected.values)
    assert np.array_equal(np.concatenate([part.published for part in parts]), whole.published)


@pytest.mark.parametrize("release", ["causal", "anticipating"])
def test_columns_without_noise_are_exact_sums(release: Release) -> None:
    design = plan_product(6, 1e9, keys=2, buckets=5, release=release)
    cells = cells_of(design, 1)
    released = ProductCounter(design, SystemNoise()).push_many(cells)
    leaves = released.levels[-1].values
    assert np.array_equal(leaves, design.columns_of(cells))
    assert np.array_equal(released.published, leaves.cumsum(axis=0) << 16)


def test_a_failing_push_leaves_the_counter_unchanged() -> None:
    design = plan_product(30, 1, keys=2, buckets=30)
    noise = FailingNoise(1)
    counter = ProductCounter(design, noise)
    before = counter.to_bytes()
    with pytest.raises(OSError, match="entropy"):
        counter.push_many(cells_of(design, 1))
    assert (counter.bin, counter.to_bytes()) == (0, before)
    noise.left = 1_000
    assert len(counter.push_many(cells_of(design, 1))) == 30


def test_bad_counts_are_refused_without_being_shown() -> None:
    design = plan_product(4, 1, keys=2, buckets=3)
    counter = ProductCounter(design, SeededNoise(1))
    for cells, word in [
        (np.zeros((1, 5), np.int64), "shape"),
        (np.full((1, 6), -7), "below 0"),
        (np.zeros((5, 6), np.int64), "horizon"),
        (np.zeros((1, 6)), "integers"),
    ]:
        with pytest.raises(ValueError, match=word) as refusal:
            counter.push_many(cells)
        assert "7" not in str(refusal.value)


def test_bytes_of_another_design_are_refused() -> None:
    design = plan_product(4, 1, keys=2, buckets=3)
    data = ProductCounter(design, SeededNoise(1)).to_bytes()
    for other, wrong in [(replace(design, keys=replace(design.keys, keys=3)), data), (design, data[:-1])]:
        with pytest.raises(ValueError, match=r"snapshot|another design"):
            ProductCounter.restore(other, SeededNoise(1), wrong)
