"""Server-sent events: one event per released bin, with the same bytes as every other output."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from stream_app.api.admission.turns import Places
from stream_app.api.replica import StreamReplica

Push = Callable[[bytes], bool]  # writes a part of a running answer now; False: it cannot

HEARTBEAT_S = 15.0
RETRY_MS = 2_000
LOOK_S = 0.25
HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy that buffers would delay releases
}


class Place(NamedTuple):
    """A release that a follower has: the id of its event. Each generation of a stream counts its own seq."""

    generation: int
    seq: int

    @classmethod
    def of(cls, text: str) -> Place:
        """Return the release that an id names: its seq, after the generation unless that is the first.

        >>> Place.of("17"), Place.of("2:17")
        (Place(generation=1, seq=17), Place(generation=2, seq=17))
        """
        generation, _, seq = text.rpartition(":")
        return cls(int(generation or 1), int(seq))

    def __str__(self) -> str:
        return str(self.seq) if self.generation == 1 else f"{self.generation}:{self.seq}"


class Following(StreamingResponse):
    """A response that streams events while the reader stays; it holds one of the reader's places."""

    def __init__(self, events: AsyncIterator[bytes], places: Places, reader: str) -> None:
        """Take a place. Raises: TooManyError if the reader holds all of its places."""
        places.take(reader)
        self._places, self._reader = places, reader
        super().__init__(events, media_type="text/event-stream", headers=HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the reader leaves. A group of tasks would leave more garbage at each end."""
        sending, left = asyncio.current_task(), asyncio.create_task(_reader_left(receive))
        assert sending is not None

        def end(_: asyncio.Task[None]) -> None:
            sending.cancel()

        left.add_done_callback(end)
        try:
            await self.stream_response(send)
        except asyncio.CancelledError:
            if not left.done():
                raise
            left.result()
        finally:
            left.remove_done_callback(end)
            left.cancel()
            self._places.give_back(self._reader)


async def _reader_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def start_of(
    generations: Sequence[StreamReplica], newest: StreamReplica, have: Place
) -> tuple[StreamReplica, int]:
    """Return the generation in which a follower goes on, and the seq after which it does.

    Args: generations, of the stream, newest first; newest, the one that readers see; have, the last release
        that the follower has. A generation that is gone has no rows to send, so the next one begins.
    """
    later = [one for one in generations if one.generation >= have.generation]
    if not later:
        return newest, newest.seq  # a restored store lost the follower's generation
    first = later[-1]
    return first, have.seq if first.generation == have.generation else 0


class _Follower:
    """How far one follower is: its generation, and the last row that it has."""

    def __init__(self, replica: StreamReplica, after: int, goes_on: bool, push: Push | None) -> None:
        self.replica, self.after, self.private = replica, after, replica.private
        self.sent_s = time.monotonic()
        self._goes_on, self._push = goes_on, push

    @property
    def continued_by(self) -> StreamReplica | None:
        return self.replica.continued_by if self._goes_on else None

    def take(self) -> bool:
        """Send the newest rows at once; return False if something else has to be sent, or in another way."""
        replica, rows = self.replica, self.replica.newest
        if replica.closed or replica.private != self.private or self.continued_by is not None:
            return False
        if replica.seq <= self.after:
            return True
        if self._push is None or not rows or rows[0][0] != self.after + 1:
            return False
        if not self._push(_frames_once(rows, replica.generation)):
            return False
        self.after, self.sent_s = rows[-1][0], time.monotonic()
        return True


async def follow(
    replica: StreamReplica,
    after: int,
    heartbeat_s: float = HEARTBEAT_S,
    goes_on: bool = False,
    push: Push | None = None,
) -> AsyncIterator[bytes]:
    """Yield every visible row after a seq, then each new one, without end.

    An event ``privacy`` comes first, and before the next row whenever it changes. Rows keep the bytes of
    their release, which do not include other streams that later count the same events.
    Args: goes_on, whether the rows of the next generations follow. An event ``generation`` comes before each;
        push, sends a follower that waits the newest rows: they are not yielded then.
    Cost: waiting rows are sent together, so catching up costs a write per 2,000 bins.
    """
    one = _Follower(replica, after, goes_on, push)
    yield b"retry: %d\n\n" % RETRY_MS + _privacy(replica, one.private)
    while not one.replica.closed:
        replica, known = one.replica, one.replica.seq
        rows = await replica.rows_after(one.after)
        if changed := replica.private != one.private:
            one.private = replica.private
        if rows or changed:
            one.after, one.sent_s = rows[-1][0] if rows else one.after, time.monotonic()
            said = _privacy(replica, one.private) if changed else b""
            yield said + frames(rows, replica.generation)
        elif known > one.after:
            one.after = known  # a restored store lost these rows: wait for the next one
        elif (following := one.continued_by) is not None:
            one.replica, one.after = following, 0
            yield _generation(following)
        elif (left_s := one.sent_s + heartbeat_s - time.monotonic()) > 0:
            await replica.news.awaited(left_s, one.take)
        else:
            one.sent_s = time.monotonic()
            yield b": nothing new yet\n\n"


async def whenever(news: Callable[[], Awaitable[bytes]], is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield each result of ``news`` that is not empty, and heartbeats, until the stream ends."""
    yield b"retry: %d\n\n" % RETRY_MS
    quiet_since_s = time.monotonic()
    while not is_over():
        if said := await news():
            quiet_since_s = time.monotonic()
            yield said
        elif time.monotonic() - quiet_since_s > HEARTBEAT_S:
            quiet_since_s = time.monotonic()
            yield b": nothing new yet\n\n"
        await asyncio.sleep(LOOK_S)


def _privacy(replica: StreamReplica, private: bool) -> bytes:
    return _event("privacy", {"stream": replica.name, "private": private})


def _generation(replica: StreamReplica) -> bytes:
    said = {"stream": replica.name, "generation": replica.generation}
    return _event("generation", said | {"changes": replica.labels.changes})


def _event(name: str, said: dict[str, object]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(said, separators=(',', ':'))}\n\n".encode()


@lru_cache(maxsize=64)
def _frames_once(rows: tuple[tuple[int, bytes], ...], generation: int) -> bytes:
    """Return rows as events, made once for all followers."""
    return frames(rows, generation)


def frames(rows: Iterable[tuple[int, bytes]], generation: int = 1) -> bytes:
    """Return rows of a generation as events, with their places as ids.

    >>> frames([(7, b'{"seq":7}')])
    b'event: release\\nid: 7\\ndata: {"seq":7}\\n\\n'
    """
    return b"".join(
        b"event: release\nid: %b\ndata: %b\n\n" % (str(Place(generation, seq)).encode(), row)
        for seq, row in rows
    )
