"""Options of every mechanism: what relation a release is for, what is taken, what is refused by name."""

import numpy as np
import pytest

from dphist.mechanisms import describe, names, release
from dphist.noise import SeededNoise
from tests.dphist.mechanisms.good_options import good_options

GOOD = good_options()
# The options under which one more event changes what is published without noise.
PUBLIC_TOTAL = [("known_total", True), ("neighbours", "substitute")]

# Their partition is published and the noisy costs are not: test_partition.py and test_dawa.py hold its cost.
NOISY_MINIMA = {
    *("dawa", "dawa_all", "dawa_hilbert"),
    *("partition_laplace", "partition_uniform", "partition_geometric"),
}


def counts_for(name):
    shape = (13,) if describe(name).dimensions == 1 else (13, 13)
    return np.random.default_rng(7).integers(1, 20, shape)


def changed(counts, added, removed=None):
    neighbour = counts.copy()
    neighbour.flat[added] += 1
    if removed is not None:
        neighbour.flat[removed] -= 1
    return neighbour


def test_good_values_are_known_for_every_option_of_every_mechanism():
    assert {(name, option) for name, option, _ in GOOD} == {
        (name, option) for name in names() for option in describe(name).options
    }


@pytest.mark.parametrize(("name", "option", "value"), GOOD)
def test_a_release_names_the_relation_that_its_steps_cost_epsilon_for(name, option, value, privacy_loss):
    counts = counts_for(name)
    made = release(name, counts, 0.5, noise=SeededNoise(1), **{option: value})
    assert made.neighbours == ("substitute" if (option, value) in PUBLIC_TOTAL else "add_remove")
    if name in NOISY_MINIMA:
        return
    removed = None if made.neighbours == "add_remove" else 0
    for added in (4, counts.size - 1):
        assert privacy_loss(name, counts, changed(counts, added, removed), 0.5, **{option: value}) <= 0.5


@pytest.mark.parametrize(
    ("name", "shape", "events"),
    [
        *(
            (name, (13,), 40)
            for name in names(1)
            if {"known_total", "neighbours"} & set(describe(name).options)
        ),
        ("mwem_plane", (13, 13), 40),
        # Blocks are 13 bins wide up to 20 events, 12 for 21; below, 6 and 5.
        ("uniform_grid", (13, 13), 20),
        ("adaptive_grid", (64, 64), 38_719),
    ],
)
def test_under_the_weaker_relation_an_added_event_shows_without_noise(name, shape, events, privacy_loss):
    """Why a release names its relation: the exact total is in what is published, or says what is measured."""
    counts = np.zeros(shape, dtype=int)
    counts.flat[3] = events
    [weaker] = [dict([each]) for each in PUBLIC_TOTAL if each[0] in describe(name).options]
    with pytest.raises((AssertionError, ValueError)):  # other steps, or other numbers of blocks
        privacy_loss(name, counts, changed(counts, 3), 0.5, **weaker)
    assert privacy_loss(name, counts, changed(counts, 5, 3), 0.5, **weaker) <= 0.5


@pytest.mark.parametrize("name", names())
def test_by_default_a_release_is_for_an_event_added_or_removed(name):
    made = release(name, counts_for(name), 1, noise=SeededNoise(1))
    assert made.neighbours == describe(name).neighbours == "add_remove"
