"""Cuts that are taken later never change where a record counts: what is applied would be applied again."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.bins import BinRules, assign
from stream_app.core.records import Cut, PartitionState
from tests.simulator.recount import PartitionHistory, Rules, bin_of_record


@st.composite
def cuts(draw: st.DrawFn) -> list[Cut]:
    """Draw cuts rising in bin, not falling in position; after an outage one covers many bins."""
    bins = np.cumsum(draw(st.lists(st.integers(1, 4), max_size=5))).tolist()
    positions = np.cumsum(draw(st.lists(st.integers(0, 3), min_size=len(bins), max_size=len(bins)))).tolist()
    return [Cut(bin, position) for bin, position in zip(bins, positions, strict=True)]


@given(
    all_cuts=cuts(),
    own=st.lists(st.integers(-2, 20), min_size=1, max_size=12),
    known=st.integers(0, 5),
    late=st.sampled_from(["next_bin", "drop", "dead_letter"]),
)
def test_a_record_has_one_bin_whenever_it_is_binned(
    all_cuts: list[Cut], own: list[int], known: int, late: str
) -> None:
    """Records that exist lie below later cuts: of those, a worker may know any number."""
    early = all_cuts[:known]
    after = [cut.position for cut in all_cuts[known:]]
    count = min([len(own), *after])
    positions = np.arange(count)
    rules = BinRules(0, 2, late)  # type: ignore[arg-type]
    first = assign(np.array(own[:count], int), positions, PartitionState(0, 0, tuple(early)), rules)
    settled = range(first.settled)
    second = assign(np.array(own[:count], int), positions, PartitionState(0, 0, tuple(all_cuts)), rules)
    assert second.settled >= first.settled
    assert first.kept.tolist() == second.kept[settled].tolist()
    assert first.bins[first.kept].tolist() == second.bins[settled][first.kept].tolist()


@given(all_cuts=cuts(), own=st.lists(st.integers(-2, 20), min_size=1, max_size=12))
def test_bins_are_those_of_the_recount(all_cuts: list[Cut], own: list[int]) -> None:
    history = PartitionHistory(0, len(own), 0, all_cuts, [(0, 0)])
    state = PartitionState(0, 0, tuple(all_cuts))
    found = assign(np.array(own), np.arange(len(own)), state, BinRules(0, 2, "next_bin"))
    for position in range(found.settled):
        bin = bin_of_record(own[position], position, history, Rules(1, 2, "next_bin"))
        assert (int(found.bins[position]) if found.kept[position] else None) == bin
