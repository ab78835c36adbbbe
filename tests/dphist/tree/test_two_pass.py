"""The two passes against a general least squares solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from dphist.tree.two_pass import from_above, from_below, least_squares
from tests.dphist.tree.strategies import branchings


@given(branchings(40), st.integers(1, 3), st.integers(0, 99), st.integers(1, 3))
def test_two_passes_are_weighted_least_squares(
    branching: tuple[int, ...], roots: int, seed: int, width: int
) -> None:
    draws = np.random.default_rng(seed)
    sizes = [roots * int(np.prod(branching[:level])) for level in range(len(branching) + 1)]
    levels = [draws.normal(0, 100, (size, width)) for size in sizes]
    variances = draws.uniform(0.5, 20, len(sizes))
    # One row per node: the sum of its leaves, over its standard deviation.
    rows = np.concatenate(
        [
            np.kron(np.eye(size), np.ones(sizes[-1] // size)) / np.sqrt(variance)
            for size, variance in zip(sizes, variances, strict=True)
        ]
    )
    wanted = np.concatenate([level / np.sqrt(v) for level, v in zip(levels, variances, strict=True)])
    leaves = np.linalg.lstsq(rows, wanted, rcond=None)[0]
    found = least_squares(levels, branching, variances.tolist())
    np.testing.assert_allclose(found[-1], leaves, atol=1e-9)
    for level, size in zip(found, sizes, strict=True):
        np.testing.assert_allclose(level, leaves.reshape(size, -1, width).sum(axis=1), atol=1e-8)


def test_nodes_without_a_complete_parent_stand_alone() -> None:
    estimates = from_below([[10.0], [3.0, 5.0, 7.0]], (2,), (1.0, 1.0))
    found = from_above(estimates, (2,))
    assert found[1][2] == 7.0
    assert found[0][0] == pytest.approx(found[1][:2].sum())


def test_inputs_are_not_changed() -> None:
    levels = [np.array([10.0]), np.array([3.0, 5.0])]
    before = [level.copy() for level in levels]
    least_squares(levels, (2,), (1.0, 1.0))
    assert all((a == b).all() for a, b in zip(levels, before, strict=True))


@pytest.mark.parametrize(
    ("levels", "branching", "variances"),
    [
        ([[1.0], [1.0, 2.0]], (2, 2), (1, 1)),
        ([[1.0], [1.0, 2.0]], (2,), (1,)),
        ([[1.0], [1.0, 2.0]], (2,), (1, 0)),
        ([[1.0], [1.0]], (2,), (1, 1)),
        ([[1.0], [[1.0], [2.0]]], (2,), (1, 1)),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    levels: list[ArrayLike], branching: tuple[int, ...], variances: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match=r"^(levels|variances): [^\n]+$"):
        least_squares(levels, branching, variances)
