"""A listener that ends TLS and passes plain bytes on, to test TLS over a server that was built without it."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def tls_before(socket: Path, folder: Path) -> Iterator[int]:
    """Listen with TLS before a unix socket, for clients whose certificate the authority signed.

    Args: folder, with ca.pem and the server's certificate, server.both.
    Yields: the port.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "server.both")
    context.verify_mode = ssl.CERT_REQUIRED
    started: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_unix_connection(str(socket))
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, behind_writer))
                both.create_task(_copy(behind_reader, writer))
        finally:
            behind_writer.close()
            writer.close()

    async def serve() -> None:
        async with await asyncio.start_server(join, "127.0.0.1", 0, ssl=context) as server:
            end = asyncio.Event()
            started.set_result((server.sockets[0].getsockname()[1], asyncio.get_running_loop(), end))
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    port, loop, end = started.result(10)
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
