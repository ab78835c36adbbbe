"""An event's cell depends on its own fields alone, and equals a second, independent computation."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.cells import Buckets, Cells, KeyList
from stream_app.core.records import Reason

CELLS = Cells(KeyList("k", ("UA", "7", "true"), False, False), Buckets("v", Fraction(-1), Fraction(2), 6))
keys = st.sampled_from(["UA", "7", 7, True, "true", "AA", None, 7.0, ["UA"], {"a": 1}, ""])
values = st.sampled_from(
    [-5, -1, -0.5, 0, 0.25, 1.9999, 2, 10**400, -(10**400), None, True, "0.5", "x", "1e1", "nan", [1]]
)


def expected(key: Any, value: Any) -> int | Reason:
    place = {"UA": 0, "7": 1, "true": 2}.get("true" if key is True else str(key))
    if isinstance(key, float | list | dict) or key is None or place is None:
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
