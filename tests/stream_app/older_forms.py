"""Streams as older releases have left them: changed in place, with several strategies (decision 0043)."""

from __future__ import annotations

from fractions import Fraction

from stream_app.core.records import EpochRecord, Reply
from stream_app.core.segments.strategies import strategies_text
from stream_app.core.segments.visible_costs import ledger_entry
from tests.stream_app.declared import STREAM, design_of, strategy_of
from tests.stream_app.one_source import OneSource

BEFORE = strategy_of()
AFTER = strategy_of(design_of((6,), Fraction(2 * 10**9)))


async def change_in_place(one: OneSource) -> None:
    """End the running epoch, and open one under ``AFTER``, as an older release did."""
    state = await one.store.load(STREAM)
    assert state is not None
    record = EpochRecord(
        epoch=state.epoch.epoch + 1,
        first_bin=state.released_bin + 1,
        bins=AFTER.time.horizon,
        first_seq=state.seq + 1,
        strategy_hash=AFTER.hash,
        changed_from=BEFORE.hash,
    )
    await one.store.reserve(ledger_entry(AFTER, record))
    text = strategies_text([BEFORE.to_json(), AFTER.to_json()])
    before = BEFORE.to_json()
    assert await one.store.open_epoch(STREAM, text, record, state.head, replaced=before) is Reply.DONE
