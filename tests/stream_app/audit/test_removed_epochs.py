"""The audit of a stream whose settings changed before its old epochs left the store."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from stream_app.audit.stored import Stored, check_stored
from stream_app.core.strategy import Strategy
from tests.stream_app.declared import BIN_US, FIRST_BIN, SOURCE, STREAM
from tests.stream_app.loops.test_lost_store import release_until
from tests.stream_app.older_forms import AFTER, BEFORE, change_in_place
from tests.stream_app.one_source import OneSource


async def stored(one: OneSource) -> Stored:
    public = await one.store.reader().public_state(STREAM)
    assert public is not None
    return Stored(
        configured={},
        strategy=Strategy.from_json(public.strategy),
        epochs=public.epochs,
        rows=await one.store.rows(STREAM, 0, 100),
        visible_seq=public.visible_seq,
        tables={},
        witness=await one.witness.rows(STREAM, 0),
        ledger=await one.store.ledger(SOURCE),
        outside=None,
        earlier=tuple(map(Strategy.from_json, public.earlier)),
        trimmed=public.trimmed,
    )


def faults(found: Stored, asked: str) -> str:
    """Return what a check found; empty if it passed."""
    [check] = [one for one in check_stored(found) if one.asked.startswith(asked)]
    return "" if check.passed else check.found


def test_settings_of_removed_epochs_are_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)

    async def run(one: OneSource) -> None:
        await release_until(one, FIRST_BIN + 4)
        await change_in_place(one)
        await release_until(one, FIRST_BIN + 16, strategy=AFTER)
        assert await one.store.trim(STREAM, (FIRST_BIN + 12) * BIN_US) == 2
        found = await stored(one)
        assert found.earlier == (), "the store has forgotten the settings of what left"
        chain, recorded = "The chain has no gap", "Each epoch is in the ledger"
        assert (faults(found, chain), faults(found, recorded)) == ("", "")
        [of_removed] = [entry for entry in found.ledger if entry.epoch == 0]
        other = [replace(of_removed, epsilon="1"), *found.ledger[1:]]
        assert "epoch 0 is in the ledger with epsilon 1," in faults(replace(found, ledger=other), recorded)
        unknown = replace(found, witness=found.witness[1:4])  # without rows that tell the settings
        assert "row 2 is of another strategy" in faults(unknown, chain)

    with closing(OneSource(tmp_path, BEFORE)) as one:
        asyncio.run(run(one))
