"""An event's cell depends on its own fields alone, and equals a second, independent computation.

Of several key fields every event is in one cell, patterns are sums of cells, and labels are unambiguous.
"""

from __future__ import annotations

import time
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.answers.asked_keys import AskedKeys, KeyNameError, labels_of_keys
from stream_app.core.counting.cells import Amounts, Buckets, Cells
from stream_app.core.counting.keys import KeyField, KeyList
from stream_app.core.incoming import Reason
from stream_app.core.meaning import left_out
from stream_app.core.strategy import canonical_json
from tests.examples import examples
from tests.stream_app.declared import declared_of

CELLS = Cells(KeyList("k", ("UA", "7", "true"), False, False), Buckets("v", Fraction(-1), Fraction(2), 6))
keys = st.sampled_from(["UA", "7", 7, True, "true", "AA", None, 7.0, ["UA"], {"a": 1}, ""])
values = st.sampled_from(
    [-5, -1, -0.5, 0, 0.25, 1.9999, 2, 10**400, -(10**400), None, True, "0.5", "x", "1e1", "nan", [1]]
)

KEYS = KeyList(
    fields=(KeyField("geo.country", ("FR", "DE"), True), KeyField("device", ("mobile", "7"), False)),
    total=False,
)
TEXTS = st.lists(st.text("ab/\\*,", min_size=1, max_size=4), min_size=1, max_size=4, unique=True)
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    ["FR", "DE", "mobile", "7", 7, "other", None, True, [], {"a": 1}, 2.5]
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


def lists() -> st.SearchStrategy[KeyList]:
    parts = st.builds(KeyField, st.just("f"), TEXTS.map(tuple), st.booleans())
    return st.lists(parts, min_size=2, max_size=3).map(
        lambda drawn: KeyList(
            fields=tuple(KeyField(f"f{at}", one.names, one.other) for at, one in enumerate(drawn)),
            total=False,
        )
    )


def place_by_hand(keys: KeyList, values: list[Any]) -> int:
    """Return the place of one event's key by comparing with every combination, -1 if there is none."""
    wanted = []
    for part, value in zip(keys.fields, values, strict=True):
        text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
        if isinstance(value, bool):
            text = str(value).lower()
        if text not in part.names:
            text = "other" if part.other else None
        wanted.append(text)
    return next(
        (at for at, one in enumerate(product(*(part.values for part in keys.fields))) if [*one] == wanted), -1
    )


@examples(100)
@given(st.lists(st.tuples(VALUES, VALUES), max_size=8))
def test_every_event_is_in_one_cell_or_in_none(events: list[tuple[Any, Any]]) -> None:
    """An event is in at most one cell, so one event more changes one count by one: the sensitivity is 1."""
    cells = Cells(KEYS)
    fields = {"geo.country": [one for one, _ in events], "device": [other for _, other in events]}
    columns = {name: np.fromiter(values, object, len(events)) for name, values in fields.items()}
    places, refused = cells.assign(columns, slice(0, len(events)))
    expected = [place_by_hand(KEYS, [*one]) for one in events]
    none = refused.get(Reason.UNKNOWN_KEY, np.zeros(len(events), np.bool_))
    assert none.tolist() == [place < 0 for place in expected]
    assert [p for p, bad in zip(places.tolist(), none.tolist(), strict=True) if not bad] == [
        place for place in expected if place >= 0
    ]
    counted = places[~none]
    if len(counted):
        _, touched, deltas = cells.added(np.zeros(len(counted), np.int64), counted)
        _, fewer, before = cells.added(np.zeros(len(counted) - 1, np.int64), counted[:-1])
        change = np.zeros(cells.width, np.int64)
        np.add.at(change, touched, deltas)
        np.subtract.at(change, fewer, before)
        assert np.abs(change).sum() == 1


def test_labels_and_width() -> None:
    assert KEYS.labels == ("FR/mobile", "FR/7", "DE/mobile", "DE/7", "other/mobile", "other/7")
    assert Cells(KEYS).width == 6
    assert Cells(KEYS).fields == ("geo.country", "device")
    assert [*labels_of_keys(KEYS)][3] == {"key": "DE/7", "geo_country": "DE", "device": "7"}
    assert KEYS.values_at(4) == {"geo.country": "other", "device": "mobile"}


@examples(200)
@given(lists())
def test_labels_are_unambiguous_and_patterns_match_their_values(keys: KeyList) -> None:
    assert len(set(keys.labels)) == len(keys.labels)
    every = list(product(*(range(size) for size in keys.sizes)))
    for field, size in enumerate(keys.sizes):
        for value in range(size):
            pattern = keys.pattern_of(field, value)
            expected = tuple(at for at, one in enumerate(every) if one[field] == value)
            assert keys.matching(pattern) == expected
            assert AskedKeys((pattern,)).places(keys) == expected
    assert keys.matching("/".join("*" for _ in keys.sizes)) == tuple(range(len(keys.labels)))
    for place, label in enumerate(keys.labels):
        assert AskedKeys((label,)).places(keys) == place


@pytest.mark.parametrize("end", ["\\", "\\/", "/\\"])
def test_work_of_a_pattern_grows_with_its_length_only(end: str) -> None:
    began_s = time.process_time()
    assert KEYS.matching("a" * 300_000 + end) == ()
    assert time.process_time() - began_s < 1


def test_all_but_a_pattern_and_several_patterns() -> None:
    assert AskedKeys(("FR/*", "DE/7")).places(KEYS) == (0, 1, 3)
    assert AskedKeys(("*/7",), without=True).places(KEYS) == (0, 2, 4)


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (("FR/tv",), "'FR/tv' is not on the public list; known are FR/mobile,"),
        (("FR",), "and patterns such as FR/*"),
        (("IT/*",), "'IT/*' is not on the public list"),
        (("*",), "'*' is not on the public list"),
        (("FR/*/*",), "'FR/*/*' is not on the public list"),
        (("FR/*", "*/7"), "'*/7' has keys that 'FR/*' has too; take one out"),
        (("FR/*", "FR/7"), "'FR/7' has keys that 'FR/*' has too; take one out"),
    ],
)
def test_wrong_names_are_refused_in_one_line(names: tuple[str, ...], line: str) -> None:
    with pytest.raises(KeyNameError) as refusal:
        AskedKeys(names).places(KEYS)
    assert line in str(refusal.value)


def test_star_is_a_pattern_of_several_fields_only() -> None:
    one = KeyList("c", ("*", "FR/*"), False, False)
    assert (AskedKeys(("*",)).places(one), AskedKeys(("FR/*",)).places(one)) == (0, 1)


def test_stored_text_names_fields_and_lists() -> None:
    text = canonical_json(msgspec.to_builtins(KEYS))
    assert text == (
        b'{"fields":[{"field":"geo.country","list":["FR","DE"],"other":true},'
        b'{"field":"device","list":["mobile","7"],"other":false}],"total":false}'
    )
    assert msgspec.convert(msgspec.json.decode(text), KeyList) == KEYS
    single = canonical_json(msgspec.to_builtins(KeyList("c", ("FR",), True, False)))
    assert single == b'{"field":"c","list":["FR"],"other":true,"total":false}'


def test_words_name_the_fields_without_other() -> None:
    assert left_out(declared_of(keys=KEYS)) == "Events whose device is not one of its keys are not counted."
