"""Runs the real pipeline once over made-up records: a file, all loops, a real Redis, the witness.

A rehearsal has the stream's declaration with a short epoch, a store of its own and noise that the caller
gives. It returns everything that the run made public. The chain's nonces are fixed, so two runs whose
released values are equal are equal byte for byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from msgspec import structs

from dphist.arrays import Int64Array
from stream_app.audit.made_up import Event, GivenNoise, Supply, write_log
from stream_app.config import Settings, SourceSettings, StreamSettings
from stream_app.config.plans import planned
from stream_app.core.declaration import Log, Replay
from stream_app.core.epochs import SealedKey
from stream_app.core.strategy import Strategy
from stream_app.loops.clocks import LiveClock, ReplayClock
from stream_app.loops.finding_keys import CellsOfKeys
from stream_app.loops.stream import Ports, Stream
from stream_app.sinks.dead_letter_file import DeadLetterFiles, Keeping
from stream_app.sinks.witness_file import WitnessFile
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from stream_app.vault.key_files import KeyFiles
from stream_app.wiring.event_logs import named_by, open_source
from stream_app.wiring.pipeline import Pipeline

_SKEW_US = 5_000_000
_MORE_THAN_ANY = 1_000_000  # users of made-up records

UsersOfKeys = Mapping[bytes, Sequence[int]]  # by a key's hash: how many users have brought it, by bin


@dataclass(frozen=True, slots=True)
class Public:
    """The public outputs of a rehearsal, and the users who brought keys, which are not public. SECRET."""

    rows: tuple[bytes, ...]
    tables: dict[str, Int64Array]
    brought: UsersOfKeys = field(default_factory=dict, repr=False)

    def same_as(self, other: Public) -> bool:
        """Return whether both are equal, byte for byte."""
        return self.rows == other.rows and all(
            self.tables[name].tobytes() == other.tables[name].tobytes() for name in self.tables
        )


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A stream made ready to be rehearsed; made by ``of``. Args: strategy, as a run of it stores it."""

    settings: Settings
    stream: StreamSettings
    strategy: Strategy
    first_bin: int
    bins: int

    @classmethod
    def of(cls, settings: Settings, stream: StreamSettings, bins: int, first_us: int) -> Rehearsal:
        """Return the stream with one epoch of ``bins`` bins from about ``first_us``, as a replay of a file.

        Its condition on fields (``where``) is left out: it decides by the record alone whether it counts. A
        stream that finds keys names none. Raises: OperatorError if no plan fits the short epoch.
        """
        declared = stream.declared
        binning = declared.time.binning
        first_bin = int(binning.bin_of([first_us])[0])
        from_us, to_us = binning.start_us(first_bin), binning.start_us(first_bin + bins)
        log = Log(name="audit", format="ndjson", replay=Replay(from_us, to_us))
        time = structs.replace(declared.time, epoch_bins=bins, first_us=from_us)
        tree = structs.replace(declared.tree, branching=None, shares=None)
        rehearsed = structs.replace(declared, source=log, time=time, tree=tree, where=None)
        if (keys := declared.keys) is not None and keys.discover is not None:
            none = structs.replace(keys.discover, least_users=_MORE_THAN_ANY)
            rehearsed = structs.replace(rehearsed, keys=structs.replace(keys, discover=none))
        # The file is named when a run has written it.
        source = SourceSettings(file=Path("events.ndjson"), start="earliest")
        short = replace(stream, source=source, declared=rehearsed, accept=None)
        return cls(settings, short, planned(short), first_bin, bins)

    def run(self, events: Sequence[Event], noise: Supply) -> Public:
        """Count, release and publish these events, with this noise."""
        return asyncio.run(self._run(events, noise))

    async def _run(self, events: Sequence[Event], noise: Supply) -> Public:
        with TemporaryDirectory(prefix="audit-") as name:
            directory = Path(name)
            write_log(directory / "events.ndjson", events)
            # The strategy holds the directory's id, and all rows hold the strategy's hash.
            (directory / "id").write_text("audit")
            with EmbeddedRedis(directory / "redis") as server:
                store = _RecordingStore(server.worker_url)
                reader = RedisReader(server.api_url)
                try:
                    strategy = await self._release_all(directory, store, noise)
                    public = await _published(reader, strategy)
                    return replace(public, brought=store.users_of_keys(self))
                finally:
                    await reader.close()
                    await store.close()

    async def _release_all(self, directory: Path, store: RedisStore, noise: Supply) -> Strategy:
        stream, time = self.stream, self.stream.declared.time
        assert isinstance(stream.source, SourceSettings)
        source = replace(stream.source, file=directory / "events.ndjson")
        settings = replace(self.settings, state_dir=directory, streams=(replace(stream, source=source),))
        replay = stream.declared.source.replay
        assert replay is not None
        # One bin at a time, so that noise is drawn in the same order in every run.
        clock = ReplayClock(replay.from_us, replay.to_us + time.grace_us, None, time.bin_us)
        log = await open_source(settings.streams, settings, clock)
        strategy = named_by(log, self.strategy, directory)
        witness = WitnessFile(directory / "witness")
        letters = DeadLetterFiles(directory / "letters", Keeping(3600.0, 10**8, content=False))
        ports = Ports(
            store=store,
            source=log,
            clock=clock,
            wall=LiveClock(store, _SKEW_US),
            witnesses={stream.name: witness},
            dead_letters=letters,
            noise={stream.name: GivenNoise(noise)},
            keys=_Keys(directory / "noise_keys"),
            make_nonce=lambda: "audit",
            new_store=None,
        )
        running = Stream(strategy=strategy, publish_every_us=1_000, draws_between_closings=False)
        try:
            pipeline = Pipeline.over(ports, [running])
            await pipeline.agree()
            await pipeline.run()
        finally:
            letters.close()
            witness.close()
        return strategy


class _RecordingStore(RedisStore):
    """A store that notes its replies to the part of the worker that names keys. SECRET.

    A rehearsal names no key, so the keys that users bring follow from their records alone.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._counts: dict[int, Mapping[int, int]] = {}  # by bin
        self._hashes: dict[int, bytes] = {}  # by a key's number

    async def read_kept(self, stream: str, bins: Sequence[int], cells: Sequence[int]) -> list[dict[int, int]]:
        reply = await super().read_kept(stream, bins, cells)
        if not cells:
            self._counts.update(zip(bins, reply, strict=True))
        return reply

    async def named_keys(self, stream: str, window: int, numbers: Sequence[int]) -> list[SealedKey]:
        reply = await super().named_keys(stream, window, numbers)
        self._hashes.update(zip(numbers, (key.hash for key in reply), strict=True))
        return reply

    def users_of_keys(self, rehearsal: Rehearsal) -> UsersOfKeys:
        """Return the number of users of each key by each bin."""
        new = np.zeros((rehearsal.bins, len(self._hashes)), np.int64)
        for bin, counts in self._counts.items():
            for number, users in CellsOfKeys.of(rehearsal.strategy).users(counts).items():
                new[bin - rehearsal.first_bin, number] += users
        grown = new.cumsum(axis=0)
        return {key: grown[:, number].tolist() for number, key in self._hashes.items()}


class _Keys(KeyFiles):
    """Keys of users that are equal in all rehearsals, so that the same records of a user are chosen."""

    def user_key(self, stream: str, mark: bytes = b"") -> bytes:
        return bytes(32)


async def _published(reader: RedisReader, strategy: Strategy) -> Public:
    state = await reader.public_state(strategy.stream)
    assert state is not None
    rows = await reader.rows(strategy.stream, 0, state.visible_seq)
    tables = {}
    for name, width in strategy.kind.tables.items():
        count = strategy.kind.rows_after(name, state.visible_seq)
        tables[name] = await reader.tile_rows(strategy.stream, state.epochs[0].epoch, name, 0, count, width)
    return Public(tuple(row for _, row in rows), tables)
