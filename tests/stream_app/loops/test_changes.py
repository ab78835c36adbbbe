"""Settings that change while a stream runs: what opens next, what is refused, and what an export carries."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from stream_app.core.exports import Export, ExportedStream, lines_of, read_export
from stream_app.core.ledger import ACCEPTED
from stream_app.core.segments.strategies import by_hash
from stream_app.core.strategy import Strategy
from stream_app.loops.configured import changes_in_words
from stream_app.loops.lost_entries import witnessed_strategies
from stream_app.ports import OperatorError
from tests.stream_app.declared import changed, design_of, strategy_of
from tests.stream_app.one_source import OneSource

EPSILON = 10**9
BEFORE = strategy_of()
AFTER = strategy_of(design_of((6,), Fraction(2 * EPSILON)))
ENDED = 106  # the first bin after the first epoch


@pytest.fixture
def one(tmp_path: Path) -> Iterator[OneSource]:
    with closing(OneSource(tmp_path, BEFORE)) as one:
        yield one


async def count(one: OneSource, bins: int) -> None:
    """Have a new worker count the records up to a bin."""
    one.clock.set_bin(bins)
    while await one.ingest().step():
        pass


def test_a_change_waits_for_the_next_epoch_and_is_told(
    one: OneSource, caplog: pytest.LogCaptureFixture
) -> None:
    async def change() -> None:
        one.append(100.5, 103.5)
        await one.closer().reconcile()
        await count(one, 104)
        closer = one.closer(AFTER)
        with caplog.at_level(logging.WARNING):
            await closer.close_due()
            await closer.close_due()
        [pending] = [line for line in caplog.messages if "with its next epoch" in line]
        assert pending == (
            "stream visits: from 1970-01-01T00:17:40Z on, with its next epoch: privacy.epsilon 2000000000 "
            "instead of 1000000000; until then, the old settings can be put back"
        )
        caplog.clear()
        state = await one.store.load("visits")
        assert state is not None
        assert state.texts == (BEFORE.to_json(),)
        [said] = changes_in_words(BEFORE, AFTER, state, one.clock.now_us)
        assert said == (
            "visits: from 1970-01-01T00:17:40Z on, with its next epoch: "
            "privacy.epsilon 2000000000 instead of 1000000000"
        )
        one.append(107.5)
        await count(one, 109)
        with caplog.at_level(logging.WARNING):
            await one.closer(AFTER).close_due()
        assert (
            "its settings change with epoch 1, from 1970-01-01T00:17:40Z on: privacy.epsilon" in caplog.text
        )
        assert await one.released() == {b: int(b in (100, 103, 107)) for b in range(100, 109)}
        rows = await one.witness.rows("visits", 0)
        assert ["changed" in json.loads(row.row) for row in rows].index(True) == 6
        assert list(witnessed_strategies("visits", rows, [AFTER])) == [AFTER.hash, BEFORE.hash]

    asyncio.run(change())


def test_a_worker_with_the_older_configuration_goes_on_with_the_change(one: OneSource) -> None:
    async def change() -> None:
        older = one.closer()
        await older.reconcile()
        await count(one, ENDED)
        await older.close_due()
        # The epoch that follows opened with the settings before; the newer worker changes the one after it.
        newer = one.closer(AFTER)
        await count(one, ENDED + 6)
        await newer.close_due()
        await count(one, ENDED + 13)
        await older.close_due()
        epochs = one.store.streams["visits"].epochs
        hashes = [epoch.strategy_hash for epoch in epochs]
        assert hashes == [BEFORE.hash, BEFORE.hash, AFTER.hash, AFTER.hash]
        # At its next start the older worker's configuration counts again.
        await count(one, ENDED + 18)
        await one.closer().close_due()
        state = await one.store.load("visits")
        assert state is not None
        assert by_hash(state.texts).keys() == {BEFORE.hash, AFTER.hash}
        assert state.epoch.changed_from == AFTER.hash

    asyncio.run(change())


def test_a_sum_that_protects_nobody_is_refused_at_the_start(one: OneSource) -> None:
    def private(stream: str, epsilon: int) -> Strategy:
        strategy = strategy_of(design_of(epsilon=Fraction(epsilon)), stream=stream)
        return replace(strategy, declared=changed(strategy.declared, privacy={"private": True}))

    async def change() -> None:
        await one.closer(private("a", 1)).reconcile()
        await one.closer(private("b", 15), accept=ACCEPTED).reconcile()
        with pytest.raises(OperatorError, match=r"streams.a.privacy.epsilon 6: .* protects nobody"):
            await one.closer(private("a", 6), accept=ACCEPTED).reconcile()
        await one.closer(private("a", 5), accept=ACCEPTED).reconcile()

    asyncio.run(change())


def test_an_export_of_a_changed_stream_has_version_2_and_is_read_back(one: OneSource) -> None:
    async def change() -> None:
        await one.closer().reconcile()
        await count(one, ENDED + 2)
        await one.closer(AFTER).close_due()
        await one.closer(AFTER).reconcile()
        rows = await one.witness.rows("visits", 0)
        epochs = tuple(one.store.streams["visits"].epochs)
        export = Export((ExportedStream(AFTER, epochs, tuple(rows)),), await one.store.ledger(BEFORE.source))
        lines = list(lines_of(export))
        assert json.loads(lines[0])["private_counts_export"] == 2
        assert read_export(lines) == export

    asyncio.run(change())
