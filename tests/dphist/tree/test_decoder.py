"""The decoder of an epoch's noise: exact under every shift, and least squares up to bounded rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import SeededNoise, plan_tree
from dphist.tree.decoder import EpochNoise, decode_nodes, decode_noise, decoder_weights, draw_epoch_noise
from dphist.tree.design import Release, TreeDesign
from dphist.tree.published_laws import published_law, published_prefix_variances
from dphist.tree.shape import TreeShape, node_counts
from tests.dphist.tree.dense import known_nodes, least_squares_estimate, noise_weights, published_variance
from tests.dphist.tree.strategies import anticipating_designs
from tests.examples import examples

Number = TypeVar("Number", int, Fraction)
ONE = 2**24


def halves_up(weight: int, base: int, difference: int) -> int:
    return base + ((weight * difference + ONE // 2) >> 24)


def half_to_even(weight: int, base: int, difference: int) -> int:
    return round(Fraction(base) + Fraction(weight * difference, ONE))


def exactly(weight: int, base: Fraction, difference: Fraction) -> Fraction:
    return base + weight * difference / ONE


def plain_decode(
    design: TreeDesign,
    noise: EpochNoise,
    step: Callable[[int, Number, Number], Number],
    number: Callable[[int], Number],
    unit: int = 2**16,
) -> list[Number]:
    """Return the decoded noise of one cell, node by node in Python's numbers, as the module describes it."""
    weights, shape = decoder_weights(design), design.shape

    def children(level: int, index: int) -> range:
        k = shape.branching[level]
        return range(index * k, min((index + 1) * k, len(noise[level])))

    z = [[number(unit * y) for y in rows[:, 0].tolist()] for rows in noise]
    for level in range(shape.height - 1, 0, -1):
        for index in range(len(z[level - 1])):
            own = z[level - 1][index]
            total = sum(z[level][c] for c in children(level, index))
            z[level - 1][index] = step(int(weights.children[level - 1][index]), own, total - own)
    final = z[0]
    for level in range(1, shape.height):
        below = []
        for index, known in enumerate(final):
            members = children(level, index)
            rest, handed = known - sum(z[level][c] for c in members), number(0)
            for place, child in enumerate(members):
                without = z[level][child] - handed
                below.append(step(int(weights.parts[level - 1][index][place]), without, rest))
                handed = below[-1] - without
        final = below
    return list(accumulate(final))


def tree_rows(design: TreeDesign) -> list[tuple[int, int, range]]:
    """Return every node of the epoch as (level, index, bins), by definition."""
    rows = []
    for level in design.shape.levels:
        width = design.shape.widths[level]
        for index in range(-(-design.horizon // width)):
            rows.append((level, index, range(index * width, min((index + 1) * width, design.horizon))))
    return rows


def shifted(design: TreeDesign, noise: EpochNoise, shift: Sequence[int]) -> EpochNoise:
    moved = [rows.copy() for rows in noise]
    for level, index, bins in tree_rows(design):
        moved[level - 1][index] += sum(shift[bin] for bin in bins)
    return tuple(moved)


def random_noise(design: TreeDesign, seed: int, spread: int, width: int = 1) -> EpochNoise:
    generator = np.random.default_rng(seed)
    counts = node_counts(design.shape, design.horizon)
    return tuple(generator.integers(-spread, spread + 1, (count, width)) for count in counts)


shifts = st.integers(-3, 3) | st.integers(-(2**33), 2**33)


@examples(150)
@given(anticipating_designs(), st.integers(0, 10**6), st.sampled_from([3, 200, 2**34]), st.data())
def test_a_shift_of_the_stream_moves_every_value_exactly(
    design: TreeDesign, seed: int, spread: int, data: st.DataObject
) -> None:
    noise = random_noise(design, seed, spread)
    shift = data.draw(st.lists(shifts, min_size=design.horizon, max_size=design.horizon))
    moved = shifted(design, noise, shift)
    below, final = decode_nodes(design, [rows.astype(object) for rows in noise])
    below_moved, final_moved = decode_nodes(design, [rows.astype(object) for rows in moved])
    for level, index, bins in tree_rows(design):
        step = 2**16 * sum(shift[bin] for bin in bins)
        assert below_moved[level - 1][index, 0] - below[level - 1][index, 0] == step
    assert final is not None
    assert final_moved is not None
    assert [b[0] - a[0] for a, b in zip(final, final_moved, strict=True)] == [2**16 * s for s in shift]
    running = 2**16 * np.cumsum(np.array(shift, dtype=np.int64))
    assert np.array_equal(decode_noise(design, moved) - decode_noise(design, noise), running[:, np.newaxis])


@examples(60)
@given(anticipating_designs(), st.integers(0, 10**6), st.sampled_from([5, 2**20, 2**37]))
def test_the_decoder_equals_a_decoder_in_plain_python(design: TreeDesign, seed: int, spread: int) -> None:
    noise = random_noise(design, seed, spread)
    assert decode_noise(design, noise)[:, 0].tolist() == plain_decode(design, noise, halves_up, int)


def test_rounding_values_half_to_even_is_caught() -> None:
    # The same check on a decoder that rounds to whole counts, half to even: some shift must show through.
    design = TreeDesign(
        TreeShape((2, 2)), 4, Fraction(1), (Fraction(1, 2), Fraction(1, 2)), release="anticipating"
    )
    caught = {halves_up: 0, half_to_even: 0}
    for seed in range(40):
        noise = random_noise(design, seed, 3)
        moved = shifted(design, noise, [1, 0, 0, 0])
        for step in caught:
            before, after = (plain_decode(design, rows, step, int, unit=1) for rows in (noise, moved))
            caught[step] += [b - a for a, b in zip(before, after, strict=True)] != [1] * 4
    assert caught[halves_up] == 0
    assert caught[half_to_even] > 0


@examples(60)
@given(anticipating_designs(), st.integers(0, 10**6))
def test_rounding_stays_within_its_certified_bound(design: TreeDesign, seed: int) -> None:
    noise = random_noise(design, seed, 1000)
    linear = plain_decode(design, noise, exactly, Fraction)
    bound = Fraction(decoder_weights(design).rounding_units)
    worst = max(abs(int(o) - x) for o, x in zip(decode_noise(design, noise)[:, 0], linear, strict=True))
    assert worst <= bound
    # The law's weights are those of the same linear map.
    weights = noise_weights(design, 0, design.horizon)
    total = sum(float(w @ rows[:, 0]) for w, rows in zip(weights, noise, strict=True))
    assert total == pytest.approx(float(linear[-1]) / 2**16, rel=1e-9, abs=1e-8)


def test_the_rounding_bound_is_at_most_20_times_the_observed_rounding() -> None:
    design = plan_tree(300, 1, release="anticipating")
    linear_weights = [noise_weights(design, 0, t) for t in (17, 150, 299)]
    noise = random_noise(design, 1, 1000, 400)
    published = decode_noise(design, noise)
    worst = 0.0
    for t, weights in zip((17, 150, 299), linear_weights, strict=True):
        exact = 2**16 * sum(w @ rows for w, rows in zip(weights, noise, strict=True))
        worst = max(worst, float(np.abs(published[t - 1] - exact).max()))
    bound = decoder_weights(design).rounding_units
    assert bound / 20 < worst <= bound


@examples(40)
@given(anticipating_designs(most=40), st.data())
def test_the_decoder_is_weighted_least_squares_with_its_variance(
    design: TreeDesign, data: st.DataObject
) -> None:
    rows, variances, nodes = known_nodes(design, design.horizon)
    a = data.draw(st.integers(0, design.horizon - 1))
    b = data.draw(st.integers(a + 1, design.horizon))
    wanted, variance = least_squares_estimate(rows, variances, a, b)
    weights = noise_weights(design, a, b)
    ours = [weights[level - 1][index] for level, index in nodes]
    assert np.abs(ours - wanted).max() < 2.0**-20  # weights of 24 bits
    assert published_variance(design, a, b) == pytest.approx(variance, rel=1e-11)
    assert published_law(design, a, b).variance == pytest.approx(variance, rel=1e-11)
    prefixes = published_prefix_variances(design)
    assert prefixes[b - 1] == pytest.approx(least_squares_estimate(rows, variances, 0, b)[1], rel=1e-10)
    assert design.mean_squared_error() == pytest.approx(prefixes.mean(), rel=1e-10)


LEVELS = (Fraction(1, 6), Fraction(1, 3), Fraction(1, 2))


@pytest.mark.parametrize("horizon", [5, 8, 12, 17, 23, 24])
def test_causal_counts_use_complete_nodes_only(horizon: int) -> None:
    design = TreeDesign(TreeShape((2, 3, 4)), horizon, Fraction(1), LEVELS)
    errors = [least_squares_estimate(*known_nodes(design, t)[:2], 0, t)[1] for t in range(1, horizon + 1)]
    assert published_prefix_variances(design) == pytest.approx(errors, rel=1e-10)
    assert design.mean_squared_error() == pytest.approx(np.mean(errors), rel=1e-10)


@pytest.mark.parametrize("release", ["causal", "anticipating"])
def test_measured_errors_match_predicted_errors(release: Release) -> None:
    # Five standard errors: a false alarm once in two million; half or double noise is some 30 away.
    runs, design = 3000, TreeDesign(TreeShape((3, 4, 5)), 57, Fraction(1), LEVELS, release=release)
    errors = decode_noise(design, draw_epoch_noise(design, SeededNoise(3), runs)) / 2**16
    squared = (errors**2).mean(axis=0)
    stderr = squared.std(ddof=1) / runs**0.5
    assert abs(squared.mean() - design.mean_squared_error()) < 5 * stderr
    assert abs(squared.mean() / 1.5**2 - design.mean_squared_error()) > 10 * stderr


def test_every_node_gets_the_noise_of_its_own_level() -> None:
    shares = (Fraction(1, 4), Fraction(3, 4))
    design = TreeDesign(TreeShape((2, 2)), 4, Fraction(1), shares, release="anticipating")
    noise = draw_epoch_noise(design, SeededNoise(1), 40_000)
    measured = [float(rows.astype(float).var()) for level in noise for rows in level]
    wanted = [float(variance) for level in design.node_variances() for variance in level]
    # Relative standard error of a Laplace variance over n draws: sqrt(5 / n) = 0.011; five of them.
    assert measured == pytest.approx(wanted, rel=0.056)


def test_noise_of_another_shape_is_refused() -> None:
    design = plan_tree(12, 1, branching=(3, 4), release="anticipating")
    noise = random_noise(design, 0, 3)
    for bad in (noise[:1], (noise[0][:2], noise[1]), (noise[0].astype(float), noise[1])):
        with pytest.raises(ValueError, match=r"^noise: [^\n]*$"):
            decode_noise(design, bad)
    with pytest.raises(ValueError, match="larger epsilon"):
        draw_epoch_noise(plan_tree(12, "1e-10", release="anticipating"), SeededNoise(0))
