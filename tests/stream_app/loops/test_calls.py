"""How the changes of one read are divided into calls to the store."""

from __future__ import annotations

import pytest

from stream_app.loops.slices import calls_of
from tests.contracts.examples import FIRST_BIN, apply, of_users, setting_aside


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


def test_a_call_holds_a_limited_number_of_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.loops.slices.MOST_CHANGES", 2)
    changes = [apply(0, 5, partition=str(part)) for part in range(3)]
    assert list(calls_of(changes)) == [changes[:2], changes[2:]]


def test_users_records_are_in_calls_of_their_own() -> None:
    plain, users = apply(0, 5, cells(1)), of_users(0, 1, [(FIRST_BIN, 0, "ann")], partition="1")
    assert list(calls_of([plain, users, users, plain])) == [[plain], [users], [users], [plain]]
