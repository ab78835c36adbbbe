"""Options of windows' mechanisms: stored forms, refusals; no option changes the guarantee."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dphist import SeededNoise, SystemNoise, mechanisms
from dphist.mechanisms import describe
from dphist.planning.load import WindowLoad
from dphist.windows.design import WindowDesign, checked_options, known_options, window_mechanisms
from dphist.windows.error import window_error
from tests.dphist.mechanisms.good_options import good_options
from tests.dphist.windows.test_design import design_of

pytestmark = pytest.mark.slow  # many designs: only ``make test`` runs this module


def good() -> list[tuple[str, str, Any]]:
    """Return (mechanism, option, value) for every option that may be set."""
    known = {mechanism: known_options(mechanism) for mechanism in window_mechanisms()}
    return [one for one in good_options() if one[1] in known.get(one[0], {})]


def written(value: object) -> object:
    """Return a value as a configuration may write it."""
    if isinstance(value, Fraction):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize(("mechanism", "option", "value"), good())
def test_an_option_reaches_the_mechanism_and_costs_the_same(mechanism: str, option: str, value: Any) -> None:
    options = checked_options(mechanism, {option: written(value)})
    design = replace(design_of(mechanism, buckets=13), options=options)
    WindowLoad.of(design, float)
    assert WindowDesign.from_json(design.to_json(), design.time) == design
    cells = np.random.default_rng(5).integers(0, 60, design.cells)
    noise = SeededNoise(2)
    made = [
        mechanisms.release(mechanism, row, design.epsilon, noise=noise, **{option: value})
        for row in cells.reshape(2, 13)
    ]
    expected = np.rint(np.concatenate([each.counts for each in made]) * 2**16)
    assert np.array_equal(design.release(cells, SeededNoise(2)), expected)
    for each in made:
        assert sum(spent for _, spent in each.budget) == design.epsilon


@pytest.mark.parametrize("mechanism", window_mechanisms())
def test_options_that_change_the_guarantee_are_refused(mechanism: str) -> None:
    """Options are refused if their text says that they protect moved events only or that data is public."""
    options = describe(mechanism).options
    weaker = {
        name
        for name, option in options.items()
        if {"moved", "move", "public", "exact"} & set(option.text.split())
    }
    assert weaker == set(options) - set(known_options(mechanism))
    for name in [*weaker, "continuous"]:
        for value in (True, False, "substitute"):
            with pytest.raises(ValueError, match=f"^{name} .*; leave it out$") as told:
                checked_options(mechanism, {name: value})
            assert "\n" not in str(told.value)
            with pytest.raises(ValueError, match=name):
                replace(design_of(mechanism), options={name: value})


@pytest.mark.parametrize(
    ("mechanism", "options", "said"),
    [
        ("dawa", {"ratio": 2}, "dawa has no ratio; known here: bucket_penalty, deviation_from, merge, part"),
        ("identity", {"ratio": 2}, "identity has no ratio; known here: no options"),
        ("hb", {"branching": "x"}, "hb branching is 'x'; choose a whole number from 2 on or None"),
        ("hb", {"branching": 2.5}, "hb branching is 2.5; choose a whole number from 2 on or None"),
        ("h", {"branching": True}, "h branching is True; choose a whole number from 2 on"),
        ("h", {"branching": None}, "h branching is None; choose a whole number from 2 on"),
        ("cdf_tree", {"branching": [2, "x"]}, "cdf_tree branching is [2, 'x']; choose"),
        ("cdf_tree", {"consistent": "yes"}, "consistent is 'yes'; choose 'absolute' or 'squared' or None"),
        ("dawa", {"merge": "yes"}, "merge is 'yes'; choose True or False"),
        ("dawa", {"bucket_penalty": float("nan")}, "bucket_penalty is nan; choose a number from 0 to 1000"),
        ("dawa", {"bucket_penalty": "2"}, "bucket_penalty is '2'; choose a number from 0"),
        ("dawa", {"partition_share": 1}, "partition_share is 1; choose a number between 0 and 1"),
        (
            "dawa",
            {"partition_share": float("nan")},
            "partition_share is nan; choose a number between 0 and 1",
        ),
        ("dawa", {"partition_share": "7/4"}, "partition_share is '7/4'; choose a number between 0 and 1"),
        ("dawa", {"tree": "best of all"}, "dawa tree is 'best of all'; choose 'best' or 'greedy'"),
        ("dawa", {"partition_share": [1]}, "partition_share is [1]; choose a number between"),
    ],
)
def test_bad_options_are_named_with_value_and_remedy(
    mechanism: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError) as told:
        checked_options(mechanism, options)
    assert said in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("mechanism", "options"),
    [
        ("cdf_tree", {"branching": [2, 2]}),
        ("adaptive_tree", {"blocks_share": "1/2", "pieces_share": "1/2"}),
        ("structure_first", {"buckets": 9}),
    ],
)
def test_an_option_that_does_not_fit_the_histogram_is_refused_before_counting(
    mechanism: str, options: dict[str, Any]
) -> None:
    design = replace(design_of(mechanism), options=checked_options(mechanism, options))
    with pytest.raises(ValueError, match=f"^mechanism: {mechanism}: ") as told:
        WindowLoad.of(design, float)
    assert "\n" not in str(told.value)


def test_designs_without_options_keep_their_text() -> None:
    """The text is part of the strategy's hash, which must not change under a running stream."""
    text = '{"bins":3,"buckets":8,"histograms":2,"mechanism":"dawa","share":"4/5"}'
    assert design_of("dawa").to_json() == text
    design = replace(design_of("dawa"), options={"merge": True})
    assert design.to_json() == text.replace(',"share"', ',"options":{"merge":true},"share"')
    assert design != design_of("dawa")
    for unkept in ({"partition_share": 0.2}, {"partition_share": "2/10"}):
        changed = replace(design, options=checked_options("dawa", unkept))
        with pytest.raises(ValueError, match="not as they are kept"):
            replace(changed, options=unkept)


def test_bands_depend_on_the_options() -> None:
    epsilon, options = Fraction(1), (("branching", 8),)
    error = window_error("h_bar", 32, epsilon, 0.9, options)
    plain = window_error("h_bar", 32, epsilon, 0.9)
    assert error is not None
    assert plain is not None
    release = mechanisms.release("h_bar", [0] * 32, epsilon, noise=SeededNoise(0), branching=8)
    exact = release.variance([[bucket, bucket + 1] for bucket in range(32)])
    assert exact is not None
    assert np.allclose(error.bucket_stderr, np.sqrt(exact), rtol=0.15)
    assert not np.allclose(plain.bucket_stderr, np.sqrt(exact), rtol=0.15)


def test_no_error_is_stated_for_consistent_counts() -> None:
    """The correction of consistent counts depends on the data, so its error is not known beforehand."""
    counts = np.array([0, 0, 0, 90, 0, 0, 0, 0])
    runs = [
        mechanisms.release("cdf_tree", some, 1, noise=SeededNoise(3), consistent="absolute").counts
        for some in (counts, 0 * counts)
    ]
    assert not np.allclose(runs[0] - counts, runs[1], atol=1e-6)
    assert window_error("cdf_tree", 8, Fraction(1), 0.95, (("consistent", "absolute"),)) is None
    assert design_of("cdf_tree").release(np.arange(16), SystemNoise()).shape == (16,)
