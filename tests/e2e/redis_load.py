"""A worker counts a growing file in this process while its Redis fails; everything shown is kept."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import redis

from stream_app.config import Settings, load
from stream_app.sinks.witness_file import witnessed_rows
from stream_app.state.reader import RedisReader
from stream_app.together import until_one_ends
from stream_app.wiring.workers import run_worker
from tests.patience import PATIENCE_S

EVERY_S = 0.05
ONE = 2**16  # running counts are published in fractions of an event

CONFIGURATION = """
redis: {{url: "{worker}", api_url: "{api}", alerts_url: "{alerts}", {redis}}}
publish_every: 250ms
streams:
{streams}
{more}
"""
STREAM = """
  {name}:
    source: {{file: {name}.ndjson}}
    time: {{field: at, format: ms, bin: 1s, grace: 3s, epoch: 1h, max_ahead: 60s}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
"""


def configured(
    folder: Path, url: Callable[[str], str], streams: list[str], redis: str = "", more: str = ""
) -> Settings:
    """Return the settings of a worker over a file for each stream. Args: url, of a user."""
    for name in streams:
        (folder / f"{name}.ndjson").touch()
    text = CONFIGURATION.format(
        worker=url("worker"),
        api=url("api"),
        alerts=url("alerts"),
        redis=redis,
        streams="".join(STREAM.format(name=name) for name in streams),
        more=more,
    )
    (folder / "app.yaml").write_text(text)
    return load(folder / "app.yaml", {})


@dataclass
class Seen:
    """What readers of one stream have been shown."""

    name: str
    rows: dict[int, bytes] = field(default_factory=dict)  # by seq
    at_s: list[float] = field(default_factory=list)  # when each new row was seen

    def note(self, rows: list[tuple[int, bytes]]) -> None:
        """Note rows that a reader got. A row that was seen before must have the same bytes."""
        for seq, row in rows:
            assert self.rows.setdefault(seq, row) == row, f"{self.name}: row {seq} has two values"
        self.at_s.append(time.monotonic())

    @property
    def epochs(self) -> list[int]:
        """The numbers of the epochs that were seen."""
        return sorted({json.loads(row)["epoch"] for row in self.rows.values()})

    def counts(self) -> dict[int, Fraction]:
        """Return the released count of each bin, by its first second. Each bin must be there once."""
        found: dict[int, Fraction] = {}
        before: dict[int, Fraction] = {}
        for seq in sorted(self.rows):
            row = json.loads(self.rows[seq])
            assert row["bin"] not in found, f"{self.name}: bin {row['bin']} was released twice"
            [total] = (Fraction(value, ONE) for value in row["published"])
            found[row["bin"]] = total - before.get(row["epoch"], Fraction())
            before[row["epoch"]] = total
        assert list(found) == list(range(min(found), max(found) + 1)), f"{self.name}: a bin is missing"
        return found

    @property
    def longest_pause_s(self) -> float:
        """The longest time between new rows."""
        return max(later - earlier for earlier, later in zip(self.at_s, self.at_s[1:], strict=False))


class Load:
    """Files that grow, what was written to them, and what readers have seen of it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.written: dict[str, Counter[int]] = {stream.name: Counter() for stream in settings.streams}
        self.seen = {stream.name: Seen(stream.name) for stream in settings.streams}
        self.running: asyncio.Task[Any] | None = None

    async def write(self) -> None:
        """Append events dated now to every file, until cancelled."""
        while True:
            for name, counter in self.written.items():
                with (self.settings.file.parent / f"{name}.ndjson").open("ab") as file:
                    now_ms = time.time_ns() // 1_000_000
                    file.write(b'{"at": %d}\n' % now_ms * 7)
                counter[now_ms // 1_000] += 7
            await asyncio.sleep(EVERY_S)

    async def read(self) -> None:
        """Note every visible row of every stream, until cancelled."""
        assert self.settings.redis.api_url is not None
        reader = RedisReader(self.settings.redis.api_url)
        try:
            while True:
                with suppress(OSError):
                    seqs = await reader.visible_seqs(list(self.seen))
                    for seq, seen in zip(seqs, self.seen.values(), strict=True):
                        if seq > max(seen.rows, default=0):
                            # All rows again: a store that was set back must not show others.
                            seen.note(await reader.rows(seen.name, 0, 10_000))
                await asyncio.sleep(0.02)
        finally:
            await reader.close()

    async def until_rows(self, more: int) -> None:
        """Wait until readers have seen this many more rows of every stream. Raises: why the worker ended."""
        wanted = {name: len(seen.rows) + more for name, seen in self.seen.items()}
        async with asyncio.timeout(PATIENCE_S):
            while any(len(seen.rows) < wanted[name] for name, seen in self.seen.items()):
                await asyncio.sleep(0.02)
                if self.running is not None and self.running.done():
                    await self.running
                    raise AssertionError("the worker ended")

    async def until_answers(self, holds: Callable[[], object]) -> None:
        """Wait until something holds; servers that do not answer are asked again. Args: holds, may block."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(redis.exceptions.RedisError, OSError):
                    if await asyncio.to_thread(holds):
                        return
                await asyncio.sleep(0.05)

    def check(self) -> None:
        """Check that each event written so far and released is counted once, and each row has one value."""
        for name, seen in self.seen.items():
            for row in witnessed_rows(self.settings.state_dir / "witness", name):
                assert seen.rows.get(row.seq, row.row) == row.row, f"{name}: row {row.seq} has two values"
            counts, written = seen.counts(), self.written[name]
            # The file may have got events in the first second before the stream began.
            wrong = {bin: (count, written[bin]) for bin, count in counts.items() if count != written[bin]}
            assert not wrong, f"{name}: bins from {min(counts)} to {max(counts)}: {wrong}"


@asynccontextmanager
async def under_load(settings: Settings, *others: Any, before: Load | None = None) -> AsyncIterator[Load]:
    """Count under load while this context is open.

    Args: others, coroutines that run beside the worker; before, the load of an earlier worker, which goes on.
    """
    load = before or Load(settings)
    load.running = running = asyncio.create_task(
        until_one_ends(run_worker(settings), load.write(), load.read(), *others)
    )
    try:
        await load.until_rows(2)
        yield load
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
