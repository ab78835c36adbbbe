"""Every mechanism, step by step: by how much one event changes each measured number and each score."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.mechanisms import describe, names
from dphist.mechanisms.dawa import partition
from dphist.mechanisms.dawa.partition import interval_lengths
from tests.examples import examples

# Their first stage publishes which of several noisy costs is the least. The costs stay secret.
PARTITIONED = {
    *("dawa", "dawa_all", "partition_laplace", "partition_uniform", "partition_geometric", "dawa_hilbert")
}


def neighbours(data, name):
    axes = describe(name).dimensions
    shape = data.draw(st.tuples(*[st.integers(1, 12 if axes == 1 else 4)] * axes))
    size = int(np.prod(shape))
    counts = data.draw(st.lists(st.integers(0, 4) | st.integers(0, 500), min_size=size, max_size=size))
    one = np.array(counts).reshape(shape)
    other = one.copy()
    other.flat[data.draw(st.integers(0, size - 1))] += 1
    return one, other


@pytest.mark.parametrize("name", sorted({*names()} - PARTITIONED))
@examples(8)
@given(data=st.data())
def test_no_transcript_loses_more_than_epsilon(name, data, privacy_loss):
    one, other = neighbours(data, name)
    epsilon = data.draw(st.sampled_from([Fraction(1, 50), Fraction(3)]))
    seed = data.draw(st.integers(0, 20))
    assert 0 < privacy_loss(name, one, other, epsilon, seed=seed) <= epsilon


@pytest.mark.parametrize("name", sorted(PARTITIONED))
@examples(8)
@given(data=st.data())
def test_partition_has_enough_noise_and_later_steps_lose_at_most_their_share(name, data, two_transcripts):
    one, other = neighbours(data, name)
    # Few ranges, because along the Hilbert curve every rectangle is many ranges.
    ranges = [[edge for size in one.shape for edge in (0, size)], [0, 1] * one.ndim]
    first, second, budget = two_transcripts(
        name, one, other, Fraction(2), workload=ranges, seed=data.draw(st.integers(0, 20))
    )
    size, spent = one.size, dict(budget)
    costs = len(interval_lengths(size, all_lengths=name == "dawa_all")) if size > 1 else 0
    unit = 2 ** partition._lattice(size, spent["partition"], Fraction(0))
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
