"""Closing instants and public instants equal their definitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.counting import bins as module
from stream_app.core.counting.bins import Binning, Closing, next_public_instant_us

closings = st.builds(Closing, st.builds(Binning, st.integers(1, 50)), st.integers(0, 200))


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
