"""How the changes of one read are divided into calls to the store."""

from __future__ import annotations

import pytest

from stream_app.loops.slices import calls_of
from tests.contracts.examples import FIRST_BIN, apply, of_users, setting_aside
from tests.stream_app.declared import strategy_of
from tests.world import Struck, World


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
        assert max(len(changes) for _, _, changes in store.calls("apply_together")) == partitions
        assert {one.position for one in world.state().partitions.values()} == {1}
