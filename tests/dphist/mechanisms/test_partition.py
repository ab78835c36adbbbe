"""DAWA's first stage: costs, sensitivities, partitions of least cost, and the exact law of a tiny problem."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.mechanisms import prepare, release
from dphist.mechanisms.dawa import partition
from dphist.mechanisms.dawa.deviations import DeviationIndex, sensitivity, sensitivity_from_median
from dphist.mechanisms.dawa.partition import interval_lengths, least_cost_partition, private_partition
from dphist.noise import SeededNoise
from tests.oracles import NoNoise

EXAMPLE_1 = np.array([2, 3, 8, 1, 0, 2, 0, 4, 2, 4])
EXAMPLE_1_EDGES = [0, 2, 3, 7, 10]


def exact_deviation(counts):
    mean = Fraction(int(counts.sum()), counts.size)
    return sum(abs(Fraction(int(count)) - mean) for count in counts)


def partition_cost(costs, edges):
    by_length = dict(costs)
    return sum(int(by_length[end - start][start]) for start, end in itertools.pairwise(edges))


def test_example_1_costs_of_the_paper():
    deviations = [exact_deviation(EXAMPLE_1[a:b]) for a, b in itertools.pairwise(EXAMPLE_1_EDGES)]
    assert deviations == [1, 0, 3, Fraction(8, 3)]
    assert sum(deviations) == Fraction(20, 3)  # + 4 / epsilon_2 is the cost of the partition
    index = DeviationIndex(EXAMPLE_1, lattice=20)
    starts, ends = np.array(EXAMPLE_1_EDGES[:-1]), np.array(EXAMPLE_1_EDGES[1:])
    assert index.of(starts, ends).tolist() == [math.floor(value * 2**20) for value in deviations]
    assert index.of(np.array([0]), np.array([10])).tolist() == [math.floor(Fraction(86, 5) * 2**20)]  # 17.2


@given(
    counts=st.lists(st.integers(0, 40) | st.integers(0, 10**9), min_size=1, max_size=40),
    lattice=st.integers(0, 12),
)
def test_deviations_are_exact_for_every_interval(counts, lattice):
    x = np.array(counts)
    index = DeviationIndex(x, lattice)
    for length in range(1, x.size + 1):
        starts = np.arange(x.size - length + 1)
        expected = [math.floor(exact_deviation(x[a : a + length]) * 2**lattice) for a in starts]
        assert index.of(starts, starts + length).tolist() == expected
        assert index.of_length(length).tolist() == expected
        inside = [counts[a : a + length] for a in starts]
        from_median = [
            sum(abs(one - sorted(some)[length // 2]) for one in some) << lattice for some in inside
        ]
        assert index.from_median(starts, starts + length).tolist() == from_median


@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=24), data=st.data(), lattice=st.integers(0, 9)
)
def test_one_event_moves_no_deviation_by_more_than_its_sensitivity(counts, data, lattice):
    x = np.array(counts)
    more = x.copy()
    more[data.draw(st.integers(0, x.size - 1))] += 1
    before, after = DeviationIndex(x, lattice), DeviationIndex(more, lattice)
    for length in range(1, x.size + 1):
        moved = np.abs(after.of_length(length) - before.of_length(length)).max()
        assert moved <= sensitivity(length, lattice)
        starts = np.arange(x.size - length + 1)
        moved = np.abs(
            after.from_median(starts, starts + length) - before.from_median(starts, starts + length)
        )
        assert moved.max() <= sensitivity_from_median(length, lattice)


@pytest.mark.parametrize("length", [2, 3, 4, 7, 8, 64])
def test_the_sensitivity_is_reached(length):
    # One bin above all others: one more event there moves dev by exactly 2 - 2 / length.
    x = np.zeros(length, dtype=int)
    x[0] = 5
    assert exact_deviation(x + np.eye(1, length, dtype=int)[0]) - exact_deviation(x) == 2 - Fraction(
        2, length
    )
    assert sensitivity(length, 20) == math.ceil((2 - Fraction(2, length)) * 2**20)


def all_partitions(size, lengths):
    if size == 0:
        return [[0]]
    return [
        [*edges, size]
        for length in lengths
        if length <= size
        for edges in all_partitions(size - length, lengths)
    ]


@pytest.mark.parametrize("all_lengths", [False, True])
@pytest.mark.parametrize("spread", [3, 1000])
def test_least_partition_against_all_partitions_ties_broken_by_the_fixed_order(all_lengths, spread):
    rng = np.random.default_rng(spread)
    for size in (1, 2, 5, 9):
        lengths = interval_lengths(size, all_lengths=all_lengths)
        candidates = all_partitions(size, lengths)
        for _ in range(30):
            costs = [(length, rng.integers(-spread, spread, size - length + 1)) for length in lengths]
            expected = min(  # of equals, the longest last bucket first, then the one before it, and so on
                candidates,
                key=lambda edges: (partition_cost(costs, edges), [-b for b in np.diff(edges)[::-1]]),
            )
            assert least_cost_partition(size, costs).tolist() == expected


@pytest.mark.parametrize("all_lengths", [False, True])
def test_least_partition_over_many_blocks_against_the_plain_recurrence(all_lengths):
    size = 700
    rng = np.random.default_rng(11)
    lengths = interval_lengths(size, all_lengths=all_lengths)
    costs = [(length, rng.integers(0, 10**6, size - length + 1) + 10**5) for length in lengths]
    best = [0] * (size + 1)
    for end in range(1, size + 1):
        best[end] = min(
            best[end - length] + int(cost[end - length]) for length, cost in costs if length <= end
        )
    edges = least_cost_partition(size, costs)
    assert partition_cost(costs, edges.tolist()) == best[size]


@pytest.mark.parametrize("all_lengths", [False, True])
@pytest.mark.parametrize("centre", ["mean", "median"])
def test_every_interval_has_noise_for_its_own_move_and_the_largest_move_of_any_other(all_lengths, centre):
    size, epsilon = 8, Fraction(1, 7)
    noise = NoNoise()
    request = prepare("dawa", np.zeros(size, dtype=int), 1, noise=noise)
    private_partition(request, epsilon, Fraction(5), all_lengths=all_lengths, deviation_from=centre)
    lengths = interval_lengths(size, all_lengths=all_lengths)
    assert len(noise.draws) == len(lengths)  # none is left without noise, single bins included
    lattice = partition.lattice_bits(size, epsilon, Fraction(0))

    def move(length):
        return (2 - Fraction(2, length) if centre == "mean" else Fraction(length > 1)) * 2**lattice

    largest = move(size)
    for length, (scale, _) in zip(lengths, noise.draws, strict=True):
        own = move(length)
        assert (own + largest) / scale <= epsilon
        assert (own + largest) / scale > epsilon * Fraction(3, 4)  # lengths share the scale of the next 2^i


def laplace_law(scale, reach):
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-np.abs(values) / scale)
    return values, weights / weights.sum()


def chosen_law(costs, scales, reach=400):
    """Return the probability of each partition of 3 bins into buckets of 1 or 2 bins, in exact sums.

    ``costs`` and ``scales`` are for the intervals [0], [1], [2], [0,1], [1,2]. Sums run over the integer
    noise of all five. If costs are equal, partition 0|12 wins over 01|2, and 01|2 over 0|1|2.
    """
    one, two, three, left, right = costs
    values, single = laplace_law(scales[0], reach)
    _, pair = laplace_law(scales[1], reach)
    wide = np.arange(-2 * reach, 2 * reach + 1)
    pair_less_single = np.convolve(pair, single[::-1])

    def at_least(law, support, bound):  # P(Z >= bound) for an array of bounds
        tail = np.concatenate([np.cumsum(law[::-1])[::-1], [0.0]])
        return tail[np.clip(bound - support[0], 0, law.size)]

    # 01|2: right + Zr - three - Z3 > left + Zl - one - Z1 (given Zl - Z1 = d), and Z2 >= left - one - two + d
    shift = left - one + wide
    first = pair_less_single * at_least(pair_less_single, wide, shift - (right - three) + 1)
    left_pair = float((first * at_least(single, values, shift - two)).sum())
    # 0|12: left + Zl - one - Z1 >= right + Zr - three - Z3 (given Zr - Z3 = d), Z2 >= right - three - two + d
    shift = right - three + wide
    first = pair_less_single * at_least(pair_less_single, wide, shift - (left - one))
    right_pair = float((first * at_least(single, values, shift - two)).sum())
    return np.array([left_pair, right_pair, 1.0 - left_pair - right_pair])


def worst_loss(noise_factor):
    """Return the largest |log ratio| of probabilities over neighbours x and x + e_j, x in {0..3}^3.

    Epsilon is 1, and the lattice is 1.
    """
    lattice = 1
    single, pair = (
        noise_factor * (sensitivity(2, lattice) + sensitivity(length, lattice)) for length in (1, 2)
    )

    def law(x):
        index = DeviationIndex(np.array(x), lattice)
        costs = [3 + int(c) for c in (*index.of_length(1), *index.of_length(2))]
        return chosen_law(costs, (single, pair))

    worst = 0.0
    for x in itertools.product(range(4), repeat=3):
        for j in range(3):
            neighbour = tuple(count + (i == j) for i, count in enumerate(x))
            worst = max(worst, np.abs(np.log(law(x) / law(neighbour))).max())
    return worst


def test_the_exact_law_of_three_bins_is_private_and_with_half_the_noise_is_not():
    assert worst_loss(1.0) <= 1.0 + 1e-9
    assert worst_loss(0.5) > 1.2


@pytest.mark.slow
def test_the_law_of_three_bins_is_what_the_mechanism_draws(monkeypatch):
    monkeypatch.setattr(partition, "lattice_bits", lambda size, epsilon, cost: 1)
    counts = np.array([0, 2, 3])
    index = DeviationIndex(counts, 1)
    penalty = Fraction(3, 2)
    noise = SeededNoise(5)
    request = prepare("dawa", counts, 1, noise=noise)
    outcomes = {(0, 2, 3): 0, (0, 1, 3): 1, (0, 1, 2, 3): 2}
    tally = np.zeros(3)
    trials = 4000
    for _ in range(trials):
        edges = private_partition(request, Fraction(1), penalty, all_lengths=False)
        tally[outcomes[tuple(edges.tolist())]] += 1
    expected = chosen_law([3 + int(c) for c in (*index.of_length(1), *index.of_length(2))], (2, 4))
    # Five standard deviations: false alarms below 1e-6 for each of three outcomes.
    slack = 5 * np.sqrt(expected * (1 - expected) / trials)
    assert (np.abs(tally / trials - expected) < slack).all()


def test_dawa_all_refuses_what_would_not_fit_in_memory():
    with pytest.raises(ValueError, match="8192 bins at most, not 8193; choose 'dawa'"):
        release("dawa_all", np.zeros(8193, dtype=int), 1, noise=SeededNoise(1))


@pytest.mark.parametrize("all_lengths", [False, True])
def test_a_cost_of_a_bucket_beyond_all_else_leaves_one_bucket(all_lengths):
    request = prepare("dawa", np.arange(64), 1, noise=SeededNoise(1))
    cost = Fraction(10**18)
    edges = private_partition(request, Fraction(1), cost, all_lengths=all_lengths)
    assert edges.tolist() == [0, 64]
