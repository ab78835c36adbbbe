"""The caps of a unit bound its vector of column counts, and the bounds are attained."""

from __future__ import annotations

from itertools import product

import pytest

from dphist.caps import Caps

COLUMNS = 4
LARGEST = 6
ALL_CAPS = [
    *(Caps(max_events=most) for most in range(1, LARGEST + 1)),
    *(
        Caps(max_events, keys, per_key)
        for max_events in (None, *range(1, 10))
        for keys in range(1, COLUMNS + 1)
        for per_key in range(1, 5)
    ),
]


def allowed(column_counts: tuple[int, ...], caps: Caps) -> bool:
    """Return whether a vector obeys the caps, each taken as its definition says."""
    return (
        (caps.max_events is None or sum(column_counts) <= caps.max_events)
        and (caps.max_keys is None or sum(count > 0 for count in column_counts) <= caps.max_keys)
        and (caps.max_per_key is None or max(column_counts) <= caps.max_per_key)
    )


@pytest.mark.parametrize("caps", ALL_CAPS, ids=str)
def test_norms_are_the_largest_of_all_vectors_under_the_caps(caps: Caps) -> None:
    vectors = [vector for vector in product(range(LARGEST + 1), repeat=COLUMNS) if allowed(vector, caps)]
    assert caps.l1 == max(map(sum, vectors))
    assert caps.l2_squared == max(sum(count**2 for count in vector) for vector in vectors)


@pytest.mark.parametrize("caps", [Caps(5), Caps(None, 2, 2), Caps(3, 3, 2)], ids=str)
def test_a_substitution_at_most_doubles_the_norms_of_non_negative_vectors(caps: Caps) -> None:
    vectors = [vector for vector in product(range(6), repeat=3) if allowed(vector, caps)]
    differences = [[a - b for a, b in zip(one, other, strict=True)] for one in vectors for other in vectors]
    assert max(sum(map(abs, change)) for change in differences) <= 2 * caps.l1
    assert max(sum(part**2 for part in change) for change in differences) <= 2 * caps.l2_squared


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ((None, None, None), "give max_events, or max_keys and max_per_key"),
        ((3, 2, None), "give both or neither"),
        ((None, None, 2), "give both or neither"),
        ((0, None, None), "max_events: 0"),
        ((True, None, None), "max_events: True"),
        ((None, 2, -1), "max_per_key: -1"),
        ((None, 1.5, 1), "max_keys: 1.5"),
    ],
)
def test_wrong_caps_are_refused_in_one_line(wrong: tuple[int | None, ...], names: str) -> None:
    with pytest.raises(ValueError, match=names) as refusal:
        Caps(*wrong)
    assert "\n" not in str(refusal.value)
