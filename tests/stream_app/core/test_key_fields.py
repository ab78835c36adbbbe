"""Several key fields: every event is in one cell, patterns are sums of cells, labels are unambiguous."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.answers.asked_keys import AskedKeys, KeyNameError, labels_of_keys
from stream_app.core.counting.cells import Cells
from stream_app.core.counting.keys import KeyField, KeyList
from stream_app.core.incoming import Reason
from stream_app.core.meaning import left_out
from stream_app.core.strategy import canonical_json
from tests.examples import examples
from tests.stream_app.declared import declared_of

KEYS = KeyList(
    fields=(KeyField("geo.country", ("FR", "DE"), True), KeyField("device", ("mobile", "7"), False)),
    total=False,
)
TEXTS = st.lists(st.text("ab/\\*,", min_size=1, max_size=4), min_size=1, max_size=4, unique=True)
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    ["FR", "DE", "mobile", "7", 7, "other", None, True, [], {"a": 1}, 2.5]
)


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
    assert labels_of_keys(KEYS)[3] == {"key": "DE/7", "geo_country": "DE", "device": "7"}
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
