"""The geometry of trees compared with its definitions, bin by bin."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.tree.shape import TreeShape
from tests.dphist.tree.strategies import branchings
from tests.oracles import complete_nodes, span


@given(branchings(60))
def test_a_bin_completes_exactly_the_nodes_that_end_with_it(branching: tuple[int, ...]) -> None:
    shape = TreeShape(branching)
    seen: list[tuple[int, int]] = []
    for bin in range(shape.capacity):
        completed = shape.completed_by(bin)
        assert [level for level, _ in completed] == list(
            range(shape.height, shape.height - len(completed), -1)
        )
        assert all(shape.span(*node)[-1] == bin for node in completed)
        seen += completed
        assert sorted(seen) == sorted(complete_nodes(branching, bin + 1))
        for level in shape.levels:
            assert shape.completed_count(bin + 1, level) == sum(node[0] == level for node in seen)


@given(branchings(60), st.data())
def test_the_cover_holds_the_maximal_complete_nodes(branching: tuple[int, ...], data: st.DataObject) -> None:
    shape = TreeShape(branching)
    bins = data.draw(st.integers(0, shape.capacity))
    cover = [(level, first + i) for level, first, number in shape.cover(bins) for i in range(number)]
    assert [bin for node in cover for bin in span(branching, node)] == list(range(bins))
    complete = complete_nodes(branching, bins)
    maximal = [node for node in complete if (node[0] - 1, node[1] // branching[node[0] - 1]) not in complete]
    assert sorted(cover) == sorted(maximal)
    assert shape.digits(bins) == tuple(sum(node[0] == level for node in cover) for level in shape.levels)


@given(branchings(60), st.data())
def test_mean_digits_are_the_mean_over_all_prefixes(branching: tuple[int, ...], data: st.DataObject) -> None:
    shape = TreeShape(branching)
    horizon = data.draw(st.integers(1, shape.capacity))
    rows = [shape.digits(t) for t in range(1, horizon + 1)]
    means = [sum(column) / horizon for column in zip(*rows, strict=True)]
    assert shape.mean_digits(horizon) == pytest.approx(means, rel=1e-12)


def test_node_addresses_stay_as_stored() -> None:
    shape = TreeShape((2, 3, 4))
    assert shape.widths == (24, 12, 4, 1)
    assert shape.span(2, 4) == range(16, 20)
    assert shape.completed_by(11) == ((3, 11), (2, 2), (1, 0))
    assert shape.cover(23) == [(1, 0, 1), (2, 3, 2), (3, 20, 3)]
    assert shape.cover(24) == [(1, 0, 2)]


def test_a_tree_may_have_one_bin() -> None:
    shape = TreeShape((1,))
    assert (shape.capacity, shape.height, shape.completed_by(0)) == (1, 1, ((1, 0),))


@pytest.mark.parametrize("branching", [(), (0,), (2, 1), (1, 2), (2.0,), (True,), (2, -3), (2**27, 2**27)])
def test_a_bad_branching_is_refused_in_one_line(branching: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^branching: [^\n]+$"):
        TreeShape(branching)


def test_nodes_and_bins_outside_the_tree_are_refused() -> None:
    shape = TreeShape((2, 3))
    for call in (
        lambda: shape.span(0, 0),
        lambda: shape.span(1, 2),
        lambda: shape.span(3, 0),
        lambda: shape.completed_by(6),
        lambda: shape.cover(7),
        lambda: shape.completed_count(-1, 1),
    ):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            call()


def test_mean_digits_of_a_long_epoch_take_no_longer() -> None:
    shape = TreeShape((2,) * 53)
    assert shape.capacity == 2**53
    assert math.fsum(shape.mean_digits(2**53)) == pytest.approx(53 / 2, rel=1e-12)
