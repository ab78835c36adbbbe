"""Listeners and senders of a spool in virtual time: the service's own listener, and a disk that fails."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from stream_app.receiving.group_commit import GroupCommit
from stream_app.receiving.known_keys import KnownKeys, Stored
from stream_app.receiving.listener import Listener, WriteRules
from stream_app.receiving.spool_writer import Incoming, SpoolWriter
from tests.simulator.checks import Broken
from tests.simulator.spool import Request, SpoolLog
from tests.stream_app.receiving.failing_disk import FAULTS, DiedError, FailingDisk

Result = TypeVar("Result")

NAME = "log"
CALLS = 10  # an append makes about so many system calls
SHARE_OF_FAULTS = 0.15  # of appends and starts
SHARE_OF_LOST_REPLIES = 0.1
SHARE_REPEATED = 0.15  # of confirmed requests: a proxy sends them again, much later
DOWN_S, WAY_S, AGAIN_S, MUCH_LATER_S = 0.5, 0.05, 1.0, 8.0  # at most
REMEMBER_US, MOST_KEYS = 3_600_000_000, 1_000


class Trouble:
    """How the disk and the network fail while the weather is bad."""

    def __init__(self, seed: int, disk: FailingDisk) -> None:
        self.rng = random.Random(f"trouble {seed}")
        self.disk = disk
        self.over = False

    def happens(self, share: float) -> bool:
        """Return whether something that goes wrong in this share of cases goes wrong now."""
        return not self.over and self.rng.random() < share

    def spoil(self) -> None:
        """Spoil one of the next system calls, sometimes."""
        if self.happens(SHARE_OF_FAULTS):
            self.disk.spoil(self.rng.randint(1, CALLS), self.rng.choice(FAULTS))


class Receiver:
    """A process that listens for events and writes them to the spool. It is started again when it dies."""

    def __init__(self, directory: Path, held: SpoolLog, trouble: Trouble, now_us: Callable[[], int]) -> None:
        self._directory, self._held, self._trouble, self._now_us = directory, held, trouble, now_us
        self._listener: Listener | None = None
        self._running: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[dict[str, Any]]] = set()

    def die(self) -> None:
        """End the process at once, as by kill -9."""
        if self._running is not None:
            self._running.cancel()

    async def run(self) -> None:
        """Listen, and start again after each death."""
        while True:
            with suppress(DiedError):
                await self._live()
            await asyncio.sleep(self._trouble.rng.random() * DOWN_S)

    async def _live(self) -> None:
        """Listen until the process dies."""
        writer = _Written(self, self._opened())
        try:
            commit = GroupCommit(writer)  # type: ignore[arg-type]
            self._listener = Listener({NAME: commit}, WriteRules(None, 1 << 20))
            self._running = asyncio.create_task(commit.run())
            await asyncio.wait([self._running])
            if not self._running.cancelled():
                self._running.result()  # raises: DiedError
        finally:
            self._listener = None
            for task in (*self._answering, *([self._running] if self._running else [])):
                task.cancel()
            writer.close()

    def _opened(self) -> SpoolWriter:
        keys = KnownKeys(REMEMBER_US, MOST_KEYS)
        return self.on_disk(lambda: SpoolWriter(self._directory, 1 << 30, keys, self._now_us))

    def on_disk(self, work: Callable[[], Result]) -> Result:
        """Return what some work with the files returns. One of its system calls may fail or be the last."""
        self._trouble.spoil()
        try:
            return work()
        finally:
            self._trouble.disk.heal()
            self._held.look(self._now_us())

    async def post(self, request: Request) -> dict[str, Any]:
        """Return what a request is answered. Raises: ConnectionError if no answer arrives."""
        await self._travel()
        if self._listener is None:
            raise ConnectionError("nobody listens")
        task = asyncio.create_task(_answer(self._listener, request))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        await asyncio.wait([task])
        if task.cancelled() or self._trouble.happens(SHARE_OF_LOST_REPLIES):
            raise ConnectionError("the connection broke")
        await self._travel()
        return task.result()

    async def _travel(self) -> None:
        await asyncio.sleep(self._trouble.rng.random() * WAY_S)


class _Written:
    """A writer whose calls pass through a failing disk."""

    def __init__(self, receiver: Receiver, writer: SpoolWriter) -> None:
        self._receiver, self._writer = receiver, writer
        self.directory = writer.directory
        self.close = writer.close

    def append(self, batches: Sequence[Incoming]) -> list[Stored | None]:
        """Append batches."""
        return self._receiver.on_disk(lambda: self._writer.append(batches))

    def turn_over(self) -> None:
        """Begin a new part if it is time."""
        self._receiver.on_disk(self._writer.turn_over)


async def _answer(listener: Listener, request: Request) -> dict[str, Any]:
    """Return the answer to a request, with its status."""
    body, sent = b"".join(request.lines), list[dict[str, Any]]()
    headers = {b"host": b"localhost", b"content-length": b"%d" % len(body)}
    headers[b"idempotency-key"] = request.key.encode()
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": f"/v1/ingest/{NAME}"}
    scope |= {"headers": [*headers.items()], "client": (f"10.0.0.{request.sender}", 1)}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await listener(scope, receive, send)
    return {"status": sent[0]["status"], **json.loads(sent[1]["body"])}


async def deliver(request: Request, receivers: Sequence[Receiver], held: SpoolLog, trouble: Trouble) -> None:
    """Send a request until it is confirmed, and sometimes once more much later. Raises: Broken."""
    await _confirmed(request, receivers, trouble)
    held.confirm(request)
    if trouble.happens(SHARE_REPEATED):
        await asyncio.sleep(trouble.rng.random() * MUCH_LATER_S)
        answer = await _confirmed(request, receivers, trouble)
        if not answer["duplicate"]:
            raise Broken(f"request {request.number} was confirmed, and is stored again")


async def _confirmed(request: Request, receivers: Sequence[Receiver], trouble: Trouble) -> dict[str, Any]:
    """Send a request to any receiver until one confirms it; return the answer."""
    while True:
        with suppress(ConnectionError):
            answer = await trouble.rng.choice(receivers).post(request)
            if answer["status"] == 200:
                return answer
            if answer["status"] != 503:
                raise Broken(f"request {request.number} is answered {answer}")
        await asyncio.sleep(trouble.rng.random() * AGAIN_S)
