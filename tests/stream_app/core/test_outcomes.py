"""The operator's counters: each record once, however a slice is divided, and late by what the cuts prove."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.counting.bins import BinRules, LatePolicy, assign, only, refusing
from stream_app.core.counting.outcomes import LATE_CLASSES, LATE_WITHIN_S, outcomes
from stream_app.core.incoming import Reason, Refusal
from stream_app.core.records import Cut, PartitionState

STATE = PartitionState(position=0, base_bin=9, cuts=(Cut(10, 20), Cut(11, 30), Cut(14, 40)))
SECOND_US = 1_000_000


@st.composite
def slices(draw: st.DrawFn) -> tuple[list[int], list[int], list[Refusal], list[bool], list[bool]]:
    """Draw own bins and positions of records, undecodable records, and which have no key or do not match."""
    places = sorted(draw(st.sets(st.integers(0, 60), max_size=30)))
    decoded = [place for place in places if draw(st.integers(0, 4))]
    reasons = st.sampled_from([Reason.UNDECODABLE, Reason.TOMBSTONE])
    bad = [Refusal("0", place, draw(reasons), b"") for place in places if place not in decoded]
    own = [draw(st.integers(5, 20)) for _ in decoded]
    some = st.lists(st.booleans(), min_size=len(decoded), max_size=len(decoded))
    return own, decoded, draw(st.permutations(bad)), draw(some), draw(some)


@given(
    slices(),
    st.sampled_from(["next_bin", "drop", "dead_letter"]),
    st.integers(1, 400),
    st.lists(st.integers(0, 61), max_size=3),
)
def test_counters_equal_a_recount_however_the_slice_is_divided(
    drawn: tuple[list[int], list[int], list[Refusal], list[bool], list[bool]],
    late: LatePolicy,
    seconds: int,
    edges: list[int],
) -> None:
    own, places, bad, keyless, matching = drawn
    bins, positions = np.array(own, dtype=np.int64), np.array(places, dtype=np.int64)
    assignment = assign(bins, positions, STATE, BinRules(7, 2, late))
    assignment = refusing(assignment, {Reason.UNKNOWN_KEY: np.array(keyless, dtype=bool)})
    assignment = only(assignment, np.array(matching, dtype=bool))
    found = outcomes(bins, positions, assignment, seconds * SECOND_US, bad)
    within = [0, *sorted(edges), 61]
    added = Counter[str]()
    for start, end in pairwise(within):
        added.update(found.between(start, end))

    expected = Counter[str](str(refusal.reason) for refusal in bad)
    for own_bin, place, no_key, match in zip(own, places, keyless, matching, strict=True):
        if match:
            expected.update(recounted(own_bin, place, no_key, late, seconds))
    assert added == expected


def recounted(own: int, place: int, no_key: bool, late: LatePolicy, seconds: int) -> Counter[str]:
    """Return what one record adds to each counter, worked out without arrays."""
    passed = [cut for cut in STATE.cuts if cut.position <= place]
    first_open = (passed[-1].bin if passed else STATE.base_bin) + 1
    decided = len(passed) < len(STATE.cuts)
    next_to_close = STATE.cuts[len(passed)].open_bin if decided else STATE.last_cut_bin + 2
    if own < 7:
        return Counter(before_first_bin=1)
    is_late = own < first_open
    if no_key and not (is_late and late != "next_bin"):
        return Counter(unknown_key=1)
    if own > next_to_close + 2:
        return Counter(future=1) if decided else Counter(set_aside=1)
    if not is_late:
        return Counter()
    by = first_open - own
    classes = [seconds * by <= limit for limit in LATE_WITHIN_S]
    name = LATE_CLASSES[classes.index(True) if True in classes else -1]
    refused = {} if late == "next_bin" else {"late": 1}
    return Counter({"late_bins": by, name: 1, **refused})


def test_a_record_late_by_two_bins_is_late_by_twice_their_length() -> None:
    own, positions = np.array([10, 13]), np.array([35, 36])
    found = outcomes(
        own, positions, assign(own, positions, STATE, BinRules(0, 2, "next_bin")), 60 * SECOND_US
    )
    assert found.between(0, 40) == {"late_bins": 2, "late_within_300": 1}
