"""Counting events: each event counts once, in the bin that its position in the log decides."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stream_app.core.incoming import Reason
from stream_app.loops.slices import calls_of
from stream_app.sinks.dead_letter_file import DeadLetterFiles, Keeping
from stream_app.wiring.pipeline import Counting
from tests.contracts.examples import FIRST_BIN, apply, of_users, setting_aside
from tests.stream_app.declared import BIN_US, STREAM, strategy_of
from tests.world import Struck, World, first, lost_reply, raising
from tests.world.arrivals import CASES, check
from tests.world.faults import Call


@pytest.mark.parametrize("name", CASES)
def test_events_count_once_under_faults(name: str) -> None:
    check(CASES[name])


@pytest.mark.parametrize("goes_on", ["the same worker", "another worker"])
def test_refused_records_are_counted_once_if_a_reply_is_lost(goes_on: str) -> None:
    with World(strategy_of(late="drop")) as world:
        store = Struck(world.store, apply=first(lost_reply))
        world.until(101)
        worker = world.start(store=store)
        world.until(101.1)
        world.arrive(99, 100, 101)
        world.write(b"nonsense")
        if goes_on == "another worker":
            world.until(101.101)
            world.end(worker)
            world.start()
        world.until(103)
        assert len(store.calls("apply")) >= 1
        how_late = {"late_bins": 1, f"late_within_{BIN_US // 10**6}": 1}
        refused = {"before_first_bin": 1, "undecodable": 1, "late": 1}
        assert world.operator_counts() == refused | how_late
        assert world.counts() == {101: 1}


def test_broken_and_early_events_are_dead_letters() -> None:
    with World(strategy_of()) as world:
        world.arrive(99.9, 100)
        world.write(b'{"at": null}', b"nonsense")
        world.arrive(100)
        world.run_until(101)
        refused = {Reason.NULL: 1, Reason.UNDECODABLE: 1, Reason.BEFORE_FIRST_BIN: 1}
        assert world.counts() == {100: 2}
        assert world.letters_by_reason() == Counter(map(str, refused))
        assert world.operator_counts() == refused
        assert {letter.record for letter in world.letters.kept} >= {b'{"at": null}', b"nonsense"}


def test_a_refused_record_has_one_letter_per_stream_however_often_it_is_read(tmp_path: Path) -> None:
    """One stream starts again after an error, another is ahead of it, and both read the same records."""
    letters = DeadLetterFiles(tmp_path, Keeping(60, 10**6, True))
    with closing(letters), World(strategy_of(), strategy_of(stream="second")) as world:
        world.arrive(99, 100)
        world.write(b"nonsense")
        world.run_until(101, letters=letters, store=Struck(world.store, apply=first(lost_reply)))
        assert world.counts() == world.counts("second") == {100: 1}
    [file] = tmp_path.iterdir()
    kept = [json.loads(line) for line in file.read_bytes().splitlines()]
    refused = Counter((letter["reason"], name) for letter in kept for name in letter.get("streams", [None]))
    assert refused == {
        ("undecodable", None): 1,
        ("before_first_bin", STREAM): 1,
        ("before_first_bin", "second"): 1,
    }


def test_a_late_cut_accepts_what_was_set_aside() -> None:
    """The worker stops across closing instants. So records inside its cut may have arrived after them."""
    with World(strategy_of()) as world:
        world.arrive(100, 103, 103, 104, 105)
        world.start()
        world.until(100.5)
        world.end()
        world.until(103)
        world.run_until(105)
        assert world.counts() == {100: 1, 103: 2, 104: 1}
        assert world.letters.reasons() == ["future"]
        assert world.operator_counts() == {"future": 1, "set_aside": 4}


@pytest.mark.parametrize("stall", ["before", "after"])
def test_a_stall_around_the_question_where_the_log_ends(stall: str) -> None:
    """Records on time that arrive while the process is stopped are neither late nor from the future."""
    with World(strategy_of()) as world:

        async def stalled(call: Call) -> Any:
            ends = await call() if stall == "after" else None
            world.clock_ahead_us += round(9.5 * BIN_US)
            world.arrive(105, 110, 111)
            return ends or await call()

        world.start(source=Struck(world.reader(), positions_at=first(stalled)))
        world.arrive(100)
        world.until(113)
        assert world.counts() == {100: 1, 105: 1, 110: 1, 111: 1}
        assert world.letters.reasons() == []


def test_many_cells_are_applied_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.core.counting.bins.split.__defaults__", (2,))
    monkeypatch.setattr("stream_app.loops.slices.LARGEST_APPLY_CELLS", 2)
    with World(strategy_of()) as world:
        world.arrive(100, 101, 102, 100, 103, 104, 104)
        store = Struck(world.store)
        world.until(107)
        world.run_until(107, store=store)
        assert world.counts() == {100: 2, 101: 1, 102: 1, 103: 1, 104: 2}
        assert [len(change.cells) for _, change in store.calls("apply")][-3:] == [2, 2, 2]


def test_streams_of_one_source_keep_their_own_positions() -> None:
    plain, wide = strategy_of(), strategy_of(stream="wide", bin_us=2 * BIN_US)
    with World(plain, wide) as world:
        world.arrive(100, 101)
        world.run_until(100, strategies=[plain])
        world.arrive(101)
        world.run_until(102)
        assert world.counts() == {100: 1, 101: 2}
        assert world.counts("wide") == {50: 3}


def test_a_stream_can_begin_at_the_end_of_the_log() -> None:
    with World(strategy_of(), start="latest") as world:
        world.arrive(100, 100)
        world.start()
        world.until(100.1)
        world.arrive(100)
        world.until(102)
        assert world.counts() == {100: 1}


def test_a_stream_that_the_store_does_not_have_is_an_outage() -> None:
    with World(strategy_of()) as world, pytest.raises(ConnectionError, match="visits is no longer there"):
        world.run(Counting.over(world.ports(), [STREAM]).ingest.step())


def test_neither_errors_nor_logs_hold_a_position(caplog: pytest.LogCaptureFixture) -> None:
    with World(strategy_of()) as world:
        world.arrive(*[100] * 7919)
        world.run_until(100, store=Struck(world.store, apply=raising(ConnectionError("gone"))))
    assert set(caplog.messages) == {"ingest: gone; trying again"}


def cells(number: int) -> list[tuple[int, int, int]]:
    return [(FIRST_BIN, cell, 1) for cell in range(number)]


def test_changes_of_all_partitions_share_a_call_in_their_order() -> None:
    changes = [apply(at, at + 5, cells(2), partition=str(part)) for part in range(3) for at in (0, 5)]
    assert list(calls_of(changes)) == [changes]
    assert list(calls_of([])) == []


def test_a_call_holds_a_limited_number_of_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.loops.slices.LARGEST_APPLY_CELLS", 5)
    large, small = apply(0, 9, cells(5)), apply(0, 9, cells(2), partition="1")
    far = setting_aside(0, 9, cells(4), partition="2")
    assert list(calls_of([large, small, small, far])) == [[large], [small, small], [far]]
    named = setting_aside(0, 9, cells(1), [(FIRST_BIN, at) for at in range(3)], partition="2")
    assert list(calls_of([small, named])) == [[small], [named]]


def test_a_call_holds_a_limited_number_of_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.loops.slices.MOST_CHANGES", 2)
    changes = [apply(0, 5, partition=str(part)) for part in range(3)]
    assert list(calls_of(changes)) == [changes[:2], changes[2:]]


def test_users_records_are_in_calls_of_their_own() -> None:
    plain, users = apply(0, 5, cells(1)), of_users(0, 1, [(FIRST_BIN, 0, "ann")], partition="1")
    assert list(calls_of([plain, users, users, plain])) == [[plain], [users], [users], [plain]]


@pytest.mark.parametrize(("most", "partitions"), [(20_000, 3), (2, 2)])
def test_a_turn_bins_a_limited_number_of_records(
    monkeypatch: pytest.MonkeyPatch, most: int, partitions: int
) -> None:
    """The rest of a read waits for the next turn, and is counted, too."""
    monkeypatch.setattr("stream_app.loops.ingest.MOST_BINNED", most)
    with World(strategy_of(), partitions=["p0", "p1", "p2"]) as world:
        store = Struck(world.store)
        world.run_until(100)
        for partition in ("p0", "p1", "p2"):
            world.arrive(100.1, partition=partition)
        world.start(store=store)
        world.until(100.9)
        assert max(len(changes) for *_, changes in store.calls("apply_together")) == partitions
        assert {one.position for one in world.state().partitions.values()} == {1}
