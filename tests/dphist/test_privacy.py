"""Privacy costs add up exactly, without floats and without rounding."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.privacy import check_shares, exact, path_epsilon, sensitivity


@pytest.mark.parametrize(
    ("value", "fraction"),
    [
        (0.1, Fraction(1, 10)),
        ("0.1", Fraction(1, 10)),
        (1e-3, Fraction(1, 1000)),
        ("1e9", Fraction(10**9)),
        (3, Fraction(3)),
        ("2/3", Fraction(2, 3)),
        (Decimal("0.25"), Fraction(1, 4)),
        (Fraction(1, 3), Fraction(1, 3)),
    ],
)
def test_a_number_is_what_its_text_says(value: object, fraction: Fraction) -> None:
    assert exact(value) == fraction  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        0.0,
        -0.5,
        math.nan,
        math.inf,
        "nan",
        "inf",
        "-inf",
        "",
        "one",
        "1/0",
        "0/1",
        "-1/2",
        True,
        None,
        [1],
        "1e999999999",
        "1e-999999999",
        "1/1e999999999",
        "9" * 5000,
        "1/2/3",
    ],
)
def test_an_epsilon_that_is_not_positive_is_refused_in_one_line(value: object) -> None:
    with pytest.raises(
        ValueError, match=r"^budget: [^\n]{1,120} is not a finite number above zero"
    ) as refused:
        exact(value, "budget")  # type: ignore[arg-type]
    assert len(str(refused.value)) < 150


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_a_float_reads_as_it_prints(value: float) -> None:
    assert float(exact(value)) == value
    assert exact(value) == exact(repr(value)) == Fraction(repr(value))


def test_sensitivity_doubles_under_substitution() -> None:
    assert sensitivity(1, "add_remove") == 1
    assert sensitivity(3, "substitute") == 6
    for max_events in (0, -1, True, 1.0):
        with pytest.raises(ValueError, match="max_events"):
            sensitivity(max_events, "add_remove")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="neighbours"):
        sensitivity(1, "swap")  # type: ignore[arg-type]


def test_a_path_costs_the_exact_sum_over_its_levels() -> None:
    assert path_epsilon([Fraction(3), Fraction(6)], 2) == 1
    # The double nearest to 0.1 is above 1/10, so as a scale it costs less than 10.
    assert 10 - path_epsilon([0.1], 1) == 10 - 1 / Fraction(0.1) > 0
    for scale in (0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="scale"):
            path_epsilon([scale], 1)


def test_shares_beyond_one_are_refused_however_small_the_excess() -> None:
    check_shares([Fraction(1, 3)] * 3)
    with pytest.raises(ValueError, match="add up"):
        check_shares([Fraction(1, 2), Fraction(1, 2) + Fraction(1, 10**40)])
    with pytest.raises(ValueError, match="level 2"):
        check_shares([Fraction(1, 2), Fraction(0)])
    with pytest.raises(ValueError, match="level 1"):
        check_shares([0.5])  # type: ignore[list-item]
