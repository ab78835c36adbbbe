"""Every mechanism, step by step: one event costs at most epsilon, and a stated part of it is reached."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.mechanisms import describe, names
from dphist.mechanisms.dawa.partition import interval_lengths, lattice_bits
from tests.examples import examples

pytestmark = pytest.mark.slow

# Their first stage publishes which of several noisy costs is the least. The costs stay secret.
PARTITIONED = {
    *("dawa", "dawa_all", "partition_laplace", "partition_uniform", "partition_geometric", "dawa_hilbert")
}
# The part of epsilon that one event reaches. A test that cannot reach its bound could hide a leak. Trees
# round shares down to a lattice, and some mechanisms spend on choices that one event hardly moves.
ALL, NEARLY_ALL = Fraction(1), Fraction(999, 1000)
REACHED = {
    **dict.fromkeys(["identity", "sorted", "sorted_rounded", "sorted_isotonic"], ALL),
    **dict.fromkeys(["cdf_direct", "cdf_histogram", "cdf_binary", "cdf_tree", "cdf_refined"], ALL),
    **dict.fromkeys(["identity_plane", "quadtree", "dpcube", "uniform_grid", "adaptive_grid"], ALL),
    **dict.fromkeys(["h", "h_bar", "h_bar_nonnegative", "hb", "privelet", "greedy_h"], NEARLY_ALL),
    **dict.fromkeys(["hat_tree", "adaptive_tree"], NEARLY_ALL),
    **dict.fromkeys(["p_hp", "structure_first"], Fraction(1, 2)),
    **dict.fromkeys(["mwem", "mwem_plane"], Fraction(1, 25)),
    **dict.fromkeys(["efpa", "hybridtree"], Fraction(0)),
}
# Options drawn beside the defaults.
OPTIONS: dict[str, dict[str, list[Any]]] = {
    "adaptive_tree": {"blocks": [1, 3, 9]},
    "mwem": {"rounds": [None, 4]},
    "structure_first": {
        "deviation": ["absolute", "squared"],
        "largest_count": [25],
        "partition_share": [0.5],
    },
}
# Options under which the number of events is public, so that only a moved event is protected.
MOVED: dict[str, dict[str, Any]] = {
    **{name: {"neighbours": "substitute"} for name in names() if name.startswith("cdf_")},
    **{name: {"known_total": True} for name in ("mwem_plane", "uniform_grid", "adaptive_grid")},
    "mwem": {"known_total": True, "rounds": 5},
}


def drawn_counts(data, name, least=0):
    axes = describe(name).dimensions
    shape = data.draw(st.tuples(*[st.integers(1 + (axes == 1 and least), 30 if axes == 1 else 6)] * axes))
    size = int(np.prod(shape))
    one = st.integers(least, 5) | st.integers(least, 500)
    return np.array(data.draw(st.lists(one, min_size=size, max_size=size))).reshape(shape)


def one_more(counts, place):
    changed = counts.copy()
    changed.flat[place] += 1
    return changed


@pytest.mark.parametrize("name", [name for name in names() if name not in PARTITIONED])
@examples(20)
@given(data=st.data())
def test_an_added_event_loses_at_most_epsilon_and_reaches_its_part(name, data, privacy_loss):
    counts = drawn_counts(data, name)
    epsilon = data.draw(st.sampled_from([Fraction(1, 50), Fraction(1, 3), Fraction(3), Fraction(30)]))
    options = {option: data.draw(st.sampled_from(each)) for option, each in OPTIONS.get(name, {}).items()}
    seed = data.draw(st.integers(0, 50))
    places = {0, data.draw(st.integers(0, counts.size - 1))}
    losses = [
        privacy_loss(name, counts, one_more(counts, place), epsilon, seed=seed, **options) for place in places
    ]
    assert min(losses) > 0
    assert epsilon * REACHED[name] <= max(losses) <= epsilon


@pytest.mark.parametrize("name", MOVED)
@examples(20)
@given(data=st.data())
def test_a_moved_event_loses_at_most_epsilon_if_the_total_is_public(name, data, privacy_loss):
    counts = drawn_counts(data, name, least=1)
    source, target = data.draw(st.integers(0, counts.size - 1)), data.draw(st.integers(0, counts.size - 1))
    moved = one_more(counts, target)
    moved.flat[source] -= 1
    loss = privacy_loss(name, counts, moved, Fraction(7, 10), **MOVED[name])
    assert loss <= Fraction(7, 10)
    if name.startswith("cdf_") and {source, target} == {0, counts.size - 1}:
        assert loss == Fraction(7, 10)


@pytest.mark.parametrize("name", sorted(PARTITIONED))
@examples(8)
@given(data=st.data())
def test_partition_has_enough_noise_and_later_steps_lose_at_most_their_share(name, data, two_transcripts):
    one = drawn_counts(data, name)
    other = one_more(one, data.draw(st.integers(0, one.size - 1)))
    # Few ranges, because along the Hilbert curve every rectangle is many ranges.
    ranges = [[edge for size in one.shape for edge in (0, size)], [0, 1] * one.ndim]
    first, second, budget = two_transcripts(
        name, one, other, Fraction(2), workload=ranges, seed=data.draw(st.integers(0, 20))
    )
    size, spent = one.size, dict(budget)
    costs = len(interval_lengths(size, all_lengths=name == "dawa_all")) if size > 1 else 0
    unit = 2 ** lattice_bits(size, spent["partition"], Fraction(0))
    for (_, values, scale, _), (_, again, _, _) in zip(first[:costs], second[:costs], strict=True):
        moved = int(np.abs(again - values).max())
        # An event moves this cost and each competing cost by at most one count.
        assert moved <= unit
        assert (moved + unit) / scale <= spent["partition"]
    loss = sum(
        Fraction(int(np.abs(again - values).sum())) / scale
        for (_, values, scale, _), (_, again, _, _) in zip(first[costs:], second[costs:], strict=True)
    )
    assert 0 < loss <= spent["bucket counts"]
    assert sum(spent.values()) == 2
