"""Non-negative leaves from the root down: each step compared with an active-set solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from dphist import SeededNoise, plan_tree
from dphist.consistency.top_down import onto_simplex, top_down
from dphist.tree.decoder import decode_noise, draw_epoch_noise
from dphist.units import UNITS_PER_COUNT
from tests.examples import examples

VALUES = st.integers(-40, 40).map(float)


@examples(60)
@given(
    st.lists(st.tuples(VALUES, st.integers(1, 9)), min_size=1, max_size=9),
    st.integers(0, 60),
    st.integers(0, 3),
)
def test_numbers_with_a_given_sum_are_the_closest(
    points: list[tuple[float, int]], total: int, missing: int
) -> None:
    values, variances = np.array(points, dtype=float).T
    padded = np.pad([values, variances], ((0, 0), (0, missing)))
    padded[0, len(values) :] = 17.0  # the places without a number may hold anything
    found = onto_simplex(padded[:1], padded[1:], np.array([float(total)]))[0]
    assert not found[len(values) :].any()
    rows = np.vstack([np.diag(variances**-0.5), np.full(len(values), 1e4)])
    expected = nnls(rows, np.append(values * variances**-0.5, 1e4 * total))[0]
    assert found[: len(values)] == pytest.approx(expected, abs=1e-4)
    assert found.sum() == pytest.approx(total, abs=1e-9)


def settled_one_by_one(leaves, total, branching, variances):
    """Return ``top_down`` by definition: recursion over nodes, with an active-set solver for children."""

    def known(level, first, stop):
        """Return the variance of a node's sum as estimated from its own subtree."""
        index = first // width(level)
        own = variances[level][index]
        if level == len(branching) - 1:
            return own
        below = sum(known(level + 1, a, b) for a, b in families(level + 1, first, stop))
        return 1 / (1 / own + 1 / below)

    def width(level):
        return int(np.prod(branching[level + 1 :]))

    def families(level, first, stop):
        return [(a, min(a + width(level), stop)) for a in range(first, stop, width(level))]

    def settle(level, first, stop, target):
        spans = families(level, first, stop)
        spread = np.array([known(level, *span) for span in spans])
        sums = np.array([leaves[a:b].sum() for a, b in spans])
        rows = np.vstack([np.diag(spread**-0.5), np.full(len(spans), 1e4)])
        targets = nnls(rows, np.append(sums * spread**-0.5, 1e4 * target))[0]
        if level == len(branching) - 1:
            return list(targets)
        return [x for (a, b), t in zip(spans, targets, strict=True) for x in settle(level + 1, a, b, t)]

    return np.array(settle(0, 0, len(leaves), total))


@pytest.mark.parametrize(("branching", "bins"), [((3, 2, 4), 24), ((3, 2, 4), 13), ((5,), 4), ((2, 3), 1)])
def test_children_are_the_closest_numbers_to_their_estimates(branching: tuple[int, ...], bins: int) -> None:
    rng = np.random.default_rng(2)
    widths = [int(np.prod(branching[level + 1 :])) for level in range(len(branching))]
    for total in (0.0, 7.5, 90.0):
        leaves = rng.normal(1.0, 6.0, bins)
        variances = [rng.integers(1, 30, -(-bins // width)).astype(float) for width in widths]
        variances[0][-1] = np.inf if len(branching) > 1 else variances[0][-1]
        found = top_down(leaves, total, branching, variances)
        assert found == pytest.approx(settled_one_by_one(leaves, total, branching, variances), abs=1e-3)
        assert found.min() >= 0
        assert found.sum() == pytest.approx(total)


def test_consistent_leaves_do_not_change() -> None:
    counts = np.random.default_rng(4).integers(0, 9, 50).astype(float)
    for spread in (0.0, 3.0):
        variances = [np.full(5, spread), np.full(50, spread)]
        assert top_down(counts, counts.sum(), (5, 10), variances) == pytest.approx(counts, abs=1e-9)


def test_sparse_counts_have_smaller_errors_and_no_larger_sums() -> None:
    """The squared error is under a tenth of the unbiased error; setting bins to 0 would raise the total."""
    design = plan_tree(720, 1, release="anticipating")
    truth = np.random.default_rng(5).poisson(0.05, 720)
    errors = decode_noise(design, draw_epoch_noise(design, SeededNoise(6), 40)) / UNITS_PER_COUNT
    bins, totals, clipped = [], [], []
    for run in range(40):
        running = truth.cumsum() + errors[:, run]
        leaves = np.diff(running, prepend=0.0)
        total = max(0.0, float(running[-1]))
        found = top_down(leaves, total, design.branching, design.node_variances())
        bins.append(((found - truth) ** 2).mean() / ((leaves - truth) ** 2).mean())
        totals.append(found.sum() - total)
        clipped.append(np.maximum(leaves, 0).sum() - total)
    assert np.mean(bins) < 0.1
    assert np.abs(totals).max() < 1e-6
    assert np.mean(clipped) > 300


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: top_down([], 1.0, (2,), [[]]), "not empty"),
        (lambda: top_down([np.nan], 1.0, (2,), [[1.0]]), "finite"),
        (lambda: top_down([1.0], -1.0, (2,), [[1.0]]), "total"),
        (lambda: top_down([1.0] * 3, 1.0, (2,), [[1.0] * 3]), "fewer than 3"),
        (lambda: top_down([1.0] * 3, 1.0, (2, 2), [[1.0], [1.0] * 3]), "2 nodes"),
        (lambda: top_down([1.0] * 3, 1.0, (4,), [[1.0] * 2]), "3 leaves"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, said) -> None:
    with pytest.raises(ValueError, match=said):
        call()
