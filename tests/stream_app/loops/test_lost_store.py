"""After the store was emptied or set back, its history is put back, and counting continues."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from dphist.epochs import EpochLevels
from dphist.toeplitz import plan_toeplitz
from dphist.tree.design import Release
from dphist.windows.design import WindowDesign
from stream_app.api.replica import StreamReplica
from stream_app.api.replicas import Replicas
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.tables import Span
from stream_app.core.kinds.toeplitz import Toeplitz
from stream_app.core.ledger import lost_measurement
from stream_app.core.segments.endings import Ending
from stream_app.core.segments.visible_costs import KnownEpochs
from stream_app.core.strategy import Strategy
from stream_app.loops.loaded_streams import LoadedStreams
from stream_app.ports import OperatorError
from stream_app.sinks.ledger_file import LedgerFile
from stream_app.sources.file import FileSource
from stream_app.wiring.starting import compare
from tests.models.memory import MemoryStore
from tests.stream_app.declared import BIN_US, FIRST_BIN, SOURCE, STREAM, design_of, strategy_of
from tests.stream_app.one_source import OneSource
from tests.stream_app.product_stream import BUCKETS, ProductSource, product_strategy
from tests.world import deaths

pytestmark = pytest.mark.slow

EPSILON = Fraction(1, 2)
EMPTIED, SET_BACK = "emptied", "set back"


def kinds(release: Release) -> dict[str, Strategy]:
    """Return noisy streams of every kind, with six bins per epoch."""
    tree = replace(design_of((2, 3), EPSILON), release=release)
    axes = product_strategy(EPSILON, release=release)
    part = replace(tree, shares=tuple(share / 5 for share in tree.shares))
    windows = WindowDesign(part, 2, 4, BUCKETS, "identity", Fraction(4, 5))
    levels = EpochLevels(replace(tree, epsilon=EPSILON / 2), EPSILON, (2, 2), (EPSILON / 4, EPSILON / 4))
    return {
        f"tree {release}": strategy_of(tree),
        f"axes {release}": axes,
        f"windows {release}": replace(axes, kind=kind_of(windows)),
        f"over epochs {release}": replace(strategy_of(tree), kind=kind_of(levels)),
    }


def approximate() -> dict[str, Strategy]:
    """Return noisy approximate streams, with and without keys."""
    axes, tree = product_strategy(EPSILON, value=False), strategy_of(design_of((2, 3), EPSILON))
    return {
        f"toeplitz {'with' if keyed else 'without'} keys": replace(
            plain, kind=Toeplitz(plan_toeplitz(6, EPSILON, "1e-6", width=plain.declared.cells.width), keyed)
        )
        for plain, keyed in ((axes, True), (tree, False))
    }


KINDS = kinds("causal") | kinds("anticipating") | approximate()


class Departures(ProductSource):
    """A file with one departure in each bin."""

    def append(self, *bins: float) -> None:
        """Append one departure per bin."""
        self.append_events((bin, "UA", 5) for bin in bins)


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def one(tmp_path: Path, request: Any) -> Iterator[OneSource]:
    """Yield a service with one noisy stream. Its first bin is 100, and its epochs have six bins."""
    kind = OneSource if request.param.declared.cells.width == 1 else Departures
    with closing(kind(tmp_path, request.param)) as one:
        yield one


async def release_until(one: OneSource, bin: int, **options: Any) -> None:
    """Count an event in each bin, release every bin before ``bin``, and make it visible."""
    closer = one.closer(**options)
    await closer.reconcile()
    while one.clock.now_us < bin * BIN_US:
        now_bin = one.clock.now_us // BIN_US
        one.append(now_bin)
        one.clock.set_bin(now_bin + 1)
    ingest = one.ingest(start="latest")
    await ingest.step()
    while await ingest.step():
        pass
    await closer.close_due()
    await closer.publisher.publish()


def lose(one: OneSource, how: str, backup: MemoryStore) -> None:
    one.store.restore(MemoryStore() if how == EMPTIED else backup)


async def view_of(one: OneSource) -> StreamView:
    """Return the API's view of the stream."""
    reader = one.store.reader()
    state = await reader.public_state(STREAM)
    assert state is not None
    view = StreamView(state.strategy)
    blocks = [
        (want, await reader.tile_rows(STREAM, *want, view.strategy.kind.tables[want.table]))
        for want in view.missing(state)
    ]
    view.extend(state, blocks)
    return view


async def tables(one: OneSource) -> list[list[list[int]]]:
    """Return the contents of all tables of all epochs."""
    view = await view_of(one)
    return [epoch.rows(table).tolist() for epoch in view.epochs for table in view.strategy.kind.tables]


async def answers(one: OneSource, last_bin: int) -> list[float]:
    """Return the count of every single bin, and of every range from the first bin on."""
    view = await view_of(one)
    ranges = [Span(FIRST_BIN, bin + 1) for bin in range(FIRST_BIN, last_bin + 1)]
    ranges += [Span(bin, bin + 1) for bin in range(FIRST_BIN, last_bin + 1)]
    return [float(view.count(span).value) for span in ranges]


@pytest.mark.parametrize("how", [EMPTIED, SET_BACK])
async def test_readers_have_the_history_again(one: OneSource, how: str) -> None:
    await release_until(one, 103)
    backup = one.store.copy()
    await release_until(one, 109)  # one epoch further
    before, seen = await answers(one, 108), await one.store.rows(STREAM, 0, 100)
    held = await tables(one)
    lose(one, how, backup)
    await release_until(one, 109)
    assert await one.store.rows(STREAM, 0, 100) == seen
    assert await answers(one, 108) == before
    assert (await tables(one))[: len(held)] == held
    await release_until(one, 111)
    assert (await answers(one, 110))[:9] == before[:9]
    assert [bin for _, bin, _ in await one.epochs()] == [100, 106, 109]


async def test_an_api_that_looked_at_any_moment_follows(one: OneSource) -> None:
    """The API saw the first epoch while it ran. It learns of the epoch's end together with later rows."""
    for moments in range(5):
        for looks in combinations(range(4), moments):
            one.witness, one.clock.now_us = type(one.witness)(), FIRST_BIN * BIN_US
            one.store.restore(MemoryStore())
            await follows(one, looks)


async def follows(one: OneSource, looks: tuple[int, ...]) -> None:
    """Refresh a replica at some moments while the store is lost; check that it has all rows at the end."""
    replica = StreamReplica(one.store.reader(), STREAM, Replicas(one.store.reader()).stated, KnownEpochs())

    async def look(moment: int) -> None:
        if moment in looks:
            await replica.refresh()

    await release_until(one, 102)
    await look(0)
    lose(one, EMPTIED, one.store)
    await look(1)
    closer = one.closer()
    await closer.reconcile()
    await look(2)
    await closer.publisher.publish()
    await look(3)
    await release_until(one, 104)
    await replica.refresh()
    assert replica.view is not None
    assert (replica.seq, replica.view.visible_seq) == (4, 4)


async def test_an_emptied_store_skips_no_bin_whose_records_are_still_there(one: OneSource) -> None:
    """The worker was down during the loss and for four more bins. The stream had begun at the log's end."""
    await release_until(one, 103)
    lose(one, EMPTIED, one.store)
    one.clock.set_bin(107)
    one.append(103, 104, 105, 106)
    told: list[tuple[Ending, int]] = []
    await release_until(one, 108, sharing={"on_end": lambda *end: told.append(end)})
    rows = await one.store.rows(STREAM, 0, 100)
    assert [seq for seq, _ in rows] == list(range(1, 9)), "bins 100 to 107"
    assert len({letter.position for letter in one.letters.kept}) == 3, "those of released bins"
    assert set(one.letters.reasons()) == {"before_first_bin"}
    assert told == [(Ending.STORE_LOST, 0)]


async def test_bins_whose_records_are_gone_are_missing_and_the_operator_is_notified(
    one: OneSource, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await release_until(one, 103)
    lose(one, EMPTIED, one.store)
    one.clock.set_bin(107)

    async def kept_since_us(_: FileSource) -> int:
        return int(103.5 * BIN_US)

    monkeypatch.setattr(FileSource, "kept_since_us", kept_since_us)
    told: list[tuple[Ending, int]] = []
    await release_until(one, 108, sharing={"on_end": lambda *end: told.append(end)})
    ahead = 1 + 1  # a record may be written one bin early, and the bin that ran then is not complete
    assert (await one.epochs())[-1] == (1, 103 + ahead, 4)
    assert told == [(Ending.STORE_LOST, ahead)]
    view = await view_of(one)
    assert list(view.unmeasured(Span(102, 106))) == [Span(103, 105)]
    assert "the bins from 1970-01-01T00:17:10Z to 1970-01-01T00:17:30Z are missing" in caplog.text


async def test_a_store_that_is_emptied_while_loops_run_is_an_outage(one: OneSource) -> None:
    """Another loop may have met the failing connection, or none did; these only find the stream gone."""
    await release_until(one, 103)
    closer, views = one.closer(), LoadedStreams([STREAM])
    state = await closer.reconcile()
    lose(one, EMPTIED, one.store)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: closer._until_sealed(103),
        lambda: views.load(STREAM, one.store),
    ]
    if not closer._strategy.kind.stores_ahead:  # else its noise is lost, too, and no count is read
        calls.append(lambda: closer._release(closer._strategy, state, 103))
    for call in calls:
        with pytest.raises(ConnectionError, match=r"never opened|no longer there"):
            await call()  # the loop then asks the witness


@pytest.mark.parametrize("how", [EMPTIED, SET_BACK])
async def test_putting_back_may_be_interrupted_at_every_call(
    one: OneSource, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_app.core.releases.restored.ROWS_A_STEP", 2)
    await release_until(one, 103)
    backup = one.store.copy()
    await release_until(one, 109)
    seen, witnessed = await one.store.rows(STREAM, 0, 100), await one.witness.rows(STREAM, 0)
    before = await answers(one, 108)
    calls = 0
    for death in deaths():
        calls += 1
        lose(one, how, backup)
        with suppress(asyncio.CancelledError):
            await one.closer(store=death.of(one.store)).reconcile()
        if not death.has_come:
            break
        await release_until(one, 109)
        assert await one.store.rows(STREAM, 0, 100) == seen
        assert await answers(one, 108) == before
        assert await one.witness.rows(STREAM, 0) == witnessed
    assert calls > 8, "each call was the last one once"


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda values: b"", "the witness lacks values: an older version wrote it"),
        (lambda values: values[:-1], "row 1: its values in the witness are damaged"),
        (
            lambda values: zlib.compress(zlib.decompress(values)[:-1] + b"\x55"),
            "row 1: its values in the witness are not those that the row has hashes of",
        ),
    ],
)
def test_values_that_no_row_vouches_for_are_not_put_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[bytes], bytes], why: str
) -> None:
    """Values that cannot be put back are missing, not zero. The service logs this once."""
    with closing(ProductSource(tmp_path, product_strategy())) as one:
        one.append_events([(101.5, "UA", 1)])
        one.run_until(102)
        kept = one.witness.kept[STREAM]
        kept[0] = kept[0]._replace(values=damage(kept[0].values))
        lose(one, EMPTIED, one.store)

        async def open_again_and_again() -> None:
            closer = one.closer()
            for _ in range(3):
                await closer.reconcile()

        asyncio.run(open_again_and_again())
        one.run_until(104)
        assert [epoch for epoch, _, _ in asyncio.run(one.epochs())] == [1]
        assert caplog.text.count(f"what the store lost cannot be put back: {why}") in (1, 2)


async def test_a_number_that_only_the_ledger_outside_knows_is_not_used_again(
    one: OneSource, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The lost store had an open epoch without releases, and the log's first records are gone."""

    kept = {"since_us": 107 * BIN_US}

    async def kept_since_us(_: FileSource) -> int:
        return kept["since_us"]

    outside = LedgerFile.create(tmp_path / "elsewhere")
    ledger = {"outside": outside}
    await release_until(one, 106, ledger=ledger)
    assert [bin for _, bin, _ in await one.epochs()] == [100, 106]
    lose(one, EMPTIED, one.store)
    one.clock.set_bin(109)
    monkeypatch.setattr(FileSource, "kept_since_us", kept_since_us)
    await one.closer(ledger=ledger).reconcile()
    assert [(epoch, bin) for epoch, bin, _ in await one.epochs()] == [(0, 100), (2, 109)]

    async def start() -> None:
        """Run the checks of a worker's start. They must pass while the new epoch has no release yet."""
        await compare(one.store, outside, SOURCE, await outside.entries())
        assert lost_measurement(await one.store.ledger(SOURCE), STREAM, 0) is None
        await one.closer(ledger=ledger).reconcile()

    for _ in range(2):
        await start()
    entries = await one.store.ledger(SOURCE)
    assert sorted((entry.epoch, entry.start_us // BIN_US, entry.lost) for entry in entries) == [
        (0, 100, False),
        (1, 106, True),  # the sum of costs keeps this epoch
        (2, 109, False),
    ]
    # The store is lost again before this epoch released anything. Its number is not used again either.
    lose(one, EMPTIED, one.store)
    one.clock.set_bin(111)
    kept["since_us"] = 109 * BIN_US
    await one.closer(ledger=ledger).reconcile()
    assert (await one.epochs())[-1][:2] == (3, 111)
    await start()


async def test_a_stream_that_only_the_ledger_outside_knows_does_not_begin_anew(
    one: OneSource, tmp_path: Path
) -> None:
    """Store and witness are lost while a worker runs. It must not draw noise for the same bins again."""
    ledger = {"outside": LedgerFile.create(tmp_path / "elsewhere")}
    await release_until(one, 103, ledger=ledger)
    lose(one, EMPTIED, one.store)
    one.witness.kept.clear()
    with pytest.raises(
        OperatorError, match=r"knows that it measured .* \(epoch 0, from .*; restore a copy of the store"
    ):
        await one.closer(ledger=ledger).reconcile()


@pytest.mark.parametrize("how", [EMPTIED, SET_BACK])
async def test_a_reservation_that_the_store_lost_skips_no_bin(
    one: OneSource, how: str, tmp_path: Path
) -> None:
    """Readers had not seen the epoch's last row when the store was lost. The next epoch was reserved.

    A worker's start copies the reservation from the ledger outside. It is for the bin after the lost row.
    """
    outside = LedgerFile.create(tmp_path / "elsewhere")
    ledger = {"outside": outside}
    await release_until(one, 103, ledger=ledger)
    backup = one.store.copy()
    await release_until(one, 106, ledger=ledger)
    assert [bin for _, bin, _ in await one.epochs()] == [100, 106]
    del one.witness.kept[STREAM][-1]
    lose(one, how, backup)
    for _ in range(2):  # a worker starts, and starts again before the new epoch has a row
        await compare(one.store, outside, SOURCE, await outside.entries())
        await one.closer(ledger=ledger).reconcile()
        assert (await one.epochs())[-1][:2] == (2, 105)
    await release_until(one, 108, ledger=ledger)
    rows = [json.loads(row) for _, row in await one.store.rows(STREAM, 0, 100)]
    assert [row["bin"] for row in rows] == list(range(100, 108))
