"""The anticipating counter: its published values, its privacy loss, and how it continues after a restart."""

from __future__ import annotations

import itertools
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import AnticipatingCounter, AnticipatingSnapshot, SeededNoise, SystemNoise, plan_tree
from dphist.arrays import Int64Array
from dphist.tree.decoder import EpochNoise, decode_noise, decoder_weights, draw_epoch_noise
from dphist.tree.design import TreeDesign
from dphist.tree.release import BinRelease
from dphist.tree.shape import TreeShape, node_counts
from tests.dphist.tree.strategies import anticipating_designs
from tests.examples import examples

pytestmark = pytest.mark.slow


def stream(horizon: int, width: int, seed: int) -> Int64Array:
    return np.random.default_rng(seed).integers(0, 9, (horizon, width))


@examples(50)
@given(anticipating_designs(), st.integers(1, 3), st.integers(0, 1000), st.data())
def test_single_bins_and_batches_publish_the_same(
    design: TreeDesign, width: int, seed: int, data: st.DataObject
) -> None:
    noise = draw_epoch_noise(design, SeededNoise(seed), width)
    counts = stream(design.horizon, width, seed)
    single, batched = AnticipatingCounter(design, noise, width), AnticipatingCounter(design, noise, width)
    cut = data.draw(st.integers(0, design.horizon))
    releases = [*batched.push_many(counts[:cut]), *batched.push_many(counts[cut:])]
    errors = decode_noise(design, noise)
    for bin, release in enumerate(releases):
        alone = single.push(counts[bin])
        assert np.array_equal(alone.published, release.published)
        assert np.array_equal(alone.published, 2**16 * counts[: bin + 1].sum(axis=0) + errors[bin])
        # Exactly the nodes that this bin completes, each with its own noise.
        completed = design.shape.completed_by(bin)
        assert [(node.level, node.index) for node in alone] == list(completed)
        for node, again in zip(alone, release, strict=True):
            bins = design.shape.span(node.level, node.index)
            exact = counts[bins.start : bins.stop].sum(axis=0)
            assert np.array_equal(node.values, exact + noise[node.level - 1][node.index])
            assert np.array_equal(node.values, again.values)


@examples(50)
@given(anticipating_designs(), st.integers(0, 1000), st.data())
def test_a_restored_counter_releases_the_same_as_the_original(
    design: TreeDesign, seed: int, data: st.DataObject
) -> None:
    noise = draw_epoch_noise(design, SeededNoise(seed), 2)
    counts, stop = stream(design.horizon, 2, seed), data.draw(st.integers(0, design.horizon))
    counter = AnticipatingCounter(design, noise, 2)
    counter.push_many(counts[:stop])
    stored = AnticipatingSnapshot.from_bytes(counter.snapshot().to_bytes())
    restored = AnticipatingCounter.restore(design, noise, stored)
    one, other = counter.push_many(counts[stop:]), restored.push_many(counts[stop:])
    assert np.array_equal(one.published, other.published)
    for left, right in zip(one.levels, other.levels, strict=True):
        assert (left.level, left.first_index) == (right.level, right.first_index)
        assert np.array_equal(left.values, right.values)
    if stop > 1:
        with pytest.raises(ValueError, match="released rows"):
            restored.range(stop - 1, stop)
    assert np.array_equal(restored.range(stop, restored.bin).value, counter.range(stop, counter.bin).value)


# Noise with P(z) proportional to 2^(-part * |z|) at quarters of a budget: epsilon is 4 ln 2, a factor of 16.
QUARTERS = 4
TINY = [
    (TreeShape((2, 2)), 3, (1, 3)),
    (TreeShape((2, 2)), 4, (2, 2)),
    (TreeShape((3,)), 3, (4,)),
    (TreeShape((2, 2)), 3, (3, 1)),
    (TreeShape((2, 2)), 4, (3, 1)),
]


def tiny_design(shape: TreeShape, horizon: int, quarters: tuple[int, ...]) -> TreeDesign:
    shares = tuple(Fraction(part, QUARTERS) for part in quarters)
    return TreeDesign(shape, horizon, Fraction(1), shares, release="anticipating")


def transcript(design: TreeDesign, noise: EpochNoise, neighbour: bool, victim: int | None) -> tuple[int, ...]:
    """Return all published values. The adversary uses them to choose later bins and the bin of the victim."""
    counter, came = AnticipatingCounter(design, noise), False
    seen: list[int] = []
    for bin in range(design.horizon):
        odd = bool(seen) and (seen[-1] >> 16) % 2 == 1
        here = not came and (bin == victim if victim is not None else odd or bin == design.horizon - 1)
        came |= here
        release: BinRelease = counter.push((2 if odd else bin % 2) + (here and neighbour))
        seen += [int(release.published[0]), *(int(node.values[0]) for node in release)]
    return tuple(seen)


def likelihoods(
    design: TreeDesign, quarters: tuple[int, ...], reach: int, neighbour: bool, victim: int | None
) -> dict[tuple[int, ...], Fraction]:
    """Return P(transcript and all |noise| <= reach) up to a constant factor, in exact fractions."""
    counts = node_counts(design.shape, design.horizon)
    flat = [part for part, count in zip(quarters, counts, strict=True) for _ in range(count)]
    chances: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for draws in itertools.product(range(-reach, reach + 1), repeat=len(flat)):
        rows = np.split(np.array(draws, np.int64)[:, np.newaxis], np.cumsum(counts)[:-1])
        chance = Fraction(1, 2 ** sum(part * abs(z) for part, z in zip(flat, draws, strict=True)))
        chances[transcript(design, tuple(rows), neighbour, victim)] += chance
    return chances


@pytest.mark.parametrize(
    ("shape", "horizon", "quarters", "victim"),
    [(*tree, None) for tree in TINY] + [(*tree, 0) for tree in TINY[1:]],
)
def test_every_transcript_of_a_tiny_tree_loses_at_most_epsilon(
    shape: TreeShape, horizon: int, quarters: tuple[int, ...], victim: int | None
) -> None:
    # Noise moves by at most 1, so whatever one stream does within a reach the other can do within one more:
    # an outcome that it cannot reach has likelihood 0 there and fails.
    design = tiny_design(shape, horizon, quarters)
    reach = 1 if sum(node_counts(shape, horizon)) <= 5 else 0
    worst = Fraction(0)
    for neighbour in (False, True):
        narrow = likelihoods(design, quarters, reach, neighbour, victim)
        wide = likelihoods(design, quarters, reach + 1, not neighbour, victim)
        for seen, chance in narrow.items():
            assert chance <= 2**QUARTERS * wide[seen], seen
            worst = max(worst, chance / wide[seen])
    # The bound is reached, so with half the noise this test would fail.
    assert worst == 2**QUARTERS


@pytest.mark.parametrize("width", [1, 3])
def test_a_range_is_the_difference_of_published_values_with_its_law(width: int) -> None:
    design = plan_tree(30, 1, release="anticipating")
    counter = AnticipatingCounter(design, SeededNoise(5), width)
    releases = counter.push_many(stream(30, width, 1))
    estimate = counter.range(4, 21)
    published = (releases.published[20] - releases.published[3]) / 2**16
    assert np.array_equal(np.atleast_1d(estimate.value), published)
    assert estimate.rounding == 2 * decoder_weights(design).rounding_units / 2**16
    assert counter.range(7, 7).variance == 0
    assert counter.live().variance == counter.prefix(30).variance


def test_huge_epsilon_publishes_the_exact_counts() -> None:
    counter = AnticipatingCounter(plan_tree(50, 1e9, release="anticipating"), SystemNoise())
    counts = stream(50, 1, 2)
    assert np.array_equal(counter.push_many(counts).published, 2**16 * counts.cumsum(axis=0))


def test_wrong_arguments_are_refused_and_leave_the_counter_unchanged() -> None:
    counter = AnticipatingCounter(plan_tree(5, 1, release="anticipating"), SeededNoise(0))
    counter.push(3)
    before = counter.snapshot().to_bytes()
    for bad in (-1, 2**46, 1.5, [1, 2], [[1]]):
        with pytest.raises(ValueError, match=r"^counts: [^\n]*$"):
            counter.push(bad)
    with pytest.raises(ValueError, match="beyond the horizon"):
        counter.push_many(np.ones((5, 1), np.int64))
    with pytest.raises(ValueError, match="closed bins"):
        counter.range(0, 2)
    assert counter.snapshot().to_bytes() == before
    assert "3" not in repr(counter).replace(str(counter.design.branching), "")
    assert "[" not in repr(counter.snapshot())


def test_noise_and_snapshots_of_another_design_are_refused() -> None:
    design = plan_tree(12, 1, release="anticipating", branching=(3, 4))
    noise = draw_epoch_noise(design, SeededNoise(0), 2)
    with pytest.raises(ValueError, match="TreeCounter"):
        AnticipatingCounter(plan_tree(12, 1), SeededNoise(0))
    with pytest.raises(ValueError, match="width of 3"):
        AnticipatingCounter(design, noise, 3)
    with pytest.raises(ValueError, match="width"):
        AnticipatingCounter(design, noise, 0)
    snapshot = AnticipatingCounter(design, noise, 2).snapshot()
    data = snapshot.to_bytes()
    for bad in (data[:-1], b"dpTC" + data[4:], data[:4] + b"\x09" + data[5:], b""):
        with pytest.raises(ValueError, match=r"^counter snapshot: [^\n]*$"):
            AnticipatingSnapshot.from_bytes(bad)
    with pytest.raises(ValueError, match="height"):
        AnticipatingCounter.restore(plan_tree(4, 1, release="anticipating", branching=(4,)), noise, snapshot)
    with pytest.raises(ValueError, match="outside the horizon"):
        AnticipatingCounter.restore(
            design, noise, AnticipatingSnapshot(13, snapshot.accumulators, snapshot.total)
        )
