"""Epochs that a reader knows are part of what their source costs, whatever its ledger has lost."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from stream_app.core.ledger import composed, statement
from stream_app.core.records import LedgerEntry, PublicState
from stream_app.core.segments.visible_costs import KnownEpochs, ledger_entry
from tests.contracts.examples import BINS, EPOCH, NEXT_EPOCH, STRATEGY, TEXT

ENTRY = ledger_entry(STRATEGY, EPOCH)
NEXT = ledger_entry(STRATEGY, NEXT_EPOCH)


def test_a_ledger_gets_back_what_it_lost_and_nothing_twice() -> None:
    known = KnownEpochs()
    known.learn("departures", PublicState(TEXT, (EPOCH, NEXT_EPOCH), 5))
    for kept in ([], [ENTRY], [NEXT], [ENTRY, NEXT]):
        told = composed("flights", [kept, known.entries("flights")])
        assert sorted(told, key=lambda entry: entry.epoch) == [ENTRY, NEXT]
    assert known.entries("others") == []


@pytest.mark.parametrize(
    "other",
    [replace(ENTRY, strategy_hash="x" * 64), replace(ENTRY, start_us=ENTRY.start_us + 3_600_000_000)],
    ids=["another strategy", "another start"],
)
def test_an_entry_of_another_measurement_hides_no_lost_one(other: LedgerEntry) -> None:
    assert composed("flights", [[other], [ENTRY]]) == (other, ENTRY)


def test_an_entry_of_another_strategy_adds_up_with_the_lost_one() -> None:
    other = replace(ENTRY, strategy_hash="x" * 64)
    assert statement("flights", composed("flights", [[other], [ENTRY]])).epsilon == 2


def test_an_entry_that_was_put_back_counts_once() -> None:
    put_back = replace(ENTRY, lost=True)
    assert composed("flights", [[put_back], [ENTRY]]) == (put_back,)


def test_what_is_known_follows_the_streams() -> None:
    known = KnownEpochs()
    known.learn("departures", PublicState(TEXT, (EPOCH,), 1))
    ended = replace(EPOCH, last_bin=EPOCH.first_bin, end_reason="stopped")
    known.learn("departures", PublicState(TEXT, (ended, NEXT_EPOCH), 2))
    assert (known.entries("flights"), known.source_of("departures")) == ([ENTRY, NEXT], "flights")
    known.forget_all_but(["departures"])
    assert known.entries("flights") == [ENTRY, NEXT]
    known.forget_all_but(["others"])
    assert (known.entries("flights"), known.source_of("departures")) == ([], None)


def test_a_stream_that_was_started_anew_is_known_by_its_new_strategy_only() -> None:
    known = KnownEpochs()
    known.learn("departures", PublicState(TEXT, (EPOCH, NEXT_EPOCH), 5))
    source = msgspec.structs.replace(STRATEGY.declared.source, name="elsewhere")
    declared = msgspec.structs.replace(STRATEGY.declared, source=source)
    moved = replace(STRATEGY, declared=declared)
    known.learn("departures", PublicState(moved.to_json(), (EPOCH,), 1))
    assert known.entries("flights") == []
    assert [entry.source for entry in known.entries("elsewhere")] == ["elsewhere"]


CHANGED = replace(NEXT, strategy_hash="x" * 64, changed_from=ENTRY.strategy_hash)
AGAIN = replace(NEXT, epoch=2, strategy_hash="y" * 64, changed_from=CHANGED.strategy_hash)
FROM_ELSEWHERE = replace(NEXT, strategy_hash="z" * 64)
PUT_BACK = replace(NEXT, lost=True)
OF_ANOTHER = replace(NEXT, stream="arrivals")


@pytest.mark.parametrize(
    ("seq", "reserved", "told"),
    [
        (BINS - 1, [NEXT], []),
        (BINS, [NEXT], [NEXT]),
        (BINS - 1, [CHANGED], []),
        (BINS - 1, [AGAIN, CHANGED], []),
        (BINS, [AGAIN, CHANGED], [CHANGED]),
        (BINS - 1, [FROM_ELSEWHERE], [FROM_ELSEWHERE]),
        (BINS - 1, [PUT_BACK], [PUT_BACK]),
        (BINS - 1, [OF_ANOTHER], [OF_ANOTHER]),
    ],
)
def test_only_epochs_that_follow_an_invisible_row_are_left_out(
    seq: int, reserved: list[LedgerEntry], told: list[LedgerEntry]
) -> None:
    known = KnownEpochs()
    known.learn("departures", PublicState(TEXT, (EPOCH,), seq))
    assert known.counted("flights", [reserved, [ENTRY]]) == (*told, ENTRY)
    known.unreadable("departures")
    assert set(known.counted("flights", [reserved, [ENTRY]])) == {*reserved, ENTRY}
