"""A record's bin equals the rule applied to the record alone; closing instants equal their definition."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.counting import bins as module
from stream_app.core.counting.bins import (
    Binning,
    BinRules,
    Closing,
    aggregate,
    assign,
    midnight_us,
    next_public_instant_us,
    split,
)
from stream_app.core.incoming import Reason
from stream_app.core.records import Cut, LateEvents, PartitionState

DAY_US = 86_400_000_000
# Zones whose clocks skip midnight (Santiago, Beirut), a day (Apia), or half an hour (Lord Howe).
ZONES = [
    "Europe/Paris",
    "America/Santiago",
    "Asia/Beirut",
    "Pacific/Apia",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
]

closings = st.builds(Closing, st.builds(Binning, st.integers(1, 50)), st.integers(0, 200))


@st.composite
def partition_states(draw: st.DrawFn) -> PartitionState:
    """Draw cuts with rising bins and positions that never fall. Some cuts were taken late."""
    base_bin = draw(st.integers(-3, 10))
    step = st.tuples(st.integers(1, 4), st.integers(0, 5), st.integers(0, 3))
    bin, position, cuts = base_bin, 0, []
    for bins, records, overdue in draw(st.lists(step, max_size=6)):
        bin, position = bin + bins, position + records
        cuts.append(Cut(bin, position, overdue))
    return PartitionState(0, base_bin, tuple(cuts))


records = st.lists(st.integers(-8, 40), max_size=30)

all_rules = st.builds(
    BinRules, st.integers(-5, 20), st.integers(0, 6), st.sampled_from(["next_bin", "drop", "dead_letter"])
)


def bin_of_record(own: int, position: int, state: PartitionState, rules: BinRules) -> int | Reason | None:
    """Return one record's bin or the reason of its refusal, straight from the rule; None if still open."""
    if own < rules.first_bin:
        return Reason.BEFORE_FIRST_BIN
    containing = [cut.open_bin for cut in state.cuts if position < cut.position]
    next_to_close = containing[0] if containing else state.last_cut_bin + 2
    if own > next_to_close + rules.max_ahead_bins:
        return Reason.FUTURE if containing else None
    already_cut = [cut.bin for cut in state.cuts if cut.position <= position]
    first_open = max([state.base_bin, *already_cut]) + 1
    if own >= first_open:
        return own
    return first_open if rules.late == "next_bin" else Reason.LATE


def outcomes(
    own: list[int], state: PartitionState, rules: BinRules, first_position: int = 0
) -> list[int | Reason | None]:
    """Return each record's bin, or the reason of its refusal; None if the next cut decides."""
    positions = np.arange(first_position, first_position + len(own))
    found = assign(np.array(own, dtype=np.int64), positions, state, rules)
    assert found.bins.shape == found.kept.shape == found.ahead.shape == (len(own),)
    result: list[int | Reason | None] = []
    for index in range(len(own)):
        reasons = [reason for reason, mask in found.refused.items() if mask[index]]
        assert found.kept[index] + found.ahead[index] + len(reasons) == 1
        result.append(int(found.bins[index]) if found.kept[index] else reasons[0] if reasons else None)
    return result


def cut_beyond(own: list[int], state: PartitionState, bins: int) -> PartitionState:
    """Return the state after one more cut, which lies beyond all records."""
    position = max([len(own), *(cut.position for cut in state.cuts)])
    return replace(state, cuts=(*state.cuts, Cut(state.last_cut_bin + bins, position)))


@given(records, partition_states(), all_rules)
def test_assign_follows_the_rule_record_by_record(
    own: list[int], state: PartitionState, rules: BinRules
) -> None:
    expected = [bin_of_record(bin, position, state, rules) for position, bin in enumerate(own)]
    assert outcomes(own, state, rules) == expected


def test_a_segment_takes_over_from_the_first_bin_and_position_that_were_late_before() -> None:
    state = PartitionState(0, 9, (Cut(10, 7),), late_before=LateEvents(position=3, since_bin=4))
    rules = BinRules(10, 0, "next_bin", begins_bin=10)
    for own in range(2, 12):
        found = assign(np.full(10, own), np.arange(10), state, rules)
        assert not found.refused
        bins = dict(zip(np.flatnonzero(found.kept).tolist(), found.bins[found.kept].tolist(), strict=True))
        assert bins == {
            position: max(own, 10 if position < 7 else 11)
            for position in range(10)
            if own >= 10 or (own >= 4 and position >= 3)
        }


@given(records.filter(len), partition_states(), all_rules, st.data())
def test_one_more_record_changes_one_cell_by_one(
    own: list[int], state: PartitionState, rules: BinRules, data: st.DataObject
) -> None:
    """In the log without one record, all later records and cuts have positions that are lower by one."""
    state = cut_beyond(own, state, 1)
    gone = data.draw(st.integers(0, len(own) - 1))
    cuts = tuple(replace(cut, position=cut.position - (cut.position > gone)) for cut in state.cuts)
    found = outcomes(own, state, rules)
    without = outcomes(own[:gone] + own[gone + 1 :], replace(state, cuts=cuts), rules)
    assert len(found) == len(own)
    assert without == found[:gone] + found[gone + 1 :]


@given(records, partition_states(), all_rules, st.integers(0, 30))
def test_the_size_of_batches_does_not_change_a_bin(
    own: list[int], state: PartitionState, rules: BinRules, edge: int
) -> None:
    whole = outcomes(own, state, rules)
    assert outcomes(own[:edge], state, rules) == whole[:edge]
    assert outcomes(own[edge:], state, rules, first_position=edge) == whole[edge:]


@given(records, partition_states(), all_rules, st.integers(1, 6))
def test_later_cuts_do_not_move_a_settled_record(
    own: list[int], state: PartitionState, rules: BinRules, bins: int
) -> None:
    """A record gets the same bin whether it is binned before or long after the cut that contains it."""
    before, after = outcomes(own, state, rules), outcomes(own, cut_beyond(own, state, bins), rules)
    assert all(then == now for then, now in zip(before, after, strict=True) if then is not None)


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 2)), max_size=40), st.integers(1, 8))
def test_split_and_aggregate_keep_every_record(cells: list[tuple[int, int]], most_cells: int) -> None:
    bins = np.array([bin for bin, _ in cells], dtype=np.int64)
    columns = np.array([cell for _, cell in cells], dtype=np.int64)
    total: Counter[tuple[int, int]] = Counter()
    stop = 0
    for run in split(bins * 3 + columns, most_cells):
        assert run.start == stop
        stop = run.stop
        in_run = Counter(cells[run])
        assert len(in_run) <= most_cells
        if stop < len(cells):  # a run is as long as it can be
            assert len({*in_run, cells[stop]}) > most_cells
        found = aggregate(bins[run], columns[run], 3)
        keys = list(zip(found[0].tolist(), found[1].tolist(), strict=True))
        assert keys == sorted(in_run)
        assert dict(zip(keys, found[2].tolist(), strict=True)) == in_run
        total += in_run
    assert stop == len(cells)
    assert total == Counter(cells)


@given(st.integers(-(10**15), 10**15), st.integers(1, 10**12))
def test_fixed_bins_hold_their_times(time_us: int, bin_us: int) -> None:
    binning = Binning(bin_us)
    [bin] = binning.bin_of([time_us]).tolist()
    assert binning.start_us(bin) <= time_us < binning.end_us(bin)


@pytest.mark.parametrize("zone", ZONES)
@given(st.lists(st.integers(0, 2 * 10**15), min_size=1, max_size=5))
def test_calendar_days_are_the_dates_of_the_zone(zone: str, times_us: list[int]) -> None:
    binning = Binning(DAY_US, zone)
    for time_us, bin in zip(times_us, binning.bin_of(times_us).tolist(), strict=True):
        local = datetime.fromtimestamp(time_us // 1_000_000, tz=ZoneInfo(zone)).date()
        assert date(1970, 1, 1) + timedelta(days=bin) == local
        assert binning.start_us(bin) <= time_us < binning.end_us(bin)


@pytest.mark.parametrize("zone", ZONES)
def test_event_of_a_far_date_does_not_delay_others(zone: str) -> None:
    """Others can see how long a batch takes, so an event with a far date must not slow it down."""
    binning, now_us = Binning(DAY_US, zone), 1_700_000_000_000_000
    far_us = [-62_135_424_000_000_000, 253_402_041_600_000_000]  # the first and the last valid time
    midnight_us.cache_clear()
    assert binning.bin_of([far_us[0], now_us, far_us[1]]).tolist() == [
        binning.bin_of([time_us])[0] for time_us in (far_us[0], now_us, far_us[1])
    ]
    assert midnight_us.cache_info().misses <= 3 * 4


def test_a_day_that_a_zone_skipped_is_empty() -> None:
    """Samoa crossed the date line: there was no 30 December 2011."""
    binning = Binning(DAY_US, "Pacific/Apia")
    skipped = (date(2011, 12, 30) - date(1970, 1, 1)).days
    assert binning.start_us(skipped) == binning.end_us(skipped)
    start_us = binning.start_us(skipped)
    assert binning.bin_of([start_us - 1, start_us]).tolist() == [skipped - 1, skipped + 1]


def test_a_bin_without_length_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 microsecond"):
        Binning(0)


LENGTHS = st.sampled_from([1, 2, 3, 4, 6, 7, 10, 24, 35])

DAYS = st.sampled_from(["Europe/Paris", "Asia/Kolkata", "Asia/Tokyo"])

LINES = st.one_of(
    st.builds(lambda hours: Binning(hours * DAY_US // 48), LENGTHS),
    st.builds(lambda zone: Binning(DAY_US, zone), DAYS),
)


@given(LINES, LINES, st.integers(-50, 20_000), st.integers(0, 90), st.integers(1, 5))
def test_the_latest_shared_start_is_that_of_brute_force(
    one: Binning, other: Binning, first: int, more: int, step: int
) -> None:
    last = first + more
    found = [bin for bin in range(last, first - 1, -step) if begins(other, one.start_us(bin))]
    assert one.latest_shared(other, first, last, step) == next(iter(found), None)


def begins(line: Binning, at_us: int) -> bool:
    """Return whether a bin begins at an instant: one of the days around it, or a multiple of its length."""
    if line.timezone is None:
        return at_us % line.bin_us == 0
    day = at_us // DAY_US
    return at_us in {midnight_us(line.timezone, day + near) for near in range(-2, 3)}


@given(closings, st.integers(-500, 500))
def test_a_bin_is_due_from_its_closing_instant_on(closing: Closing, now_us: int) -> None:
    last = closing.last_due_bin(now_us)
    assert closing.instant_us(last) <= now_us < closing.instant_us(last + 1)


@given(closings, st.integers(-20, 20), st.integers(-500, 500))
def test_due_lists_each_bin_once_with_its_instant(closing: Closing, after_bin: int, now_us: int) -> None:
    due = closing.due(after_bin, now_us)
    assert [bin for bin, _ in due] == list(range(after_bin + 1, after_bin + 1 + len(due)))
    assert all(instant_us == closing.instant_us(bin) <= now_us for bin, instant_us in due)
    assert closing.instant_us(after_bin + len(due) + 1) > now_us


def test_due_bins_after_a_long_outage_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_DUE_BINS", 3)
    closing = Closing(Binning(10), 0)
    assert [bin for bin, _ in closing.due(after_bin=4, now_us=1000)] == [5, 6, 7]


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/Santiago", "Pacific/Apia"])
def test_calendar_days_close_too(zone: str) -> None:
    closing = Closing(Binning(86_400_000_000, zone), 3_600_000_000)
    for day in range(15_300, 15_345):  # the last weeks of 2011 and the first of 2012
        instant_us = closing.instant_us(day)
        assert closing.last_due_bin(instant_us - 1) < day <= closing.last_due_bin(instant_us)


def test_no_bin_closes_before_its_end() -> None:
    with pytest.raises(ValueError, match="negative"):
        Closing(Binning(10), -1)


@given(st.integers(0, 10**6), st.integers(1, 1000))
def test_public_instants_are_multiples_after_now(now_us: int, every_us: int) -> None:
    instant_us = next_public_instant_us(now_us, every_us)
    assert instant_us % every_us == 0
    assert now_us < instant_us <= now_us + every_us
