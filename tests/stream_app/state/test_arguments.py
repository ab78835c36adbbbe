"""How changes are packed for scripts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stream_app.core.store_writes import Apply
from stream_app.state import arguments
from stream_app.state.keys import StreamKeys
from tests.contracts.examples import FIRST_BIN, apply


def test_streams_that_count_alike_share_packed_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[Apply] = []
    real = arguments._packed

    def counted(keys: StreamKeys, change: Apply) -> Any:
        packed.append(change)
        return real(keys, change)

    monkeypatch.setattr(arguments, "_packed", counted)
    kept = arguments.PackedChanges()
    changes = [apply(0, 5, [(FIRST_BIN, 1, 2)], partition=name) for name in ("0", "1")]
    both = [kept.of(StreamKeys(name), changes) for name in ("a", "b")]
    assert packed == changes
    assert [targets for targets, _ in both] == [
        [key for one in changes for key in real(StreamKeys(name), one)[0]] for name in ("a", "b")
    ]
    assert both[0][1] == both[1][1]
    packed.clear()
    alone = [replace(changes[0], strategy_hash=digit * 64) for digit in "01"]  # as ``apply`` gets them
    for name, change in zip("ab", alone, strict=True):
        kept.of(StreamKeys(name), [change])
    kept.of(StreamKeys("a"), [replace(changes[0], new=6)])
    assert [change.new for change in packed] == [5, 6]
