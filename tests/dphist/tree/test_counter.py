"""The counter against its definition: each node once, in order, as its exact count plus its own noise."""

from __future__ import annotations

import copy
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.arrays import Int64Array
from dphist.noise import SeededNoise
from dphist.planning.tree import plan_tree
from dphist.tree.counter import CounterSnapshot, TreeCounter
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import ReleasedForest
from dphist.tree.release import BinRelease, BinReleases
from dphist.tree.shape import TreeShape
from dphist.tree.upward import LARGEST_COUNT
from tests.dphist.noise.chi_square import FALSE_ALARM, p_value
from tests.dphist.tree.strategies import designs
from tests.examples import examples
from tests.oracles import FailingNoise, KeyedNoise, span


def check_invariants(counter: TreeCounter, released: ReleasedForest | None = None) -> None:
    """Check what must be true of a counter between two calls. Args: released, all nodes so far."""
    shape, state, text = counter.design.shape, counter.snapshot(), repr(counter)
    rows = (shape.height, counter.width)
    assert 0 <= counter.bin <= counter.design.horizon, text
    assert state.accumulators.shape == state.open_sums.shape == rows, text
    assert bool((state.accumulators >= 0).all()), text
    # On the last level no node is open, because a pushed bin is complete.
    assert not state.accumulators[-1].any(), text
    for level, digit in zip(shape.levels, shape.digits(counter.bin), strict=True):
        closed_children = digit > 0
        assert closed_children or not state.open_sums[level - 1].any(), (text, level)
        assert level == 1 or closed_children or not state.accumulators[level - 2].any(), (text, level)
    if released is not None:
        assert released.bins == counter.bin, text
        assert released.counts == tuple(shape.completed_count(counter.bin, level) for level in shape.levels)
        live = np.atleast_1d(released.live_prefix(counter.bin).value) * 2**16
        assert np.array_equal(live, counter.live_units()), text


def draw_counts(data: st.DataObject, design: TreeDesign) -> Int64Array:
    width = data.draw(st.integers(1, 3))
    seed = data.draw(st.integers(0, 2**32))
    return np.random.default_rng(seed).integers(0, 1000, (design.horizon, width))


def draw_batches(data: st.DataObject, bins: int) -> list[int]:
    """Cut ``bins`` into batches, some of them empty."""
    edges = sorted(data.draw(st.lists(st.integers(0, bins), max_size=6)))
    sizes: list[int] = np.diff([0, *edges, bins]).tolist()
    return sizes


def same(one: BinRelease, other: BinRelease) -> bool:
    return (
        one.bin == other.bin
        and [(n.level, n.index, n.values.tolist()) for n in one]
        == [(n.level, n.index, n.values.tolist()) for n in other]
        and one.published.tolist() == other.published.tolist()
    )


@given(designs(), st.data())
def test_each_node_is_released_once_in_order_with_its_own_noise(
    design: TreeDesign, data: st.DataObject
) -> None:
    counts = draw_counts(data, design)
    noise, width = KeyedNoise(5), counts.shape[1]
    counter = TreeCounter(design, noise, width)
    drawn = {level: KeyedNoise(5) for level in design.shape.levels}
    released = ReleasedForest(design, width)
    for bin, row in enumerate(counts):
        release = counter.push(row)
        released.append(release)
        check_invariants(counter, released)
        assert [(node.level, node.index) for node in release] == list(design.shape.completed_by(bin))
        for node in release:
            exact = counts[list(span(design.branching, (node.level, node.index)))].sum(axis=0)
            own = drawn[node.level].discrete_laplace(design.scales[node.level - 1], width)
            assert (node.values == exact + own).all()
    expected = [(float(scale), (1, width)) for scale in design.scales]
    assert set(noise.calls) <= set(expected)
    for level, call in zip(design.shape.levels, expected, strict=True):
        assert noise.calls.count(call) == design.shape.completed_count(design.horizon, level)


@given(designs(), st.data())
def test_batches_of_any_size_release_the_same(design: TreeDesign, data: st.DataObject) -> None:
    counts = draw_counts(data, design)
    one = TreeCounter(design, KeyedNoise(9), counts.shape[1])
    singly = [one.push(row) for row in counts]
    many = TreeCounter(design, KeyedNoise(9), counts.shape[1])
    start = 0
    for size in draw_batches(data, design.horizon):
        releases = many.push_many(counts[start : start + size])
        check_invariants(many)
        assert isinstance(releases, BinReleases)
        assert (releases.first_bin, len(releases)) == (start, size)
        assert all(same(*pair) for pair in zip(releases, singly[start:], strict=False))
        start += size
    assert one.snapshot().to_bytes() == many.snapshot().to_bytes()


@given(designs(), st.data())
def test_published_rows_are_a_function_of_the_nodes(design: TreeDesign, data: st.DataObject) -> None:
    counts = draw_counts(data, design)
    releases = TreeCounter(design, KeyedNoise(2), counts.shape[1]).push_many(counts)
    forest = ReleasedForest(design, counts.shape[1])
    for level in data.draw(st.permutations(list(design.shape.levels))):
        forest.append_level(level, releases.levels[level - 1].values)
    assert forest.bins == design.horizon
    assert (forest.series("live") * 2**16 == releases.published).all()


@given(designs(), st.data())
def test_a_restored_counter_releases_the_same_as_the_original(
    design: TreeDesign, data: st.DataObject
) -> None:
    counts = draw_counts(data, design)
    noise = KeyedNoise(3)
    counter, released = TreeCounter(design, noise, counts.shape[1]), ReleasedForest(design, counts.shape[1])
    snapshots = []
    releases = []
    for row in counts:
        snapshots.append((counter.snapshot().to_bytes(), copy.deepcopy(noise), copy.deepcopy(released)))
        releases.append(counter.push(row))
        released.append(releases[-1])
    for bin, (saved, noise_then, forest) in enumerate(snapshots):
        history = data.draw(st.booleans())
        restored = TreeCounter.restore(
            design, noise_then, CounterSnapshot.from_bytes(saved), forest if history else None
        )
        check_invariants(restored)
        assert restored.bin == bin
        rest = restored.push_many(counts[bin:])
        check_invariants(restored)
        assert all(same(*pair) for pair in zip(rest, releases[bin:], strict=True))


def test_a_snapshot_is_independent_of_its_counter() -> None:
    design = plan_tree(8, 1, branching=(2, 4))
    counter = TreeCounter(design, KeyedNoise(1))
    counter.push(5)
    snapshot = counter.snapshot()
    before = snapshot.to_bytes()
    counter.push(6)
    TreeCounter.restore(design, KeyedNoise(1), snapshot).push(7)
    assert snapshot.to_bytes() == before


@examples(30)
@given(designs(), st.data())
def test_a_failing_noise_source_releases_nothing_and_leaves_the_counter_unchanged(
    design: TreeDesign, data: st.DataObject
) -> None:
    noise = FailingNoise(10**6)
    counter = TreeCounter(design, noise)
    bins = data.draw(st.integers(0, design.horizon - 1))
    counter.push_many(np.ones((bins, 1), int))
    before = counter.snapshot().to_bytes()
    for allowed in range(len(design.shape.completed_by(bins))):
        noise.left = allowed
        with pytest.raises(OSError, match="entropy"):
            counter.push(1)
        check_invariants(counter)
        assert counter.snapshot().to_bytes() == before
    noise.left = 10**6
    assert counter.push(1).bin == bins


def test_noise_of_each_level_has_the_scale_of_its_level() -> None:
    # Half the noise, noise shared between levels or drawn once for many nodes would be rejected here.
    design = plan_tree(6, 1, branching=(2, 3), shares=("1/5", "4/5"))
    releases = TreeCounter(design, SeededNoise(8), 5000, history=False).push_many(np.zeros((6, 5000), int))
    for level, scale in zip(releases.levels, design.scales, strict=True):
        draws = level.values.ravel()
        assert p_value(draws, float(scale)) > FALSE_ALARM
        for wrong in (1 / 2, 2 / 3, 3 / 2):
            assert p_value(draws, float(scale) * wrong) < FALSE_ALARM
        cells = np.atleast_2d(np.corrcoef(level.values))
        assert (np.abs(cells - np.eye(len(cells))) < 6 / np.sqrt(5000)).all()


def test_estimates_without_noise_are_exact() -> None:
    design = plan_tree(1000, 1e9)
    counts = np.random.default_rng(4).integers(0, 10**9, (1000, 2))
    counter = TreeCounter(design, SeededNoise(0), 2)
    releases = counter.push_many(counts)
    assert (releases.published == np.cumsum(counts, axis=0) << 16).all()
    for a, b in ((0, 1000), (17, 18), (3, 999), (500, 500)):
        estimate = counter.range(a, b)
        assert np.asarray(estimate.value).tolist() == counts[a:b].sum(axis=0).tolist()
        assert estimate.variance == 0.0
        assert np.array_equal(estimate.interval(0.999).lower, estimate.value)


def test_exact_counts_appear_in_no_text() -> None:
    design = plan_tree(4, 1, branching=(2, 2))
    counter = TreeCounter(design, KeyedNoise(0))
    secret = 987654321
    texts = []
    counter.push(secret)
    texts += [repr(counter), str(counter), repr(counter.snapshot()), repr(vars(type(counter)))]
    for bad in (-secret, float(secret), [secret, secret], [[secret]], str(secret), LARGEST_COUNT + secret):
        with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
            counter.push(bad)
        texts.append(str(refused.value))
    counter.push_many([[secret]] * 3)
    with pytest.raises(ValueError, match="horizon") as refused:
        counter.push(secret)
    with pytest.raises(AssertionError) as failed:
        check_invariants(counter, ReleasedForest(design))  # the nodes of none of its bins
    texts += [str(refused.value), str(failed.value)]
    public = {name for name in vars(counter) if not name.startswith("_")}
    assert public == {"design", "width"}
    assert not [text for text in texts if str(secret) in text]  # an address may contain these digits


def test_a_refused_push_leaves_the_counter_unchanged() -> None:
    counter = TreeCounter(plan_tree(4, 1, branching=(2, 2)), KeyedNoise(0), 2)
    counter.push([1, 2])
    before = counter.snapshot().to_bytes()
    for bad in ([1, -1], [1.0, 2.0], [1, 2, 3], 5, [LARGEST_COUNT + 1, 0], [True, False]):
        with pytest.raises(ValueError, match="counts"):
            counter.push(bad)
        assert counter.snapshot().to_bytes() == before
    with pytest.raises(ValueError, match="horizon"):
        counter.push_many(np.ones((4, 2), int))
    assert counter.snapshot().to_bytes() == before


def test_a_node_count_above_the_limit_is_refused() -> None:
    counter = TreeCounter(plan_tree(4, 1, branching=(2, 2)), KeyedNoise(0))
    counter.push(LARGEST_COUNT)
    with pytest.raises(ValueError, match="2\\^45"):
        counter.push(LARGEST_COUNT)
    assert counter.bin == 1


@pytest.mark.parametrize("branching", [(1,), (7,), (2, 2, 2), (3, 2)])
def test_the_counter_ends_at_the_horizon(branching: tuple[int, ...]) -> None:
    horizon = max(1, int(np.prod(branching)) - 1)
    counter = TreeCounter(plan_tree(horizon, 1, branching=branching), SeededNoise(1))
    for _ in range(horizon):
        counter.push(1)
    with pytest.raises(ValueError, match="start a new epoch"):
        counter.push(1)
    assert len(counter.push_many(np.zeros((0, 1), int))) == 0
    check_invariants(counter)


def test_live_count_is_the_same_with_and_without_history() -> None:
    design = plan_tree(50, 1)
    with_history, without = (TreeCounter(design, KeyedNoise(4), history=history) for history in (True, False))
    released = ReleasedForest(design)
    for count in range(50):
        release = with_history.push(count)
        without.push(count)
        released.append(release)
        live, kept = without.live(), released.live_prefix(count + 1)
        assert live == kept
        assert live.value == release.published[0] / 2**16
        # For the newest bin no node above is complete yet, so the live and the best estimate are equal.
        assert with_history.prefix().value == pytest.approx(live.value, abs=1e-9)
        assert with_history.prefix().variance == pytest.approx(live.variance, rel=1e-12)
    with pytest.raises(ValueError, match="history"):
        without.prefix()


def test_damaged_or_foreign_snapshots_are_refused() -> None:
    design = plan_tree(8, 1, branching=(2, 4))
    counter = TreeCounter(design, KeyedNoise(1))
    counter.push_many([[1]] * 3)
    data = counter.snapshot().to_bytes()
    assert data[:6] == b"dpTC\x02\x00"
    for bad in (b"", data[:-1], data + b"\0", b"xxxx" + data[4:], data[:4] + b"\x03\x00" + data[6:]):
        with pytest.raises(ValueError, match="counter snapshot"):
            CounterSnapshot.from_bytes(bad)
    snapshot = CounterSnapshot.from_bytes(data)
    other = plan_tree(8, 1, branching=(2, 2, 2))
    with pytest.raises(ValueError, match="height"):
        TreeCounter.restore(other, KeyedNoise(1), snapshot)
    with pytest.raises(ValueError, match="horizon"):
        TreeCounter.restore(plan_tree(2, 1, branching=(2, 4)), KeyedNoise(1), snapshot)
    with pytest.raises(ValueError, match="history"):
        TreeCounter.restore(design, KeyedNoise(1), snapshot, ReleasedForest(design))


@pytest.mark.parametrize("width", [0, -1, 1.5, True])
def test_a_bad_width_is_refused(width: int) -> None:
    with pytest.raises(ValueError, match="width"):
        TreeCounter(plan_tree(4, 1), SeededNoise(0), width)


def test_an_anticipating_design_is_refused() -> None:
    design = TreeDesign(TreeShape((4,)), 4, Fraction(1), (Fraction(1),), release="anticipating")
    with pytest.raises(ValueError, match="causal"):
        TreeCounter(design, SeededNoise(0))


def test_a_batch_is_a_sequence_of_bins() -> None:
    releases = TreeCounter(plan_tree(4, 1, branching=(2, 2)), KeyedNoise(0)).push_many([[1], [2], [3]])
    assert [release.bin for release in releases] == [0, 1, 2]
    assert len(releases[1]) == 2
    assert releases[1][1].level == 1
    for outside in (3, -1):
        with pytest.raises(IndexError):
            releases.bin(outside)


def loss(design: TreeDesign, counts: Int64Array, neighbour: Int64Array) -> Fraction:
    """Return the privacy loss of all released nodes together, between a stream and its neighbour."""
    transcripts = []
    for stream in (counts, neighbour):
        counter = TreeCounter(design, KeyedNoise(6), stream.shape[1])
        transcripts.append([node for row in stream for node in counter.push(row)])
    total = Fraction(0)
    for one, other in zip(*transcripts, strict=True):
        assert (one.level, one.index) == (other.level, other.index)
        total += int(np.abs(one.values - other.values).sum()) / design.scales[one.level - 1]
    return total


@given(designs(), st.data())
def test_neighbours_cost_at_most_epsilon(design: TreeDesign, data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 3))
    cell = st.tuples(st.integers(0, design.horizon - 1), st.integers(0, width - 1))
    counts = np.random.default_rng(data.draw(st.integers(0, 999))).integers(0, 3, (design.horizon, width))
    neighbour = counts.copy()
    max_events = design.sensitivity if design.neighbours == "add_remove" else design.sensitivity // 2
    places = data.draw(st.lists(cell, min_size=1, max_size=max_events))
    if design.neighbours == "substitute":
        for place in places:
            counts[place] += 1
            neighbour[data.draw(cell)] += 1
    else:
        for place in places:
            neighbour[place] += 1
    assert loss(design, counts, neighbour) <= design.epsilon
    assert loss(design, neighbour, counts) <= design.epsilon


@given(designs(dyadic=True), st.data())
def test_neighbours_cost_exactly_epsilon_without_rounded_scales(
    design: TreeDesign, data: st.DataObject
) -> None:
    # A cost counted too high would waste accuracy, and a test that cannot reach its bound could hide a leak.
    counts = np.zeros((design.shape.capacity, 1), np.int64)
    full = TreeDesign(
        design.shape,
        design.shape.capacity,
        design.epsilon,
        design.shares,
        design.neighbours,
        design.sensitivity,
    )
    neighbour = counts.copy()
    first = data.draw(st.integers(0, len(counts) - 1))
    neighbour[first] += 1
    if design.neighbours == "substitute":
        # Far enough apart that no measured node holds both.
        if design.branching[0] == 1:
            return
        counts[(first + design.shape.widths[1]) % len(counts)] += 1
    assert loss(full, counts, neighbour) == full.epsilon * sum(full.shares)
