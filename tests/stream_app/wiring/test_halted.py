"""A fault of one log stops the streams over it, and the streams over all other logs go on."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import redis

from deploy.ports import free_port
from stream_app.config.load import load
from stream_app.core.records import StreamState
from stream_app.core.strategy import Strategy
from stream_app.loops.configured import running_strategy
from stream_app.ports import OperatorError
from stream_app.ports.errors import OvertakenError
from stream_app.shell.checks.stored import check_stored
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.keys import StreamKeys
from stream_app.state.reader import RedisReader
from stream_app.wiring import counted_log
from stream_app.wiring.workers import run_worker
from tests.patience import eventually_async

pytestmark = [pytest.mark.redis, pytest.mark.slow]

HEAD = """
redis: {{url: "{redis}"}}
publish_every: 250ms
operator: {{port: {port}}}
streams:
"""
STREAM = """
  {name}:
    source: {{file: "{file}"{more}}}
    time: {{field: at, format: s, bin: 1s, grace: 0s, epoch: 1h}}
    privacy: {{{privacy}}}
"""
CALM = "calm"


def event(number: int = 1) -> bytes:
    """Return lines that no other file has: a copy of a file would be the same log."""
    events = ({"at": int(time.time()), "id": secrets.token_hex(8)} for _ in range(number))
    return b"".join(json.dumps(one).encode() + b"\n" for one in events)


class Place:
    """The log of one stream: a file, or the files of a list."""

    def __init__(self, folder: Path, *, is_list: bool) -> None:
        folder.mkdir()
        self.folder, self.first = folder, folder / "log-b.ndjson"
        self.pattern = folder / ("log-*.ndjson" if is_list else "log-b.ndjson")
        self.text = event(3)
        self.first.write_bytes(self.text)

    def put_back(self) -> None:
        self.first.write_bytes(self.text)

    def rotate(self) -> None:
        self.first.rename(self.folder / "old")
        self.first.write_bytes(event())

    def rotate_back(self) -> None:
        self.first.unlink()
        (self.folder / "old").rename(self.first)

    def add(self, name: str, data: bytes) -> None:
        (self.folder / name).write_bytes(data)

    def half(self) -> bytes:
        return gzip.compress(event(50), mtime=0)[:-12]

    def move(self) -> None:
        self.folder.rename(self.folder.with_suffix(".moved"))

    def move_back(self) -> None:
        self.folder.with_suffix(".moved").rename(self.folder)

    def become_folder(self) -> None:
        self.first.unlink()
        self.first.mkdir()

    def become_circle(self) -> None:
        self.first.unlink()
        self.first.symlink_to(self.first.name)

    def leave_circle(self) -> None:
        self.first.unlink()
        self.put_back()

    def become_file(self) -> None:
        self.first.rmdir()
        self.put_back()


class Fault(NamedTuple):
    """A fault of a log. Args: said, in the line about it; mend, takes it away; None: it stays."""

    is_list: bool
    hurt: Callable[[Place], None]
    said: str
    mend: Callable[[Place], None] | None = None


FAULTS = {
    "truncated": Fault(False, lambda at: at.add("log-b.ndjson", b""), "was truncated", Place.put_back),
    "regrown": Fault(False, lambda at: at.add("log-b.ndjson", event()), "was truncated"),
    "rotated": Fault(False, Place.rotate, "was replaced", Place.rotate_back),
    "deleted": Fault(False, lambda at: at.first.unlink(), "is gone", Place.put_back),
    "moved": Fault(False, Place.move, "is gone", Place.move_back),
    "folder": Fault(False, Place.become_folder, "was replaced", Place.become_file),
    "circle": Fault(False, Place.become_circle, "levels of symbolic links", Place.leave_circle),
    "half": Fault(
        True,
        lambda at: at.add("log-c.ndjson.gz", at.half()),
        "cannot be decompressed",
        lambda at: at.add("log-c.ndjson.gz", gzip.compress(event(50), mtime=0)),
    ),
    "empty": Fault(
        True,
        lambda at: at.add("log-c.ndjson.gz", b""),
        "is empty",
        lambda at: at.add("log-c.ndjson.gz", gzip.compress(event(5))),
    ),
    "foreign": Fault(True, lambda at: at.add("log-c.ndjson.gz", b"no gzip at all"), "cannot be decompressed"),
    "earlier": Fault(
        True,
        lambda at: at.add("log-a.ndjson", event()),
        "sorts before",
        lambda at: (at.folder / "log-a.ndjson").unlink(),
    ),
    "listed-gone": Fault(True, lambda at: at.first.unlink(), "is gone", Place.put_back),
    "listed-cut": Fault(True, lambda at: at.add("log-b.ndjson", b""), "was truncated", Place.put_back),
    "listed-rotated": Fault(True, Place.rotate, "was replaced", Place.rotate_back),
    "no-directory": Fault(True, Place.move, "cannot be read", Place.move_back),
}


class Worker:
    """A worker over streams of one configuration."""

    def __init__(self, folder: Path, server: EmbeddedRedis) -> None:
        self.folder, self.port, self._redis = folder, free_port(), server
        self.url = server.worker_url
        self._reader = RedisReader(server.worker_url)
        self._streams: dict[str, str] = {}

    def stream(self, name: str, file: Path, privacy: str = "epsilon: 1", more: str = "") -> None:
        self._streams[name] = STREAM.format(name=name, file=file, privacy=privacy, more=more)

    def damage(self, name: str) -> None:
        """Change a stream's state in the store by hand."""
        with redis.Redis.from_url(self._redis.operator_url, protocol=2) as client:
            client.hset(StreamKeys(name).state, "strategy_hash", "another")

    def place(self, name: str, *, is_list: bool = False) -> Place:
        place = Place(self.folder / name, is_list=is_list)
        self.stream(name, place.pattern)
        return place

    async def run(self) -> None:
        text = HEAD.format(redis=self._redis.worker_url, port=self.port) + "".join(self._streams.values())
        (self.folder / "app.yaml").write_text(text)
        await run_worker(load(self.folder / "app.yaml", {}))

    async def during(self, work: Callable[[], Coroutine[Any, Any, None]], ends: str = "") -> None:
        """Run the worker during ``work``. Args: ends, in the error with which it ends; empty: it has none."""
        running = asyncio.create_task(self.run())
        working = asyncio.create_task(work())
        await asyncio.wait([running, working], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            working.cancel()
            running.result()
        await working
        running.cancel()
        with pytest.raises(OperatorError if ends else asyncio.CancelledError, match=ends or None):
            await running

    async def seq(self, name: str) -> int:
        state = await self._reader.public_state(name)
        return 0 if state is None else state.visible_seq

    async def all_go_on(self, *names: str) -> None:
        before = {name: await self.seq(name) for name in names}

        async def have_more() -> bool:
            return all([await self.seq(name) > seen for name, seen in before.items()])

        await eventually_async(have_more, f"{names} have more rows")

    async def halted(self) -> set[str]:
        """Return the streams that readers see as halted."""
        states = {name: await self._reader.public_state(name) for name in self._streams}
        return {name for name, state in states.items() if state is not None and state.halted}

    async def becomes(self, halted: set[str]) -> None:
        async def is_so() -> bool:
            return await self.halted() == halted

        await eventually_async(is_so, f"{halted} are halted")

    async def asks(self, path: str) -> str:
        async with httpx.AsyncClient() as client:
            return (await client.get(f"http://127.0.0.1:{self.port}{path}")).text

    async def close(self) -> None:
        await self._reader.close()


async def stopped_findings(worker: Worker) -> str:
    """Return what ``doctor`` says of streams that a fault has stopped."""
    settings = load(worker.folder / "app.yaml", {})
    return "\n".join(found.said for found in (await check_stored(settings)).halted)


def in_world(folder: Path, work: Callable[[Worker], Awaitable[None]]) -> None:
    async def run(server: EmbeddedRedis) -> None:
        worker = Worker(folder, server)
        worker.place(CALM)
        await work(worker)
        await worker.close()

    with EmbeddedRedis(folder / "redis") as server:
        asyncio.run(run(server))


def test_a_fault_of_a_log_stops_its_streams_only_and_they_go_on_once_it_is_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(counted_log, "RETRY_S", 0.5)
    monkeypatch.setattr(counted_log, "LONGEST_RETRY_S", 0.5)
    caplog.set_level(logging.WARNING)

    async def work(worker: Worker) -> None:
        places = {name: worker.place(name, is_list=fault.is_list) for name, fault in FAULTS.items()}
        worker.stream("other", places["rotated"].pattern, 'epsilon: 1, accept: "measured again"')
        everywhere = {"other", *FAULTS}

        async def faults() -> None:
            await worker.all_go_on(CALM, *everywhere)
            assert await worker.asks("/readyz") == "ready\n"
            for name, fault in FAULTS.items():
                fault.hurt(places[name])
            await worker.becomes(everywhere)
            lines = [line for line in caplog.messages if "stopped: " in line]
            for name, fault in FAULTS.items():
                line = next(line for line in lines if f"/{name}/" in line)
                assert fault.said in line, line
                assert "all other streams go on" in line
            await worker.all_go_on(CALM)
            metrics = await worker.asks("/metrics")
            assert all(f'stream_app_halted{{stream="{name}"}} 1.0' in metrics for name in everywhere)
            assert f'stream_app_halted{{stream="{CALM}"}}' not in metrics
            found = await stopped_findings(worker)
            assert {name for name in everywhere if f"{name}: a fault has stopped it" in found} == everywhere
            said = f"ready; {len(everywhere)} of {len(everywhere) + 1} streams stopped, see the log\n"
            assert await worker.asks("/readyz") == said
            mended = {name for name, fault in FAULTS.items() if fault.mend is not None}
            for name in mended:
                mend = FAULTS[name].mend
                assert mend is not None
                mend(places[name])
            await worker.all_go_on(*mended, "other", CALM)
            await worker.becomes(FAULTS.keys() - mended)

        await worker.during(faults, ends="cannot be decompressed")
        lines = [line for line in caplog.messages if "stopped: " in line]
        assert len(lines) == len(set(lines)), lines  # each is said once, however often it is tried again

    in_world(tmp_path, work)


REFUSED = {  # at a second start, and what is in the line about it
    "missing": "is not there; create it",
    "unlisted": "names no file",
    "other-file": "is not the file that the stream began with",
    "regrown": "this is not the file counted so far",
    "replayed": "source.replay.to",
    "again": 'accept: "measured again"',
    "spent": "privacy.total",
    "damaged": "strategy_hash is not that of the strategy",
    "unreadable": "unreadable%402.ndjson: line 1 is no row of a release",
    "own-witness": "own-witness.ndjson: its last line is no row",
    "csv": "the header line has no column at",
}
REPLAY = ", replay: {{from: 2024-06-01T00:00:00Z, to: 2024-06-01T0{hours}:00:00Z}}"


def test_a_stream_that_cannot_start_keeps_no_other_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each stream but one is refused at the second start, for its own reason."""
    monkeypatch.setattr(counted_log, "RETRY_S", 0.5)
    caplog.set_level(logging.WARNING)

    async def work(worker: Worker) -> None:
        begun = ("other-file", "regrown", "damaged", "unreadable", "own-witness")
        places = {name: worker.place(name) for name in begun}
        replayed = tmp_path / "replayed.ndjson"
        replayed.write_bytes(b'{"at": 1717200000}\n')
        worker.stream("replayed", replayed, more=REPLAY.format(hours=1))

        async def begins() -> None:
            await worker.all_go_on(CALM, *places)

        await worker.during(begins)
        caplog.clear()
        worker.stream("missing", tmp_path / "missing.ndjson")
        worker.stream("unlisted", tmp_path / "none-*.ndjson")
        other = places["other-file"].folder / "log-z.ndjson"
        other.write_bytes(event())
        worker.stream("other-file", other)
        places["regrown"].add("log-b.ndjson", event())
        worker.stream("replayed", replayed, more=REPLAY.format(hours=2))
        worker.stream("again", worker.folder / CALM / "log-b.ndjson")
        too_much = 'epsilon: 1, total: {epsilon: 1.5}, accept: "measured again"'
        worker.stream("spent", worker.folder / CALM / "log-b.ndjson", too_much)
        worker.damage("damaged")
        (tmp_path / "state/witness/unreadable%402.ndjson").write_text("no row\n{}\n")
        with (tmp_path / "state/witness/own-witness.ndjson").open("a") as witness:
            witness.write("hello\n")
        (tmp_path / "no.csv").write_text("when\n1\n")
        worker.stream("csv", tmp_path / "no.csv", more=", format: csv")

        async def goes_on() -> None:
            await worker.all_go_on(CALM)
            lines = [line for line in caplog.messages if "stopped: " in line]
            for name, said in REFUSED.items():
                line = next(line for line in lines if f"stopped: {name};" in line)
                assert said in line, line
            assert f"{len(REFUSED)} of {len(REFUSED) + 1} streams" in await worker.asks("/readyz")
            await worker.becomes(
                {"other-file", "regrown", "unreadable", "own-witness", "replayed", "damaged"}
            )
            (tmp_path / "missing.ndjson").write_bytes(event())
            await worker.all_go_on("missing")

        await worker.during(goes_on, ends="names no file")

    in_world(tmp_path, work)


def test_a_worker_that_was_overtaken_starts_again_and_stops_no_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another worker has begun a segment elsewhere; the next start finds this instant in the store."""
    caplog.set_level(logging.WARNING)
    overtaken = ["another worker has begun its generation 2"]

    def as_overtaken(state: StreamState, planned: Strategy) -> Strategy:
        if overtaken:
            raise OvertakenError(overtaken.pop())
        return running_strategy(state, planned)

    async def work(worker: Worker) -> None:
        async def goes_on() -> None:
            await worker.all_go_on(CALM)
            monkeypatch.setattr("stream_app.loops.opening.running_strategy", as_overtaken)
            await eventually_async(lambda: _is_said("generation 2; trying again", caplog), "it starts again")
            await worker.all_go_on(CALM)
            assert await worker.asks("/readyz") == "ready\n"
            assert "stopped: " not in caplog.text

        await worker.during(goes_on)

    in_world(tmp_path, work)


async def _is_said(text: str, caplog: pytest.LogCaptureFixture) -> bool:
    return text in caplog.text
