"""Deleted counts leave the store's log while bins close, and before a replay's run returns."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_app import outage
from stream_app.core.kinds import pages as noise_pages
from tests.models.memory import MemoryStore
from tests.patience import PATIENCE_S
from tests.stream_app.declared import FIRST_BIN, STREAM, design_of, strategy_of
from tests.stream_app.loops.test_closer import Replay, expected_counts, some_times

BINS = 7
LAST_BIN = FIRST_BIN + BINS - 1


class Forgetful:
    """A store whose ``forget`` waits until the test lets it go, and fails as often as the test says."""

    def __init__(self, store: MemoryStore, failures: int = 0) -> None:
        self._store = store
        self.failures = failures
        self.may_end = asyncio.Event()
        self.asked_at: list[int] = []  # for each call: the last bin released by then
        self.done = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def released_bin(self) -> int:
        """Return the last released bin of the stream."""
        stream = self._store.streams.get(STREAM)
        return FIRST_BIN - 1 if stream is None else stream.released_bin

    async def forget(self) -> None:
        """Wait as the test says, then rewrite the log or fail."""
        self.asked_at.append(self.released_bin())
        await self.may_end.wait()
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the rewriting failed")
        self.done += 1


async def until_released(store: Forgetful, bin: int) -> None:
    """Wait until a bin is released."""
    async with asyncio.timeout(PATIENCE_S):
        while store.released_bin() < bin:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture
def replay(tmp_path: Path) -> Replay:
    """Return a replay over one whole epoch and one bin of the next."""
    return Replay(tmp_path, strategy_of(bins=BINS), some_times())


async def test_closing_does_not_wait_until_counts_left_the_log(replay: Replay) -> None:
    store = Forgetful(replay.store)
    worker = asyncio.create_task(replay.run(store))
    await until_released(store, LAST_BIN)  # also over the end of an epoch
    assert store.asked_at == [FIRST_BIN - 1]
    store.may_end.set()
    await worker
    assert await replay.counts() == expected_counts(some_times(), BINS)


async def test_finished_replay_returns_only_after_its_counts_left_the_log(replay: Replay) -> None:
    async def run() -> Forgetful:
        store = Forgetful(replay.store)
        worker = asyncio.create_task(replay.run(store))
        await until_released(store, LAST_BIN)
        await asyncio.sleep(0.2)
        assert not worker.done()
        store.may_end.set()
        await worker
        return store

    store = await run()
    assert store.asked_at[-1] == LAST_BIN
    assert store.done == len(store.asked_at)


async def test_failed_rewriting_is_repeated_before_a_replay_returns(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "RETRY_S", 0.01)

    async def run() -> Forgetful:
        store = Forgetful(replay.store, failures=3)
        store.may_end.set()
        await replay.run(store)
        return store

    store = await run()
    assert store.failures == 0
    assert store.done >= 1
    assert store.asked_at[-1] == LAST_BIN


async def test_rewriting_that_ends_while_the_last_noise_is_discarded_is_not_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker knows that the replay has finished, but has not asked for the last rewriting yet."""
    monkeypatch.setattr(noise_pages, "BINS_PER_PAGE", 1)
    drawn_ahead = strategy_of(replace(design_of(), release="anticipating"), bins=2)
    replay = Replay(tmp_path, drawn_ahead, some_times())

    class Slow(Forgetful):
        async def discard_noise(self, *arguments: Any) -> None:
            """Let an earlier rewriting end while the noise pages of the last release are deleted."""
            if self.released_bin() == FIRST_BIN + 1:
                self.may_end.set()
                await asyncio.sleep(0.05)
            await self._store.discard_noise(*arguments)

    async def run() -> Slow:
        store = Slow(replay.store)
        async with asyncio.timeout(PATIENCE_S):
            await replay.run(store)
        return store

    store = await run()
    assert store.asked_at == [FIRST_BIN - 1, FIRST_BIN + 1]
