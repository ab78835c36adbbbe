"""If a reader does not take its answer, its connection ends, and another reader can connect."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stream_app.api.admission.access import AccessRules
from stream_app.api.app import listen, serve_on
from stream_app.ports.access import Limits
from tests.certificates import write_certificates
from tests.models.memory import MemoryStore
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

LIMITS = Limits(connections_per_address=1, idle_s=0.3, slow_s=3.0)
PAGE = b"GET /dashboard/vendor/uplot/uPlot.iife.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"  # 51 kB
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@asynccontextmanager
async def served(tls: Path | None) -> AsyncIterator[int]:
    """Serve on loopback with small socket buffers; yield the port."""

    @asynccontextmanager
    async def reader() -> AsyncIterator[Any]:
        yield MemoryStore().reader()

    listener = listen("127.0.0.1", 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    files = None if tls is None else (tls / "server.pem", tls / "server.key")
    serving = asyncio.create_task(serve_on(listener, reader, AccessRules(limits=LIMITS), files))
    try:
        yield int(listener.getsockname()[1])
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def has_place(port: int, tls: ssl.SSLContext | None) -> bool:
    """Return whether another connection gets an answer at this moment."""
    with suppress(ConnectionError, ssl.SSLError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        writer.write(HEALTH)
        with suppress(ConnectionError):
            line = await reader.readline()
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()
        return line.startswith(b"HTTP/1.1 200")
    return False


async def until_place(port: int, tls: ssl.SSLContext | None, seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not await has_place(port, tls):
        assert time.monotonic() < deadline, "the place is still held"
        await asyncio.sleep(0.1)


def ask_and_take_nothing(port: int, tls: ssl.SSLContext | None, says_goodbye: bool) -> socket.socket:
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    lazy.settimeout(PATIENCE_S)
    lazy.connect(("127.0.0.1", port))
    if tls is not None:
        lazy = tls.wrap_socket(lazy)
    lazy.sendall(PAGE)
    if isinstance(lazy, ssl.SSLSocket) and says_goodbye:
        time.sleep(0.2)  # wait until the answer is being sent
        lazy.setblocking(False)
        with suppress(ssl.SSLError):  # the client's TLS goodbye is sent; the server's follows the answer
            lazy.unwrap()
    return lazy


@pytest.mark.parametrize(("secured", "says_goodbye"), [(False, False), (True, False), (True, True)])
async def test_connection_that_takes_no_answer_is_closed(
    secured: bool, says_goodbye: bool, tmp_path: Path
) -> None:
    context = None
    if secured:
        write_certificates(tmp_path, "server")
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        context.check_hostname = False

    async with served(tmp_path if secured else None) as port:
        await until_place(port, context)
        lazy = await asyncio.to_thread(ask_and_take_nothing, port, context, says_goodbye)
        assert not await has_place(port, context)
        await until_place(port, context)
        lazy.close()
