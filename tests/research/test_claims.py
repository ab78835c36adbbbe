"""A claim holds if its statement is true. The tolerance allows only for the chance of trials."""

import numpy as np
import pytest

from research import cdf, hay2010
from research.findings import Number, Result, at_least, at_most, ratio
from research.histograms import Histogram

LENGTHS = [2**power for power in range(14)]


def held(claims):
    return {claim.text.split(" ")[0] + claim.paper: claim.holds for claim in claims}


def range_claims(at_largest=6.0, crossing=2000.0, left=0.3, spread=0.001):
    """Return claims about errors: from some length on H~ is better, and at the largest by a factor."""
    flat = [length * 1.0 for length in LENGTHS]
    tree = [length * (crossing / length) ** 0.5 for length in LENGTHS[:-1]] + [flat[-1] / at_largest]
    rows = {
        "L~": [(error, spread * error) for error in flat],
        "H~": [(error, spread * error) for error in tree],
        "H-bar": [(error * left, spread * error * left) for error in flat],
    }
    return held(hay2010.range_claims({("one", 1.0): rows}, {"one": LENGTHS}))


def test_all_range_claims_hold_for_the_papers_errors():
    claims = range_claims()
    assert claims["H~about 2000"]
    assert claims["L~4 to 8"]
    assert claims["H-bar45% to 98%"]


@pytest.mark.parametrize(("ratio", "holds"), [(3.9, False), (4.0, True), (8.0, True), (8.1, False)])
def test_ratio_at_the_largest_range_must_lie_between_both_bounds(ratio, holds):
    assert range_claims(at_largest=ratio)["L~4 to 8"] == holds
    assert range_claims(at_largest=ratio, spread=0.05)["L~4 to 8"]  # chance may move the error this far


@pytest.mark.parametrize(("left", "holds"), [(0.56, False), (0.54, True), (0.021, True), (0.01, False)])
def test_gains_must_lie_between_both_bounds(left, holds):
    assert range_claims(left=left)["H-bar45% to 98%"] == holds


@pytest.mark.parametrize(("bins", "holds"), [(500, False), (1500, True), (3500, True), (7000, False)])
def test_claim_fails_if_the_errors_cross_at_another_length(bins, holds):
    assert range_claims(crossing=bins)["H~about 2000"] == holds


def rounding_holds(gain, spread=0.001):
    histograms = [Histogram(name, np.zeros(0, np.int64), "made up", False) for name in "abcd"]
    found = {
        (h.name, epsilon): {"S~r": [(gain, spread)], "S-bar": [(1.0, 0.0)]}
        for h in histograms
        for epsilon in (1.0, 0.1, 0.01)
    }
    return hay2010.rounding_claim(found, histograms).holds


def test_isotonic_counts_a_little_worse_than_rounded_ones_are_not_below_them():
    assert rounding_holds(1.1)
    assert not rounding_holds(0.95)
    assert rounding_holds(0.95, spread=0.02)


def test_a_tree_a_little_worse_than_the_others_does_not_beat_them():
    def holds(gain, spread):
        errors = {(label, bins): (100.0, 0.0) for label in cdf.TREES for bins in (17, 289)}
        errors["17 at every level", 289] = (100.0 * gain, 100.0 * spread)
        errors |= {("optimal tree, refined", bins): (50.0, 0.1) for bins in (17, 289)}
        errors |= {(label, bins): (error, 1.0) for (label, bins), (error, s) in errors.items() if not s}
        return held(cdf.tree_claims(errors, (17, 289)))["Withyes"]

    assert holds(0.9, 0.001)
    assert not holds(1.04, 0.001)


def test_consistency_that_raises_an_error_beyond_chance_does_not_lower_it():
    nothing = Result("r", "r", "table", "", "", [])
    numbers = [Number("p", "as measured", "x", 1.0), Number("p", "consistent, closest in L1", "x", 0.8)]
    results = [Result("r", "r", "table", "", "", numbers), nothing]
    assert cdf.consistency_claim(results, [(-0.2, 0.01), (0.001, 0.001)]).holds
    assert not cdf.consistency_claim(results, [(-0.2, 0.01), (0.005, 0.001)]).holds
    assert not cdf.consistency_claim(results, [(-0.002, 0.001)]).holds


def test_ratios_and_bounds():
    value, spread = ratio((6.0, 0.3), (2.0, 0.2))
    assert value == 3.0
    assert spread == pytest.approx(3 * (0.05**2 + 0.1**2) ** 0.5)
    assert at_most((1.1, 0.04), 1.0)
    assert not at_most((1.1, 0.03), 1.0)
    assert not at_least((0.9, float("nan")), 1.0)
