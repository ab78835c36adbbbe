"""Streams that a test counts and releases through the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import structs

from dphist import SeededNoise, plan_tree
from dphist.arrays import Int64Array
from dphist.tree.anticipating import BinsNoise, bins_noise
from dphist.tree.decoder import EpochNoise, decode_noise, draw_epoch_noise
from dphist.tree.design import Release
from dphist.tree.estimate import Estimate
from stream_app.core.answers.answered import SeriesPoints
from stream_app.core.counting.bins import LARGEST_APPLY_CELLS
from stream_app.core.counting.bounding import PerUser
from stream_app.core.counting.where import Condition
from stream_app.core.declaration import Counted, Declaration
from stream_app.core.kinds import kind_of
from stream_app.core.ledger import entry_of
from stream_app.core.records import GENESIS, Cut, EpochRecord, LedgerEntry, Reply, StreamState
from stream_app.core.releases.release import make_release
from stream_app.core.segments.strategies import strategies_text, with_strategy
from stream_app.core.store_writes import Apply
from stream_app.core.strategy import Strategy
from tests.models.memory import MemoryStore
from tests.stream_app.declared import declared_of

HOUR_US = 3_600_000_000
FIRST_BIN = 376_944  # 2013-01-01T00:00:00Z in hours


def declared(epsilon: str, bin_us: int = HOUR_US, timezone: str | None = None, **others: Any) -> Declaration:
    """Return what the configuration of a stream over a file declares."""
    return declared_of(
        epsilon=epsilon,
        private=float(epsilon) <= 20,
        field="scheduled",
        bin_us=bin_us,
        timezone=timezone,
        max_ahead_bins=24,
        **{"source": "flights.ndjson"} | others,
    )


@dataclass
class Published:
    """One stream in a memory store. ``close`` counts and releases bins, ``show`` makes them visible."""

    store: MemoryStore
    name: str = "departures"
    epsilon: str = "1"
    epoch_bins: int = 64
    first_bin: int = FIRST_BIN
    bin_us: int = HOUR_US
    timezone: str | None = None
    source: str = "flights.ndjson"
    seed: int = 1
    branching: tuple[int, ...] | None = None  # left to the planner
    release: Release = "causal"
    user: PerUser | None = None
    count: Counted = None
    where: Condition | None = None
    replay: tuple[int, int] | None = None
    successor_of: str | None = None
    counts: list[int] = field(default_factory=list)  # the truth, for tests only

    def __post_init__(self) -> None:
        design = plan_tree(self.epoch_bins, self.epsilon, branching=self.branching, release=self.release)
        self.strategy = Strategy(self.name, self.declared(), kind_of(design))
        self.noise = SeededNoise(self.seed)
        self.position = 0
        self.drawn: dict[int, tuple[EpochNoise, Int64Array]] = {}

    def declared(self, **axes: Any) -> Declaration:
        """Return what the stream declares."""
        own: dict[str, Any] = {"source": self.source, "epoch_bins": self.epoch_bins}
        own |= {"user": self.user, "count": self.count, "where": self.where, "replay": self.replay}
        found = declared(self.epsilon, self.bin_us, self.timezone, **own, **axes)
        if self.successor_of is None:
            return found
        begins = structs.replace(found.time, first_us=found.time.binning.start_us(self.first_bin))
        return structs.replace(found, time=begins, successor_of=self.successor_of)

    def change(self, epsilon: str, branching: tuple[int, ...] | None = None) -> None:
        """Change the settings of the epochs that open from now on."""
        self.epsilon, self.branching = epsilon, branching
        design = plan_tree(self.epoch_bins, epsilon, branching=branching, release=self.release)
        self.strategy = Strategy(self.name, self.declared(), kind_of(design))

    async def open(self, epoch: int = 0, first_bin: int | None = None) -> None:
        """Reserve an epoch in the ledger, then open it."""
        state = await self.store.load(self.name)
        first = self.first_bin if first_bin is None else first_bin
        binning = self.strategy.declared.time.binning
        before = None if state is None or state.strategy == self.strategy.to_json() else state
        changed_from = None if before is None else before.epoch.strategy_hash
        of_epoch = EpochRecord(epoch, first, self.epoch_bins, 1, self.strategy.hash)
        promised = entry_of(self.strategy.declared, self.name, of_epoch)
        await self.store.reserve(
            LedgerEntry(
                self.source,
                self.name,
                epoch,
                binning.start_us(first),
                binning.start_us(first + self.epoch_bins),
                self.epsilon,
                "event" if self.user is None else "user",
                self.strategy.hash,
                float(self.epsilon) <= 20,
                user=None if self.user is None else self.user.field,
                per=promised.per,
                period_us=promised.period_us,
                periods=promised.periods,
                changed_from=changed_from,
                successor_of=promised.successor_of,
            )
        )
        seq, head = (state.seq, state.head) if state else (0, GENESIS)
        record = EpochRecord(
            epoch, first, self.epoch_bins, seq + 1, self.strategy.hash, changed_from=changed_from
        )
        text, replaced = self.strategy.to_json(), b""
        if before is not None:
            replaced = strategies_text(before.texts)
            text = strategies_text(with_strategy(before.texts, text))
        elif state is not None:
            text = strategies_text(state.texts)
        carried = b"" if state is None else self.strategy.kind.kept(state.counter)
        reply = await self.store.open_epoch(self.name, text, record, head, carried=carried, replaced=replaced)
        assert reply is Reply.DONE, reply
        if state is None:
            await self.store.start_partition(self.name, self.strategy.hash, "0", 0)

    async def close(self, counts: Sequence[int], show: bool = True) -> None:
        """Count events into the next bins, then seal and release them."""
        await self.close_cells(np.asarray(counts, dtype=np.int64)[:, np.newaxis], show)
        self.counts.extend(counts)

    async def close_cells(self, cells: Int64Array, show: bool = True) -> None:
        """Count, seal and release the next bins. Args: cells, shape (bins, ...), of each bin its cells."""
        most = max(1, LARGEST_APPLY_CELLS // self.strategy.width)
        for first in range(0, len(cells), most):
            await self._close_cells(cells[first : first + most], show)

    async def _close_cells(self, cells: Int64Array, show: bool) -> None:
        state, width = await self._state(), self.strategy.width
        first, last = state.released_bin + 1, state.released_bin + len(cells)
        partition, counts = state.partitions["0"], cells.reshape(len(cells), width)
        rows, places = np.nonzero(counts)
        change = Apply(
            self.strategy.hash,
            "0",
            self.position,
            self.position + 1,
            partition.last_cut_bin,
            None,
            first + rows,
            places,
            counts[rows, places],
            epoch=state.epoch.epoch,
        )
        assert await self.store.apply(self.name, change) is Reply.DONE
        self.position += 1
        cuts = [Cut(last, self.position)]
        await self.store.take_cuts(self.name, self.strategy.hash, "0", partition.last_cut_bin, cuts)
        assert await self.store.seal(self.name, self.strategy.hash, ["0"], last) == last
        exact = await self.store.read_cells(self.name, first, last, width)
        state = await self._state()
        ahead = self._noise_of(state, len(cells))
        release = make_release(state, self.strategy, exact, self.noise, nonce=str(state.seq), ahead=ahead)
        assert await self.store.release(self.name, release) is Reply.DONE
        if show:
            await self.show()

    async def show(self, seq: int | None = None) -> None:
        """Make released rows visible."""
        state = await self._state()
        await self.store.publish(self.name, state.seq if seq is None else seq)

    def _noise_of(self, state: StreamState, bins: int) -> BinsNoise | None:
        """Return the next bins' noise if it is drawn ahead. It is drawn once per epoch."""
        design, epoch = self.strategy.design, state.epoch
        if not self.strategy.kind.stores_ahead:
            return None
        if epoch.epoch not in self.drawn:
            drawn = draw_epoch_noise(design, self.noise)
            self.drawn[epoch.epoch] = drawn, decode_noise(design, drawn)
        first = state.released_bin + 1 - epoch.first_bin
        return bins_noise(design, *self.drawn[epoch.epoch], first, first + bins)

    async def _state(self) -> StreamState:
        state = await self.store.load(self.name)
        assert state is not None
        return state


def estimates(series: SeriesPoints) -> list[Estimate]:
    """Return each point of a series as an estimate."""
    laws = [series.laws.law(row) for row in range(len(series.spans))]
    columns = zip(series.values.tolist(), laws, series.roundings.tolist(), strict=True)
    return [Estimate(value, law.variance, law, rounding) for value, law, rounding in columns]
