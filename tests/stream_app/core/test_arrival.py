"""A change of what arrival decides: which bins close when, and that one record moves no other."""

from __future__ import annotations

import random

import numpy as np
import pytest

from stream_app.core.arrival import Arrival, ArrivalChange
from stream_app.core.counting.bins import Binning, BinRules, assign
from stream_app.core.counting.closing import Closing
from stream_app.core.records import Cut, PartitionState

BIN = 10
GRACES = [(0, 35), (35, 0), (7, 12), (50, 50)]


def change_of(chance: random.Random) -> ArrivalChange:
    """Return a drawn change at bin 10."""
    before, after = (
        Arrival(chance.randrange(40), chance.randrange(5), chance.choice(["next_bin", "drop", "dead_letter"]))
        for _ in range(2)
    )
    return ArrivalChange(10, before, after)


@pytest.mark.parametrize("graces", GRACES)
def test_bins_close_in_order_each_after_its_own_grace(graces: tuple[int, int]) -> None:
    closing = Closing(Binning(BIN), graces[0], 10, graces[1])
    instants = [closing.instant_us(bin) for bin in range(30)]
    assert instants == sorted(instants)
    for bin, instant in enumerate(instants):
        own = (bin + 1) * BIN + graces[bin >= 10]
        assert instant == (own if bin < 10 else max(own, instants[9]))
    for now in range(280):
        due = [bin for bin, instant in enumerate(instants) if instant <= now]
        assert closing.last_due_bin(now) == max(due, default=closing.last_due_bin(now))
        assert not due or closing.due(due[0], now) == [(bin, instants[bin]) for bin in due[1:]]


@pytest.mark.parametrize("seed", range(20))
def test_how_early_a_record_may_be_never_falls(seed: int) -> None:
    newest = change_of(random.Random(seed)).newest_bins(np.arange(40))
    assert (np.diff(newest) >= 0).all()


@pytest.mark.parametrize("seed", range(40))
def test_one_record_less_moves_no_other_across_a_change(seed: int) -> None:
    chance = random.Random(seed)
    change = change_of(chance)
    rules = BinRules(0, 99, "next_bin", change=change)
    own = np.array([chance.randrange(30) for _ in range(60)])
    bins = sorted(chance.sample(range(1, 25), 8))
    places = sorted(chance.randrange(60) for _ in bins)
    left = chance.randrange(60)

    def counted(without: int | None) -> list[tuple[int, bool]]:
        """Return the bin of each other record, and whether it counts."""
        kept = [place for place in range(60) if place != without]
        shifted = [place - (without is not None and without < place) for place in places]
        cuts = tuple(Cut(bin, at, chance_of[bin]) for bin, at in zip(bins, shifted, strict=True))
        found = assign(own[kept], np.arange(len(kept)), PartitionState(0, 0, cuts), rules)
        return [
            (int(bin) if is_kept else -1, bool(is_kept))
            for place, bin, is_kept in zip(kept, found.bins, found.kept, strict=True)
            if place != left
        ]

    chance_of = {bin: chance.randrange(2) for bin in bins}
    assert counted(None) == counted(left)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_decided_stays_so_as_cuts_are_taken(seed: int) -> None:
    chance = random.Random(seed)
    rules = BinRules(0, 99, "next_bin", change=change_of(chance))
    own, positions = np.arange(30), np.full(30, 5)
    last = chance.randrange(3, 20)
    now = assign(own, positions, PartitionState(0, last), rules)
    for overdue in range(3):
        later = assign(own, positions, PartitionState(0, last, (Cut(last + 1, 9, overdue),)), rules)
        assert (later.bins[now.kept] == now.bins[now.kept]).all()
        assert later.kept[now.kept].all()
        if overdue == 0:  # nothing that was set aside counts, unless the cut came late
            assert not later.kept[now.ahead].any()


def test_a_change_is_over_once_it_decides_about_no_record() -> None:
    for seed in range(200):
        change = change_of(random.Random(seed))
        released = next(bin for bin in range(5, 40) if change.is_over(bin))
        later = np.arange(released + 2, 60)  # the bins that can be next to close for an uncounted record
        assert (change.newest_bins(later) == later + change.after.max_ahead_bins).all()
        assert released >= change.bin - 1


def test_its_text_is_read_back() -> None:
    change = change_of(random.Random(1))
    assert ArrivalChange.of(change.text()) == change
