"""The keys that a question names: one, a group, or all but some."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.answers.asked_keys import AskedKeys, KeyNameError, group_in_words
from stream_app.core.counting.keys import KeyList
from tests.examples import examples

LIST = KeyList(field="country", names=("FR", "DE", "IT"), other=True, total=False)


def places(*names: str, without: bool = False) -> object:
    return AskedKeys(names, without).places(LIST)


def test_a_single_key_has_one_place_and_a_group_has_several() -> None:
    assert places("DE") == 1
    assert places("other", "FR") == (0, 3)
    assert places("DE", without=True) == (0, 2, 3)
    assert places("FR", "DE", "IT", without=True) == (3,)


@pytest.mark.parametrize(
    ("names", "without", "line"),
    [
        (("ZZ",), False, "'ZZ' is not on the public list; known are FR, DE, IT, other"),
        (("FR", ""), False, "'' is not on the public list; known are FR, DE, IT, other"),
        (("FR", "DE", "FR"), False, "'FR' is named twice; an event is counted once, so take one out"),
        (("FR", "FR"), True, "'FR' is named twice; an event is counted once, so take one out"),
        (("FR", "DE", "IT", "other"), True, "every key is left out; name fewer of them"),
    ],
)
def test_wrong_names_are_refused_in_one_line(names: tuple[str, ...], without: bool, line: str) -> None:
    with pytest.raises(KeyNameError) as refusal:
        places(*names, without=without)
    assert str(refusal.value) == line


def test_both_kinds_of_names_are_refused() -> None:
    assert AskedKeys.of([]) is None
    with pytest.raises(KeyNameError, match="not_key: leave key out"):
        AskedKeys.of(["FR"], ["DE"])


def test_words_name_the_group() -> None:
    assert group_in_words(AskedKeys(("FR",)), 0) == ""
    many = AskedKeys(tuple(f"K{i}" for i in range(13)))
    assert group_in_words(many, tuple(range(13))) == (
        "These numbers are of 13 keys together: K0, K1, K2, K3, K4, K5, K6, K7, K8, K9 and 3 more."
    )
    left = group_in_words(AskedKeys(("FR",), without=True), (1, 2, 3))
    assert left == "These numbers are of 3 keys together: all but FR."


@examples(100)
@given(st.sets(st.sampled_from(LIST.labels), min_size=1, max_size=3))
def test_a_group_and_all_but_it_are_the_list(names: set[str]) -> None:
    own, others = places(*names), places(*names, without=True)
    together = [*(own if isinstance(own, tuple) else [own]), *(others if isinstance(others, tuple) else [])]
    assert sorted(together) == [0, 1, 2, 3]
