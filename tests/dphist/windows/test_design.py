"""Windows: privacy costs added to the tree's, for every unit and relation, and how often bands hold."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import SeededNoise, SystemNoise, mechanisms
from dphist.mechanisms.registry import CALIBRATED, UNATTRIBUTED
from dphist.planning.load import WindowLoad
from dphist.privacy import Neighbours, path_epsilon, sensitivity
from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape
from dphist.windows.design import WindowDesign, window_mechanisms
from dphist.windows.error import window_error
from tests.examples import examples
from tests.oracles import NoNoise


def design_of(
    mechanism: str = "identity",
    *,
    epsilon: Fraction = Fraction(1),
    share: Fraction = Fraction(4, 5),
    histograms: int = 2,
    buckets: int = 8,
    max_events: int = 1,
    neighbours: Neighbours = "add_remove",
) -> WindowDesign:
    shape = TreeShape((2, 3))
    shares = ((1 - share) / 2,) * 2
    steps = sensitivity(max_events, neighbours)
    time = TreeDesign(shape, 6, epsilon, shares, neighbours, steps)
    return WindowDesign(time, 3, histograms, buckets, mechanism, share)


@given(
    st.fractions(Fraction(1, 50), 3, max_denominator=60),
    st.fractions(Fraction(1, 10), Fraction(9, 10), max_denominator=20),
    st.integers(1, 5),
    st.sampled_from(["add_remove", "substitute"]),
)
def test_tree_and_windows_together_spend_epsilon_and_no_more(
    epsilon: Fraction, share: Fraction, max_events: int, neighbours: Neighbours
) -> None:
    design = design_of(epsilon=epsilon, share=share, max_events=max_events, neighbours=neighbours)
    noise = NoNoise()
    design.release(np.ones(design.cells, np.int64), noise)
    # Identity draws once for each histogram; an event is in one cell of one of them.
    assert [size for _, size in noise.draws] == [(8,), (8,)]
    [scale] = {scale for scale, _ in noise.draws}
    steps = max_events * (1 if neighbours == "add_remove" else 2)
    spent = path_epsilon(design.time.scales, steps) + steps / scale
    assert spent <= epsilon
    assert spent > epsilon * (1 - Fraction(1, 10**12))  # scales are rounded up to doubles, no more


def test_shares_that_spend_more_than_epsilon_are_refused() -> None:
    design = design_of()
    refused: list[tuple[dict[str, Any], str]] = [
        ({"share": Fraction(9, 10)}, "more than the tree leaves"),
        ({"share": Fraction(1)}, "between 0 and 1"),
        ({"mechanism": "dawa_hilbert"}, "mechanism"),
        ({"mechanism": "magic"}, "mechanism"),
        ({"bins": 4}, "do not divide"),
        ({"histograms": 2**14}, "cells"),
    ]
    for wrong, word in refused:
        with pytest.raises(ValueError, match=word):
            replace(design, **wrong)
    with pytest.raises(ValueError, match="int64") as refusal:
        design.release(np.full(3, 77, np.int64), SystemNoise())
    assert "77" not in str(refusal.value)


@pytest.mark.parametrize("mechanism", window_mechanisms())
def test_every_mechanism_releases_a_window(mechanism: str) -> None:
    design = design_of(mechanism, epsilon=Fraction(10**9), buckets=16)
    cells = np.random.default_rng(4).integers(1, 40, design.cells)
    released = design.release(cells, SystemNoise()) / 2**16
    assert released.shape == (design.cells,)
    exact = {"structure_first", "p_hp", "efpa", "mwem"}  # these merge or smooth, whatever epsilon is
    if mechanism not in exact:
        expected = cells.reshape(2, 16)
        if mechanism in UNATTRIBUTED:
            expected = np.sort(expected)
        assert np.allclose(released.reshape(2, 16), expected, atol=1e-2)
    text = design.to_json()
    assert WindowDesign.from_json(text, design.time) == design


@pytest.mark.parametrize("neighbours", ["add_remove", "substitute"])
@pytest.mark.parametrize("mechanism", window_mechanisms())
def test_windows_release_for_one_added_event_under_every_relation(
    monkeypatch: pytest.MonkeyPatch, mechanism: str, neighbours: Neighbours
) -> None:
    made = []

    def noted(*given: Any, **options: Any) -> mechanisms.HistogramRelease:
        made.append(mechanisms.release(*given, **options))
        return made[-1]

    monkeypatch.setattr("dphist.mechanisms.registry.release", noted)
    design = design_of(mechanism, max_events=3, neighbours=neighbours)
    design.release(np.arange(design.cells), SystemNoise())
    steps = 3 * (1 if neighbours == "add_remove" else 2)
    assert {(each.neighbours, each.epsilon * steps) for each in made} == {("add_remove", Fraction(4, 5))}


@pytest.mark.parametrize(
    ("mechanism", "weaker"), [("cdf_tree", {"neighbours": "substitute"}), ("mwem", {"known_total": True})]
)
def test_a_window_refuses_a_release_whose_promise_is_for_moved_events(
    monkeypatch: pytest.MonkeyPatch, mechanism: str, weaker: dict[str, Any]
) -> None:
    monkeypatch.setattr("dphist.mechanisms.registry.release", partial(mechanisms.release, **weaker))
    design = design_of(mechanism)
    with pytest.raises(ValueError, match=f"^mechanism: {mechanism}: .*moved event only"):
        WindowLoad.of(design, lambda: 0.0)  # before anything is counted
    with pytest.raises(ValueError, match="moved event only"):
        design.release(np.arange(design.cells), SystemNoise())


def test_an_estimate_that_is_not_a_number_counts_as_0(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(
        mechanisms.release("identity", [0] * 4, 1), counts=np.array([np.nan, np.inf, -np.inf, 1.5])
    )
    monkeypatch.setattr("dphist.mechanisms.registry.release", lambda *_, **__: found)
    released = design_of(histograms=1, buckets=4).release(np.zeros(4, np.int64), SystemNoise())
    assert released.tolist() == [0, 2**62, -(2**62), 98_304]


def test_all_two_dimensional_mechanisms_are_left_out() -> None:
    assert set(window_mechanisms()) == set(mechanisms.names(1))
    assert {"dawa", "cdf_tree", "sorted_isotonic"} <= set(window_mechanisms())


CALIBRATED_WITH: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in CALIBRATED if name in window_mechanisms()),
    *(("hb", {"branching": 3}), ("h_bar", {"branching": 4}), ("cdf_refined", {"branching": (64,)})),
    ("cdf_tree", {"branching": (4, 16), "budgets": "equal"}),
]


@pytest.mark.parametrize(("mechanism", "options"), CALIBRATED_WITH)
@given(st.integers(0, 10**6), st.integers(1, 40))
@examples(8)
def test_calibrated_errors_do_not_depend_on_the_counts(
    mechanism: str, options: dict[str, Any], seed: int, buckets: int
) -> None:
    counts = np.random.default_rng(seed).integers(0, 1000, buckets)
    found, alone = (
        mechanisms.release(mechanism, some, Fraction(1, 3), noise=SeededNoise(seed), **options).counts
        for some in (counts, 0 * counts)
    )
    truth = np.sort(counts) if mechanism in UNATTRIBUTED else counts
    assert np.allclose(found - truth, alone, atol=1e-6)


def test_errors_that_depend_on_the_data_are_not_stated() -> None:
    counts = np.array([0] * 30 + [400] * 2)
    for mechanism in ("dawa", "sorted_isotonic", "h_bar_nonnegative"):
        assert window_error(mechanism, 32, Fraction(1), 0.95) is None
        found, alone = (
            mechanisms.release(mechanism, some, Fraction(1), noise=SeededNoise(1)).counts - np.sort(some)
            for some in (counts, 0 * counts)
        )
        assert not np.allclose(found, alone, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["identity", "cdf_tree", "h_bar"])
def test_bands_cover_at_their_stated_level(mechanism: str) -> None:
    """2,000 runs on other seeds: a band of 0.95 holds in fewer than 0.92 of them with probability < 1e-7."""
    error = window_error(mechanism, 40, Fraction(1), 0.95)
    assert error is not None
    noise, zeros = SeededNoise(77), np.zeros(40, np.int64)
    runs = np.array([mechanisms.release(mechanism, zeros, 1, noise=noise).counts for _ in range(2000)])
    for errors, reach in ((runs, error.bucket_reach), (runs.cumsum(axis=1), error.reach)):
        assert 0.92 < (np.abs(errors) <= reach).all(axis=1).mean() < 0.99
        assert (np.abs(errors) <= reach / 1.5).all(axis=1).mean() < 0.9
    assert np.allclose(runs.std(axis=0), error.bucket_stderr, rtol=0.15)
    exact = mechanisms.release(mechanism, zeros, 1, noise=noise).variance([[0, t] for t in range(1, 41)])
    assert exact is not None
    assert np.allclose(np.sqrt(exact), error.cumulative_stderr, rtol=0.15)
