"""Server-sent events: one event per released bin, with the same bytes as every other output."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from stream_app.api.admission.turns import Places
from stream_app.api.replica import StreamReplica

HEARTBEAT_S = 15.0
RETRY_MS = 2_000
HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy that buffers would delay releases
}


class Following(StreamingResponse):
    """A response that streams events while the reader stays; it holds one of the reader's places."""

    def __init__(self, events: AsyncIterator[bytes], places: Places, reader: str) -> None:
        """Take a place. Raises: TooManyError if the reader holds all of its places."""
        places.take(reader)
        self._places, self._reader = places, reader
        super().__init__(events, media_type="text/event-stream", headers=HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the reader leaves."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._places.give_back(self._reader)


async def follow(
    replica: StreamReplica, after: int, heartbeat_s: float = HEARTBEAT_S
) -> AsyncIterator[bytes]:
    """Yield every visible row after a seq, then each new one, without end.

    An event ``privacy`` comes first, and before the next row whenever it changes. Rows keep the bytes of
    their release, which do not include other streams that later count the same events.
    Cost: waiting rows are sent together, so catching up costs a write per 2,000 bins.
    """
    told = replica.private
    yield b"retry: %d\n\n" % RETRY_MS + _privacy(replica.stream, told)
    while not replica.closed:
        known = replica.seq
        rows = await replica.rows_after(after)
        changed = b"" if replica.private == told else _privacy(replica.stream, told := replica.private)
        if rows:
            after = rows[-1][0]
            yield changed + frames(rows)
        elif changed:
            yield changed
        elif known > after:
            after = known  # a restored store lost these rows: wait for the next one
        elif not await replica.wait_beyond(after, heartbeat_s) and not replica.closed:
            yield b": nothing new yet\n\n"


def _privacy(stream: str, private: bool) -> bytes:
    said = json.dumps({"stream": stream, "private": private}, separators=(",", ":"))
    return b"event: privacy\ndata: %b\n\n" % said.encode()


def frames(rows: Iterable[tuple[int, bytes]]) -> bytes:
    """Return rows as events, the seq as the event's id.

    >>> frames([(7, b'{"seq":7}')])
    b'event: release\\nid: 7\\ndata: {"seq":7}\\n\\n'
    """
    return b"".join(b"event: release\nid: %d\ndata: %b\n\n" % row for row in rows)
