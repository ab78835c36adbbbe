"""Options of every mechanism: the relation of each guarantee, and which values are accepted or refused."""

import re
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from dphist.mechanisms import checked_options, describe, names, release
from dphist.noise import SeededNoise
from tests.dphist.mechanisms.good_options import good_options

pytestmark = pytest.mark.slow  # many designs: only ``make test`` runs this module

GOOD = good_options()
# The options under which one more event changes what is published without noise.
PUBLIC_TOTAL = [("known_total", True), ("neighbours", "substitute")]

# They publish a partition, but not its noisy costs. test_partition.py and test_dawa.py check what it costs.
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
def test_release_names_the_relation_for_which_its_steps_cost_epsilon(name, option, value, privacy_loss):
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
def test_added_event_shows_without_noise_if_the_total_is_public(name, shape, events, privacy_loss):
    """The exact total is a published value, or it decides how much is measured."""
    counts = np.zeros(shape, dtype=int)
    counts.flat[3] = events
    [weaker] = [dict([each]) for each in PUBLIC_TOTAL if each[0] in describe(name).options]
    with pytest.raises((AssertionError, ValueError)):  # either the steps differ, or the number of blocks
        privacy_loss(name, counts, changed(counts, 3), 0.5, **weaker)
    assert privacy_loss(name, counts, changed(counts, 5, 3), 0.5, **weaker) <= 0.5


@pytest.mark.parametrize("name", names())
def test_default_guarantee_is_for_an_event_added_or_removed(name):
    made = release(name, counts_for(name), 1, noise=SeededNoise(1))
    assert made.neighbours == describe(name).neighbours == "add_remove"


class Unprintable:
    """A value whose repr raises an error."""

    def __repr__(self):
        raise RuntimeError("no")


# Values of wrong kinds. An option may take one of them only where ``is_of_its_kind`` says so.
BAD: list[Any] = [
    *(float("nan"), float("inf"), -float("inf"), -1, -0.5, 2.5 + 2**40, "x", "1", "", b"2", [], [0], (2.5,)),
    *(
        {},
        object(),
        Unprintable(),
        1j,
        10**5000,
        -(10**5000),
        np.array([1, 2]),
        np.array(["squared"]),
        np.nan,
        2**70 + 0.5,
        True,
        None,
    ),
    *(False, 0, 1, 2, 0.5, 2.5, "True", (1, 1), Decimal("0.5"), np.datetime64("NaT", "s")),
]
KINDS = {
    "a whole number": lambda value: type(value) is int,
    "a number from": lambda value: type(value) in (int, float) and abs(value) < float("inf"),
    "a number between": lambda value: type(value) in (int, float) and abs(value) < float("inf"),
    "True or False": lambda value: type(value) is bool,
    "'": lambda value: False,
    "a tuple": lambda value: type(value) is tuple and value[0] == 1,
}
OPTIONS = [(name, option) for name in names() for option in describe(name).options]


def is_of_its_kind(option, value):
    [right] = [kind for words, kind in KINDS.items() if option.rule.startswith(words)]
    return right(value) or (value is None and option.or_none)


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_a_value_of_another_kind_is_refused_by_name_before_anything_is_measured(name, option):
    known = describe(name).options[option]
    wrong = [value for value in BAD if not is_of_its_kind(known, value)]
    assert len(wrong) >= 20
    for value in wrong:
        with pytest.raises(ValueError, match=f"^{name} {option} is .*; choose ") as refusal:
            release(name, counts_for(name), 1, noise=Untouched(), **{option: value})
        assert len(str(refusal.value)) < 250
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_value_of_the_right_kind_is_used_or_refused_by_name(name, option):
    """Numbers out of range, or larger than the histogram can use."""
    known = describe(name).options[option]
    for value in filter(partial(is_of_its_kind, known), BAD):
        refusals = []
        try:
            made = release(name, counts_for(name), 1, noise=SeededNoise(1), **{option: value})
            assert np.isfinite(made.counts).all()
        except ValueError as refusal:
            refusals.append(str(refusal))
        assert all(option in said or option.replace("_", " ") in said for said in refusals)


class Untouched:
    """Noise that fails the test if a mechanism draws it."""

    private = False

    def discrete_laplace(self, scale, shape):
        raise AssertionError("measured before options were checked")

    def select(self, scores, scale):
        raise AssertionError("selected before options were checked")


@pytest.mark.parametrize("name", names())
def test_every_option_accepts_its_default_and_states_its_rule(name):
    row = describe(name)
    assert checked_options(name, row.defaults()) == row.defaults()
    for option in row.options.values():
        assert option.text
        assert option.rule


@pytest.mark.parametrize(
    ("name", "option", "given", "taken"),
    [
        ("h", "branching", np.int64(3), 3),
        ("dawa", "partition_share", 0.25, Fraction(1, 4)),
        ("dawa", "partition_share", np.float32(0.25), Fraction(1, 4)),
        ("partition_geometric", "level_ratio", 2, 2.0),
        ("dawa", "merge", np.bool_(True), True),
        ("cdf_tree", "branching", [4, np.int64(4)], (4, 4)),
    ],
)
def test_mechanism_gets_each_value_in_the_type_that_it_computes_with(name, option, given, taken):
    checked = checked_options(name, {option: given})[option]
    assert checked == taken
    assert type(checked) is type(taken)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("h", {"branching": 2.5}, "h branching is 2.5; choose a whole number from 2 on"),
        ("hb", {"branching": 1}, "hb branching is 1; choose a whole number from 2 on or None"),
        ("p_hp", {"partition_share": np.inf}, "p_hp partition_share is inf; choose a number between 0 and 1"),
        (
            "cdf_tree",
            {"consistent": np.nan},
            "cdf_tree consistent is nan; choose 'absolute' or 'squared' or None",
        ),
        (
            "h_bar_nonnegative",
            {"round_counts": "x"},
            "h_bar_nonnegative round_counts is 'x'; choose True or False",
        ),
        ("partition_geometric", {"level_ratio": True}, "is True; choose a number from 1 to 2"),
        ("structure_first", {"buckets": 14}, "buckets is 14; choose 1 to 13, the number of bins"),
        ("cdf_tree", {"branching": (2, 2)}, "does not cover 13 bins"),
        ("hybridtree", {"median_levels": 4, "depth": 3}, "4 median levels of 3"),
        ("adaptive_tree", {"blocks_share": 0.5, "pieces_share": 0.5}, "leave something for the tree"),
    ],
)
def test_a_wrong_option_is_refused_with_its_rule(name, options, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        release(name, counts_for(name), 1, noise=SeededNoise(1), **options)


def test_a_branching_above_the_number_of_bins_is_the_flat_tree():
    counts = counts_for("h")
    for name in ("h", "h_bar", "hb", "greedy_h", "partition_uniform"):
        flat, far = (release(name, counts, 1, noise=SeededNoise(1), branching=b) for b in (13, 10**400))
        np.testing.assert_array_equal(flat.counts, far.counts)
