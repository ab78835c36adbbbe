"""Server-sent events: one event per released bin, with the bytes that every other output repeats."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from stream_app.api.replica import StreamReplica

HEARTBEAT_S = 15.0
RETRY_MS = 2_000
HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy that buffers would hold releases back
}


async def follow(
    replica: StreamReplica, after: int, heartbeat_s: float = HEARTBEAT_S
) -> AsyncIterator[bytes]:
    """Yield every visible row after a seq, then each new one, for ever.

    Cost: rows that wait together are sent together, so catching up costs a write per 2,000 bins.
    """
    yield b"retry: %d\n\n" % RETRY_MS
    while not replica.closed:
        known = replica.seq
        rows = await replica.rows_after(after)
        if rows:
            after = rows[-1][0]
            yield frames(rows)
        elif known > after:
            after = known  # a store that was set back lost these rows: wait for the next one
        elif not await replica.wait_beyond(after, heartbeat_s) and not replica.closed:
            yield b": nothing new yet\n\n"


def frames(rows: Iterable[tuple[int, bytes]]) -> bytes:
    """Return rows as events, the seq as the event's id.

    >>> frames([(7, b'{"seq":7}')])
    b'event: release\\nid: 7\\ndata: {"seq":7}\\n\\n'
    """
    return b"".join(b"event: release\nid: %d\ndata: %b\n\n" % row for row in rows)
