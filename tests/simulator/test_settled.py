"""Later cuts never change the bin of a record, so an apply can be repeated."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.counting.bins import BinRules, assign
from stream_app.core.records import Cut, PartitionState
from tests.simulator.recount import PartitionHistory, Rules, bin_of_record


@st.composite
def cuts(draw: st.DrawFn) -> list[Cut]:
    """Draw cuts with rising bins and positions that never fall. Some cover many bins, some are taken late."""
    bins = np.cumsum(draw(st.lists(st.integers(1, 4), max_size=5))).tolist()
    some = st.lists(st.integers(0, 3), min_size=len(bins), max_size=len(bins))
    positions, overdue = np.cumsum(draw(some)).tolist(), draw(some)
    return [Cut(*cut) for cut in zip(bins, positions, overdue, strict=True)]


@given(
    all_cuts=cuts(),
    own=st.lists(st.integers(-2, 20), min_size=1, max_size=12),
    known=st.integers(0, 5),
    late=st.sampled_from(["next_bin", "drop", "dead_letter"]),
)
def test_a_record_has_one_bin_whenever_it_is_binned(
    all_cuts: list[Cut], own: list[int], known: int, late: str
) -> None:
    """A worker may know any number of the cuts that lie beyond a record."""
    early = all_cuts[:known]
    after = [cut.position for cut in all_cuts[known:]]
    count = min([len(own), *after])
    positions = np.arange(count)
    rules = BinRules(0, 2, late)  # type: ignore[arg-type]
    first = assign(np.array(own[:count], int), positions, PartitionState(0, 0, tuple(early)), rules)
    second = assign(np.array(own[:count], int), positions, PartitionState(0, 0, tuple(all_cuts)), rules)
    decided = ~first.ahead
    assert first.kept[decided].tolist() == second.kept[decided].tolist()
    assert first.bins[first.kept].tolist() == second.bins[first.kept].tolist()
    # The store then decides about records that are set aside: by the next cut, each in its own bin.
    assert not first.ahead.any() or early == all_cuts[: len(early)]
    for place in np.flatnonzero(first.ahead & ~second.ahead).tolist():
        accepted = own[place] <= all_cuts[known].open_bin + rules.max_ahead_bins
        assert second.kept[place] == accepted
        assert not accepted or second.bins[place] == own[place]


def test_each_known_cut_decides_what_the_cuts_before_it_left_open() -> None:
    """One record at position 0, for each set of cuts that the worker may know when it reads the record."""
    rules = BinRules(0, 2, "next_bin")

    def fate(own: int, *cuts: Cut) -> str:
        found = assign(np.array([own]), np.array([0]), PartitionState(0, 4, cuts), rules)
        return "counts" if found.kept[0] else "ahead" if found.ahead[0] else "refused"

    # Bin 5 closes next. Its cut is taken after it has closed, when bin 6 or a later bin closes next.
    assert [fate(own) for own in (8, 9)] == ["counts", "ahead"]
    assert [fate(own, Cut(5, 1)) for own in (8, 9)] == ["counts", "refused"]
    assert [fate(own, Cut(5, 1, overdue=3)) for own in (11, 12)] == ["counts", "refused"]


@given(all_cuts=cuts(), own=st.lists(st.integers(-2, 20), min_size=1, max_size=12))
def test_bins_are_those_of_the_recount(all_cuts: list[Cut], own: list[int]) -> None:
    history = PartitionHistory(0, len(own), 0, all_cuts, [(0, 0)])
    state = PartitionState(0, 0, tuple(all_cuts))
    found = assign(np.array(own), np.arange(len(own)), state, BinRules(0, 2, "next_bin"))
    for position in range(len(own)):
        bin = bin_of_record(own[position], position, history, Rules(1, 2, "next_bin"))
        assert (int(found.bins[position]) if found.kept[position] else None) == bin
