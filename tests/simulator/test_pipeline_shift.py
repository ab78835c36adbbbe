"""Transcript shift test of the whole pipeline, from logs to public bytes and the instants they appear at.

Everything public must depend on the log only through its counts plus noise. So the test takes one record out
of a log, and adds the record's counts to the noise of its nodes. The public rows, hashes, nodes and instants
must then be the same, byte for byte: nothing else of the log (its length, batches, positions) may show.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from dphist.arrays import Int64Array
from dphist.epochs import EpochLevels
from dphist.noise import Scale
from dphist.tree import decoder
from dphist.tree.design import Release, TreeDesign
from dphist.windows.design import WindowDesign
from stream_app.core.kinds.axes import CausalAxes
from stream_app.core.records import StreamState
from stream_app.core.releases import release as make
from stream_app.loops.stream import Ports
from tests.simulator.checks import columns_of, groups_of
from tests.simulator.given_noise import RememberedNoise, drawn_together
from tests.simulator.log import Log
from tests.simulator.neighbours import Cell, binned, some_record
from tests.simulator.pipeline import Passing, Pipeline
from tests.simulator.schedule import FIRST_BIN, Deed, Schedule, draw_schedule, seeds
from tests.simulator.world import World, run_world

pytestmark = pytest.mark.slow


class GivenPipeline(Pipeline):
    """The service with fixed noise for each node of each epoch, plus R times a change of counts."""

    def __init__(self, change: Mapping[Cell, int]) -> None:
        self.change = change

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Draw no vectors ahead, because noise depends on the state at the release; fix the nonces of rows.

        A nonce is random in the service, one for each attempt to release. After an outage the speed of
        reading decides how many bins share an attempt.
        """
        undrawn: Any = patch.object(CausalAxes, "vectors", lambda kind: {})
        with undrawn, patch.object(make, "_row_nonce", lambda attempt, seq: f"{seq:032x}"):
            yield

    async def run(self, schedule: Schedule, ports: Ports) -> None:
        """Run a worker whose noise knows which nodes it is drawn for."""
        store, keys = _Watched(ports.store), _WatchedKeys(ports.keys)
        noise = _NoiseOfEpochs(schedule, store, keys, ports.noise[schedule.name], self.change)
        await super().run(schedule, replace(ports, store=store, keys=keys, noise={schedule.name: noise}))


class _Watched(Passing):
    """A store that remembers the last state that it returned. The next release continues from this state."""

    state: StreamState | None = None

    async def load(self, stream: str) -> StreamState | None:
        """Load the state and remember it."""
        self.state = await self._inner.load(stream)
        return self.state


class _WatchedKeys(Passing):
    """Keys that remember the epoch of the key made last. This epoch's noise is drawn next."""

    epoch = 0

    async def create(self, stream: str, epoch: int, nonce: str, mark: bytes = b"") -> bytes:
        """Make a key and remember its epoch."""
        self.epoch = epoch
        key: bytes = await self._inner.create(stream, epoch, nonce, mark)
        return key


class _NoiseOfEpochs:
    private = True  # stands in for the system source, which nobody can steer

    def __init__(
        self,
        schedule: Schedule,
        store: _Watched,
        keys: _WatchedKeys,
        drawn: Any,
        change: Mapping[Cell, int],
    ) -> None:
        self._seed = schedule.seed
        self._strategy = schedule.strategy
        self._design = schedule.design
        groups = groups_of(schedule.strategy)
        self._calls = [(call, columns) for design, columns in groups for call in drawn_together(design)]
        self._called = 0
        self._store = store
        self._keys = keys
        self._drawn: RememberedNoise = drawn
        self._change = change
        self._windows_of, self._histograms = -1, 0

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Return the noise of the next nodes of this scale's level, plus the change of their counts."""
        window, horizon = self._strategy.kind.windows, self._design.horizon
        if window is not None and Fraction(scale) == 1 / window.epsilon:
            return self._of_window(window, scale)
        levels = self._strategy.kind.levels
        if levels is not None and scale in levels.scales:
            return self._over_epochs(levels.scales.index(float(scale)), levels, scale)
        if self._design.release == "anticipating":
            # No epoch ends early here, so all earlier epochs are full.
            epoch = self._keys.epoch
            first_bin = FIRST_BIN + epoch * horizon
            (level, expected, nodes), columns = self._calls[self._called % len(self._calls)]
            self._called += 1
            assert scale == expected
        else:
            [(level, columns)] = [(call.level, own) for call, own in self._calls if call.scale == scale]
            state = self._store.state
            assert state is not None
            epoch, first_bin = state.epoch.epoch, state.epoch.first_bin
            first = self._design.shape.completed_count(state.released_bin + 1 - first_bin, level)
            nodes = list(range(first, first + (shape if isinstance(shape, int) else shape[0])))
        width = self._design.shape.widths[level]
        values = np.zeros(shape, dtype=np.int64)
        for place, index in enumerate(nodes):
            bins = range(first_bin + index * width, first_bin + min((index + 1) * width, horizon))
            moved = sum((self._changed(bin)[columns] for bin in bins), np.zeros(values.shape[1], np.int64))
            drawn = random.Random(f"{self._seed} {epoch} {level} {index} {columns.start}")
            values[place] = moved + [drawn.randrange(-50, 51) for _ in range(values.shape[1])]
        return self._drawn.remember(scale, values)

    def _over_epochs(self, level: int, levels: EpochLevels, scale: Scale) -> Int64Array:
        """Return the noise of the node over epochs that ends with the running epoch."""
        state = self._store.state
        assert state is not None
        stop = state.epoch.first_bin + self._design.horizon
        drawn = random.Random(f"{self._seed} {stop} over epochs {level}")
        bins = range(stop - levels.widths[level] * self._design.horizon, stop)
        moved = sum(int(self._changed(bin)[0]) for bin in bins)
        return self._drawn.remember(scale, np.array([drawn.randrange(-50, 51) + moved], np.int64))

    def _of_window(self, window: WindowDesign, scale: Scale) -> Int64Array:
        """Return the noise of one histogram of the window that ends next."""
        state = self._store.state
        assert state is not None
        if self._windows_of != state.seq:
            self._windows_of, self._histograms = state.seq, 0
        done = (state.released_bin + 1 - state.epoch.first_bin) // window.bins
        later, histogram = divmod(self._histograms, window.histograms)
        self._histograms += 1
        first = state.epoch.first_bin + (done + later) * window.bins
        drawn = random.Random(f"{self._seed} {first} {histogram}")
        noise = np.array([drawn.randrange(-50, 51) for _ in range(window.buckets)], dtype=np.int64)
        for bin in range(first, first + window.bins):
            for bucket in range(window.buckets):
                noise[bucket] += self._change.get((bin, histogram * window.buckets + bucket), 0)
        return self._drawn.remember(scale, noise)

    def _changed(self, bin: int) -> Int64Array:
        cells = [[self._change.get((bin, cell), 0) for cell in range(self._strategy.width)]]
        row: Int64Array = columns_of(self._strategy, np.array(cells, dtype=np.int64))[0]
        return row

    def select(self, scores: Any, scale: Scale) -> int:
        """Fail: a tree of counts selects nothing."""
        raise AssertionError("nothing here selects")


def public(schedule: Schedule, log: Log, change: Mapping[Cell, int]) -> dict[str, Any]:
    """Run a log and return everything that anybody ever saw of it, with the instants."""
    world = World(schedule, log=log, pipeline=GivenPipeline(change))
    run_world(world)
    watch = world.observer.watch
    return {"rows": watch.rows, "nodes": watch.nodes, "visible_at": watch.seen_at_us}


def neighbouring_transcripts(seed: int, release: Release) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the public transcripts of a neighbouring log and of the log.

    The neighbour lacks one record, and its noise is moved by that record's counts.
    """
    schedule = replace(draw_schedule(seed).without_trouble(), release=release)
    outages = tuple(action for action in draw_schedule(seed).actions if action.deed is Deed.OUTAGE)
    schedule = replace(schedule, actions=outages, exact_cuts=True)
    log = World(schedule).log
    neighbour = log.without(*some_record(log, random.Random(seed)))
    counts, others = binned(schedule, log), binned(schedule, neighbour)
    change = Counter(counts)
    change.subtract(others)
    batches = replace(schedule, largest_batch=schedule.largest_batch + 1)
    expected = public(schedule, log, {})
    assert all(at_us % schedule.publish_every_us == 0 for at_us in expected["visible_at"].values())
    if any(change.values()):
        assert public(schedule, neighbour, {}) != expected
    return public(batches, neighbour, change), expected


@pytest.mark.parametrize("release", ["anticipating", "causal"])
@pytest.mark.parametrize("seed", seeds(quick=2, all=20))
def test_the_public_transcript_depends_on_counts_plus_noise_alone(seed: int, release: Release) -> None:
    neighbour, expected = neighbouring_transcripts(seed, release)
    assert neighbour == expected


def test_a_decoder_that_rounds_values_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: estimates are rounded to even counts where a rounded difference should be added."""
    exact = decoder.decode_nodes

    def rounded(design: TreeDesign, noise: Any) -> Any:
        estimates, leaves = exact(design, noise)
        assert leaves is not None
        return estimates, np.rint(leaves / 2.0**17).astype(np.int64) << 17

    monkeypatch.setattr(decoder, "decode_nodes", rounded)
    transcripts = (neighbouring_transcripts(seed, "anticipating") for seed in range(12))
    assert any(neighbour != expected for neighbour, expected in transcripts)
