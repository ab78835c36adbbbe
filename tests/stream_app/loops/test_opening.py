"""Opening a stream: refusals, the kept tree, and the next epoch's first bin after the store was set back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dphist.noise import SeededNoise
from stream_app.core.kinds import kind_of
from stream_app.core.ledger import ACCEPTED
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError
from tests.models.memory import MemoryStore
from tests.stream_app.declared import changed, design_of, strategy_of
from tests.stream_app.one_source import OneSource


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneSource]:
    """Yield a service with one stream. Its first bin is 100, and its epochs have six bins."""
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    with closing(OneSource(tmp_path, strategy_of())) as one:
        yield one


async def release_until(one: OneSource, bin: int) -> None:
    """Count an event in each bin and release every bin before ``bin``."""
    ingest, closer = one.ingest(), one.closer()
    await closer.reconcile()
    while one.clock.now_us < bin * 10_000_000:
        now_bin = one.clock.now_us // 10_000_000
        one.append(now_bin)
        one.clock.set_bin(now_bin + 1)
        await ingest.step()
        await ingest.step()
        assert await closer.close_due() == (now_bin + 1, True)
    await closer.publisher.publish()


def test_an_epoch_is_in_the_ledger_and_follows_the_one_before(one: OneSource) -> None:
    async def two_epochs() -> None:
        await release_until(one, 108)
        assert await one.epochs() == [(0, 100, 1), (1, 106, 7)]
        assert await one.reserved() == [("visits", 0, 100), ("visits", 1, 106)]
        assert await one.released() == dict.fromkeys(range(100, 108), 1)

    asyncio.run(two_epochs())


def test_a_late_event_of_an_ended_epoch_counts_in_the_next(one: OneSource) -> None:
    """The event counts whether it is read before or after the next epoch opens."""

    async def late() -> None:
        await release_until(one, 107)
        one.append(103)
        ingest = one.ingest()
        await ingest.step()
        assert await one.cells(200) == dict.fromkeys(range(100, 107), 1) | {107: 1}
        assert one.letters.reasons() == []

    asyncio.run(late())


def test_a_store_that_was_set_back_ends_the_epoch(one: OneSource) -> None:
    async def set_back() -> None:
        await release_until(one, 103)
        backup = one.store.copy()
        await release_until(one, 108)  # one epoch further
        seen = await one.witness.rows("visits", 0)
        one.store.restore(backup)
        await one.closer().reconcile()
        assert await one.epochs() == [(0, 100, 1), (1, 106, 7), (2, 108, 9)]
        # The entries that the store lost are in the ledger again.
        assert sorted(await one.reserved()) == [("visits", 0, 100), ("visits", 1, 106), ("visits", 2, 108)]

        await release_until(one, 110)
        assert (await one.witness.rows("visits", 0))[:8] == seen
        assert await one.released() == dict.fromkeys(range(100, 110), 1)
        # The events of bins 103 to 107 are read again and refused, because people have seen nodes that count
        # them.
        assert one.letters.reasons() == ["before_first_bin"] * 5

    asyncio.run(set_back())


def test_an_empty_store_goes_on_after_the_witness(one: OneSource) -> None:
    async def lose_everything() -> None:
        await release_until(one, 103)
        one.store.restore(MemoryStore())
        await release_until(one, 105)
        assert await one.epochs() == [(0, 100, 1), (1, 103, 4)]
        assert await one.reserved() == [("visits", 0, 100), ("visits", 1, 103)]
        assert [row.seq for row in await one.witness.rows("visits", 0)] == [1, 2, 3, 4, 5]
        assert await one.released() == dict.fromkeys(range(100, 105), 1)

    asyncio.run(lose_everything())


def test_another_chain_than_the_witness_s_is_left(one: OneSource) -> None:
    """Two stores released rows under one witness. The store whose rows the witness lacks releases no more."""

    async def fork() -> None:
        await release_until(one, 102)
        backup = one.store.copy()
        await release_until(one, 103)
        one.store.restore(backup)
        # A worker without the witness's rows continues, and releases bin 102 again. Nobody sees this release.
        blind = one.closer(witness=type(one.witness)())
        one.append(102)
        await one.ingest().step()
        await one.ingest().step()
        await blind.close_due()
        assert len(await one.store.rows("visits", 0, 10)) == 3

        await one.closer().reconcile()
        assert (await one.epochs())[-1] == (1, 103, 4)
        assert [row.seq for row in await one.witness.rows("visits", 0)] == [1, 2, 3]
        witnessed = [row[:2] for row in await one.witness.rows("visits", 0)]
        assert await one.store.rows("visits", 0, 10) == witnessed

    asyncio.run(fork())


def test_an_interrupted_opening_is_taken_up(one: OneSource) -> None:
    """A live stream starts in the bin of its first start, even if that start opened no epoch."""
    live = strategy_of(first_us=None)
    one.strategies = (live,)

    class Dying:
        def __getattr__(self, name: str) -> Any:
            return getattr(one.store, name)

        async def open_epoch(self, *_: Any) -> None:
            raise ConnectionError

    async def interrupted() -> None:
        with pytest.raises(ConnectionError):
            await one.closer(store=Dying()).reconcile()
        one.clock.set_bin(103)
        await one.closer().reconcile()
        assert await one.epochs() == [(0, 100, 1)]
        assert await one.reserved() == [("visits", 0, 100)]

    asyncio.run(interrupted())


@pytest.mark.parametrize(
    ("changed", "named", "may_continue"),
    [
        (strategy_of(field="then"), "time.field was at when the stream began and is then now", False),
        (strategy_of(bin_us=500_000), r"time\.bin was 10s when the stream began and is 500ms now", True),
        (strategy_of(bins=3), "source.replay was not set when the stream began and is from 1970-01-", False),
        (strategy_of(source="elsewhere"), "source was file:visits", False),
        (
            Strategy("visits", strategy_of().declared, kind_of(design_of(), 2)),
            "the number of counted cells was 1",
            True,
        ),
    ],
)
def test_another_declaration_is_refused_by_its_key(
    one: OneSource, changed: Strategy, named: str, may_continue: bool
) -> None:
    async def change() -> None:
        await one.closer().reconcile()
        with pytest.raises(OperatorError, match=named) as refusal:
            await one.closer(changed).reconcile()
        assert "\n" not in str(refusal.value)
        assert ("successor_of" in str(refusal.value)) == may_continue

    asyncio.run(change())


def read_from(state_id: str | None) -> Strategy:
    """Return the strategy of a stream that reads a file, with the id of a state directory."""
    strategy = strategy_of()
    return replace(strategy, declared=changed(strategy.declared, source={"state_id": state_id}))


@pytest.mark.parametrize("began", ["here", None])
def test_a_file_goes_on_from_its_state_directory(one: OneSource, began: str | None) -> None:
    """A stream from before state directories had ids continues in any directory."""

    async def open_twice() -> None:
        await one.closer(read_from(began)).reconcile()
        await one.closer(read_from("here")).reconcile()
        assert await one.epochs() == [(0, 100, 1)]

    asyncio.run(open_twice())


def test_a_file_is_refused_from_another_state_directory(one: OneSource) -> None:
    """In another directory, the same path may be another file, in which positions mean nothing."""

    async def open_twice() -> None:
        await one.closer(read_from("here")).reconcile()
        with pytest.raises(OperatorError, match=r"whose file id holds here \(here there\)"):
            await one.closer(read_from("there")).reconcile()

    asyncio.run(open_twice())


def test_a_running_stream_keeps_the_tree_it_began_with(one: OneSource) -> None:
    replanned = strategy_of(design_of((3, 2)))

    async def replan() -> None:
        await one.closer().reconcile()
        await one.closer(replanned).reconcile()
        state = await one.store.load("visits")
        assert state is not None
        assert Strategy.from_json(state.strategy).design.branching == (2, 3)

    asyncio.run(replan())


def test_a_stream_that_began_with_a_share_per_node_is_refused(one: OneSource) -> None:
    """The intervals of such streams held less often than stated, so a start refuses them in one line."""

    async def start() -> None:
        await one.closer().reconcile()
        state = await one.store.load("visits")
        assert state is not None
        fields = json.loads(state.strategy)
        fields["design"] = json.dumps(json.loads(fields["design"]) | {"share_parts": "AAEC"})
        one.store._streams["visits"].strategy = json.dumps(fields).encode()
        with pytest.raises(OperatorError, match=r"visits: it began with a share .* another name$"):
            await one.closer().reconcile()

    asyncio.run(start())


def test_second_measurement_needs_the_words_of_consent(one: OneSource) -> None:
    again = strategy_of(stream="again")

    async def measure_twice() -> None:
        await one.closer().reconcile()
        with pytest.raises(OperatorError, match="already measured by visits"):
            await one.closer(again).reconcile()
        assert await one.store.load("again") is None
        assert await one.reserved() == [("visits", 0, 100)]
        await one.closer(again, accept=ACCEPTED).reconcile()
        await one.closer(again).reconcile()  # the stream runs: consent was needed only the first time
        assert ("again", 0, 100) in await one.reserved()

    asyncio.run(measure_twice())


def test_the_witness_of_another_strategy_is_refused(one: OneSource) -> None:
    async def foreign() -> None:
        await release_until(one, 102)
        one.store.restore(MemoryStore())
        with pytest.raises(OperatorError, match="releases of another strategy"):
            await one.closer(strategy_of(grace_us=5)).reconcile()

    asyncio.run(foreign())


def test_the_place_of_an_epoch_in_the_ledger_is_taken(one: OneSource) -> None:
    """The stream's state is gone, but its ledger entries remain. So a new start cannot reserve its epoch."""

    async def taken() -> None:
        await one.closer().reconcile()
        one.store._streams.clear()
        with pytest.raises(OperatorError, match="another measurement in the place of"):
            await one.closer(strategy_of(grace_us=5)).reconcile()

    asyncio.run(taken())


def test_seeded_noise_is_refused(one: OneSource) -> None:
    with pytest.raises(ValueError, match="SeededNoise can be repeated"):
        one.closer(noise=SeededNoise(1))
