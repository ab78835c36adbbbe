"""Counts the events of a configuration's files in memory, at epsilon 1e9, so that every count is exact."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dphist.noise import SystemNoise
from stream_app.config import Settings, StreamSettings
from stream_app.config.load import load
from stream_app.config.plans import planned
from stream_app.config.source import by_log
from stream_app.core.records import Reply
from stream_app.core.store_writes import Apply
from stream_app.loops.clocks import LiveClock, ReplayClock
from stream_app.loops.stream import Ports, Stream
from stream_app.ports import NoiseKeys, Store
from stream_app.vault.key_files import KeyFiles
from stream_app.wiring.event_logs import open_source
from stream_app.wiring.known_logs import ledger_of
from stream_app.wiring.pipeline import Pipeline
from tests.models.memory import MemoryStore
from tests.simulator.memory_sinks import MemoryWitness
from tests.stream_app.one_source import DeadLetterList

FROM, TO = "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"


@dataclass
class Counts:
    """What was counted.

    Args: total, as released; cells, the exact number of each key, or of each bucket; refused, the reasons.
    """

    total: int = 0
    cells: Counter[str | int] = field(default_factory=Counter, compare=False)
    refused: Counter[str] = field(default_factory=Counter)


class _Store(MemoryStore):
    """A store that remembers what was added to each cell."""

    def __init__(self) -> None:
        super().__init__()
        self.added: dict[str, Counter[int]] = defaultdict(Counter)

    async def apply(self, stream: str, change: Apply) -> Reply:
        """Apply a change."""
        reply = await super().apply(stream, change)
        if reply is Reply.DONE and change.users is None:
            for cell, delta in zip(change.cells.tolist(), change.deltas.tolist(), strict=True):
                self.added[stream][cell] += delta
        return reply


def stream(file: str, *, field: str = "at", form: str = "iso8601", **more: Any) -> dict[str, Any]:
    """Return a stream that replays a day of a file. Args: more, sections to add or to change."""
    privacy = {"epsilon": 1.0e9, "not_private": True} | more.pop("privacy", {})
    time = {"field": field, "format": form, "bin": "1h", "epoch": "1d"} | more.pop("time", {})
    source = {"file": file, "replay": {"from": FROM, "to": TO}} | more.pop("source", {})
    return {"source": source, "time": time, "privacy": privacy, **more}


def settings_of(directory: Path, streams: dict[str, Any]) -> Settings:
    """Return the settings of streams over files of a directory."""
    config = directory / "counts.yaml"
    config.write_text(json.dumps({"streams": streams}))
    return load(config)


def count(directory: Path, **streams: Any) -> dict[str, Counts]:
    """Return what each stream counts. Args: streams, as ``stream`` returns them."""
    return counts_of(settings_of(directory, streams))


def counts_of(settings: Settings) -> dict[str, Counts]:
    """Return what each stream of a configuration counts."""
    return asyncio.run(_count(settings))


async def _count(settings: Settings) -> dict[str, Counts]:
    store, found = _Store(), {one.name: Counts() for one in settings.streams}
    for streams in by_log(settings.streams):
        letters = DeadLetterList()
        await run_replay(streams, settings, store, defaultdict(MemoryWitness), letters)
        for name, refusal in zip(letters.streams, letters.kept, strict=True):
            for one in streams:
                if name in (None, one.name):
                    found[one.name].refused[str(refusal.reason)] += 1
    for one in settings.streams:
        *_, (_, last) = await store.rows(one.name, 0, 10**6)
        found[one.name].total = round(json.loads(last)["estimate"][0])
        keys, cells = one.declared.keys, store.added[one.name]
        found[one.name].cells = Counter({keys.labels[at] if keys else at: n for at, n in cells.items()})
    return found


async def run_replay(
    streams: list[StreamSettings],
    settings: Settings,
    store: Store,
    witnesses: Mapping[str, MemoryWitness],
    letters: DeadLetterList,
    keys: NoiseKeys | None = None,
) -> None:
    """Replay the streams of one log to the end. Args: keys, of the vault; None: in the state directory."""
    replay = streams[0].declared.source.replay
    assert replay is not None
    clock = ReplayClock(replay.from_us, replay.to_us, None, streams[0].declared.time.bin_us * 24)
    source = await open_source(streams, settings, clock)
    ports = Ports(
        store=store,
        source=source,
        clock=clock,
        wall=LiveClock(store),
        witnesses=witnesses,
        dead_letters=letters,
        noise=defaultdict(SystemNoise),
        keys=keys or KeyFiles(settings.state_dir / "keys"),
    )
    opened = [
        Stream(strategy=planned(one), ledger=ledger_of(one, settings, store, None), publish_every_us=1_000)
        for one in streams
    ]
    pipeline = Pipeline.over(ports, opened)
    try:
        await pipeline.agree()
        await pipeline.run()
    finally:
        await source.close()
