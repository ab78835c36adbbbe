"""An event's cell depends on its own fields alone, and equals a second, independent computation."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.counting.cells import Amounts, Buckets, Cells
from stream_app.core.counting.keys import KeyList
from stream_app.core.incoming import Reason

CELLS = Cells(KeyList("k", ("UA", "7", "true"), False, False), Buckets("v", Fraction(-1), Fraction(2), 6))
keys = st.sampled_from(["UA", "7", 7, True, "true", "AA", None, 7.0, ["UA"], {"a": 1}, ""])
values = st.sampled_from(
    [-5, -1, -0.5, 0, 0.25, 1.9999, 2, 10**400, -(10**400), None, True, "0.5", "x", "1e1", "nan", [1]]
)


def expected(key: Any, value: Any) -> int | Reason:
    place = {"UA": 0, "7": 1, "true": 2}.get("true" if key is True else "7" if key == 7.0 else str(key))
    if isinstance(key, list | dict) or key is None or place is None:
        return Reason.UNKNOWN_KEY
    try:
        number = (
            Fraction(value) if isinstance(value, int | str) and value is not True else Fraction(float(value))
        )
        assert value is not True
    except (ValueError, TypeError, AssertionError):
        return Reason.BAD_VALUE
    return int(place * 6 + min(max((number + 1) * 2 // 1, 0), 5))


def column(items: list[Any]) -> np.ndarray:
    return np.fromiter(items, dtype=object, count=len(items))


@given(st.lists(st.tuples(keys, values), max_size=12), st.data())
def test_cells_are_those_of_the_declaration(events: list[tuple[Any, Any]], data: st.DataObject) -> None:
    columns = {"k": column([key for key, _ in events]), "v": column([value for _, value in events])}
    start = data.draw(st.integers(0, len(events)))
    cells, refused = CELLS.assign(columns, slice(start, len(events)))
    for index, (key, value) in enumerate(events[start:]):
        wanted = expected(key, value)
        reasons = [reason for reason, mask in refused.items() if mask[index]]
        assert reasons == ([wanted] if isinstance(wanted, Reason) else [])
        assert isinstance(wanted, Reason) or cells[index] == wanted


def test_unlisted_keys_count_as_other() -> None:
    listed = KeyList("k", ("a",), True, False)
    assert listed.labels == ("a", "other")
    assert listed.places(["a", "other", None, {"b": 1}]).tolist() == [0, 1, 1, 1]


def test_without_axes_there_is_one_cell() -> None:
    assert Cells().width == 1
    cells, refused = Cells().assign({}, slice(2, 5))
    assert (cells.tolist(), refused) == ([0, 0, 0], {})


AMOUNTS = Amounts("a", Fraction(-1), Fraction(2), Fraction(1, 100))
amounts = st.one_of(
    st.integers(-400, 400).map(lambda units: units / 100),
    st.sampled_from([10**400, -(10**400), None, True, "0.37", "x", "nan", "1e1", [1], float("inf")]),
)


def units_of(value: Any) -> int | None:
    """Return an amount in hundredths, moved into the range, by decimal arithmetic; None for no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return None if number.is_nan() else int(100 * min(max(number, Decimal(-1)), Decimal(2)))


@given(st.lists(st.tuples(st.integers(0, 3), keys, amounts), max_size=30))
def test_amounts_add_up_to_the_recounted_sums(events: list[tuple[int, Any, Any]]) -> None:
    """Both cells of a key give its number of events and the sum of its amounts, exactly."""
    cells = Cells(KeyList("k", ("UA", "7", "true"), True, False), None, AMOUNTS)
    columns = {"k": column([key for _, key, _ in events]), "a": column([amount for *_, amount in events])}
    places, refused = cells.assign(columns, slice(0, len(events)))
    bins = np.array([bin for bin, *_ in events], np.int64)
    bad = refused.get(Reason.BAD_VALUE, np.zeros(len(events), np.bool_))
    assert bad.tolist() == [units_of(amount) is None for *_, amount in events]
    found = np.zeros((4, 4, 2), np.int64)
    for bin, cell, delta in zip(*cells.added(bins[~bad], places[~bad]), strict=True):
        assert found[bin, cell // 2, cell % 2] == 0  # each cell once
        assert delta > 0
        found[bin, cell // 2, cell % 2] = delta
    counts, sums = np.zeros((4, 4), np.int64), np.zeros((4, 4), np.int64)
    for bin, key, amount in events:
        if (units := units_of(amount)) is not None:
            place = int(cells.keys.places([key])[0]) if cells.keys else 0
            counts[bin, place] += 1
            sums[bin, place] += units
    low, high = found[..., 0], found[..., 1]
    assert np.array_equal(low + high, 300 * counts)
    assert np.array_equal(-100 * low + 200 * high, 300 * sums)


def test_deltas_of_a_large_slice_are_exact() -> None:
    cells = Cells(amounts=Amounts("a", Fraction(0), Fraction(100_000), Fraction(1)))
    places = np.full(300_000, 99_999)
    assert [part.tolist() for part in cells.added(places * 0, places)] == [
        [0, 0],
        [0, 1],
        [300_000, 300_000 * 99_999],
    ]


def test_an_amount_halfway_between_two_units_goes_to_the_even_one_counted_from_the_least() -> None:
    """``meaning_of_amounts`` says this rule to readers."""
    halves = [0.5, 1.5, 2.5, 3.5]
    assert Amounts("a", Fraction(0), Fraction(4), Fraction(1)).places(halves).tolist() == [0, 2, 2, 4]
    assert Amounts("a", Fraction(-1), Fraction(4), Fraction(1)).places(halves).tolist() == [2, 2, 4, 4]
