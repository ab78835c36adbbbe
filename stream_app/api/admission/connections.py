"""Limits on connections: their number, the time for a request to arrive, and idle time.

uvicorn limits only the idle time between two requests. Here a connection is counted when it is accepted,
before TLS or HTTP starts, and a request that does not arrive in time is answered with 408.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import ssl
import weakref
from asyncio import TimerHandle
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from stream_app.api.admission.turns import Places, TooManyError
from stream_app.ports.access import Limits

_MOST_HEAD_BYTES = 16_384  # of a request; uvicorn checks its own limit too late, after it has read everything
_NO_DESCRIPTOR_S = 0.1
_ACCEPTED_A_TURN = 4  # connections accepted in one turn of the loop; each takes several system calls


async def run_server(server: uvicorn.Server) -> None:
    """Serve until the server ends. If this task is cancelled, the server ends its requests first."""
    serving = asyncio.create_task(server.serve(sockets=[]), name="serve")
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise


@lru_cache(maxsize=1024)
def client_of(address: str) -> str:
    """Return the name under which an address is counted; for IPv6 its /64 network, which one host owns.

    >>> client_of("10.0.0.7"), client_of("2001:db8::1:2:3:4"), client_of("::ffff:10.0.0.7")
    ('10.0.0.7', '2001:db8::/64', '10.0.0.7')
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        if not parsed.is_loopback:
            return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def raw_reply(status: HTTPStatus, line: str) -> bytes:
    """Return the bytes of an answer that the application does not give, and that ends the connection."""
    body = json.dumps({"error": line}).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


class Entrance:
    """Accepts connections and refuses those beyond the limits.

    Args:
        proxies: addresses whose connections carry many readers.
        make: returns a connection's protocol.
        section: of the configuration, where the limits are; for messages.
        refused: called with the status of each connection that is refused.
    """

    def __init__(
        self,
        listener: socket.socket,
        limits: Limits,
        proxies: frozenset[str],
        make: Callable[[], BoundedProtocol],
        tls: ssl.SSLContext | None,
        section: str = "api",
        refused: Callable[[HTTPStatus], None] = lambda _: None,
    ) -> None:
        self._listener, self._limits, self._proxies = listener, limits, proxies
        self._make, self._tls, self._refused = make, tls, refused
        self._places = Places(
            "connections",
            limits.connections,
            limits.connections_per_address,
            (f"{section}.limits.connections", f"{section}.limits.connections_per_address"),
        )
        self._serving: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Start accepting connections."""
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Stop accepting; open connections stay."""
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        """Accept waiting connections. A refused connection does not delay the connections behind it."""
        for _ in range(_ACCEPTED_A_TURN):
            try:
                connection, peer = self._listener.accept()
            except BlockingIOError:
                break
            except OSError:  # no file descriptor is left, or the client has disconnected
                self._pause()
                break
            address = str(peer[0])
            client = None if address in self._proxies else client_of(address)
            try:
                self._places.take(client)
            except TooManyError as refusal:
                self._turn_away(connection, str(refusal))
                continue
            connection.setblocking(False)
            task = asyncio.get_running_loop().create_task(self._serve(connection, client))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    def _pause(self) -> None:
        """Wait before accepting again, since retrying at once would starve open connections."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        loop.call_later(_NO_DESCRIPTOR_S, self._resume)

    def _resume(self) -> None:
        if self._listener.fileno() >= 0:
            self.open()

    async def _serve(self, connection: socket.socket, client: str | None) -> None:
        try:
            protocol = self._make()
            tls_s = None if self._tls is None else self._limits.slow_s
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=tls_s,
                ssl_shutdown_timeout=tls_s,  # also limits the time for the last part of an answer
            )
            await protocol.lost.wait()
        except OSError:  # the TLS handshake failed or timed out
            connection.close()
        finally:
            self._places.give_back(client)

    def _turn_away(self, connection: socket.socket, line: str) -> None:
        self._refused(HTTPStatus.TOO_MANY_REQUESTS)
        with connection, suppress(OSError):
            if self._tls is None:
                connection.setblocking(False)
                connection.send(raw_reply(HTTPStatus.TOO_MANY_REQUESTS, line))


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with time limits for a request to arrive and for a reader to receive the answer.

    Subclasses set ``slow_s``, and for messages the section of the configuration that has it.
    """

    slow_s: float
    section = "api"
    conn: _Wire
    lost: asyncio.Event

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit for the first request."""
        self.lost = asyncio.Event()
        self._arriving: TimerHandle | None = None
        self._taking: TimerHandle | None = None
        self._leaving: TimerHandle | None = None
        self.app_state = {**self.app_state, "connection": weakref.ref(self)}  # the state of every request
        super().connection_made(transport)
        self.conn = _Wire(h11.SERVER, _MOST_HEAD_BYTES)
        if self.scheme == "http":  # TLS has its own time limit, and treats a limit of 0 differently
            transport.set_write_buffer_limits(high=0)
        self._arriving = self.loop.call_later(self.slow_s, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._stop_timers()
        super().connection_lost(exc)
        self.lost.set()

    def push(self, part: bytes) -> bool:
        """Write a part of the answer that is being streamed, now; return False if that cannot be done.

        It cannot if the reader has not received all of the parts before. The answer states no length.
        """
        if self.flow.write_paused or self.transport.is_closing() or not self.conn.is_streaming:
            return False
        self.transport.write(_chunk(part) if self.conn.their_http_version == b"1.1" else part)
        return True

    def data_received(self, data: bytes) -> None:
        """Read in small parts, so that a request head that is too large is refused early."""
        for start in range(0, len(data), _MOST_HEAD_BYTES):
            if not self.transport.is_closing():
                super().data_received(data[start : start + _MOST_HEAD_BYTES])
        self._watch_arrival()

    def on_response_complete(self) -> None:
        """Continue with the next request, which may have started to arrive."""
        super().on_response_complete()
        self._watch_arrival()

    def eof_received(self) -> None:
        """Limit the time for the reader to receive the rest of an answer, since TLS would wait for ever."""
        self._leaving = self._leaving or self.loop.call_later(self.slow_s, self._not_taken)

    def pause_writing(self) -> None:
        """Limit the time for the reader to receive the sent bytes, also while the connection is closing."""
        super().pause_writing()
        self._taking = self._taking or self.loop.call_later(self.slow_s, self._not_taken)

    def resume_writing(self) -> None:
        """Stop the timer, because the reader received the data."""
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request, in one line like all refusals."""
        self._end_with(HTTPStatus.BAD_REQUEST, self.conn.complaint or msg)

    def _watch_arrival(self) -> None:
        """Run the arrival timer only while a request is arriving."""
        if self.transport.is_closing():
            return
        trailing, _ = self.conn.trailing_data
        begun = self.conn.their_state is h11.IDLE and bool(trailing)
        if not (begun or self.conn.their_state is h11.SEND_BODY):
            if self._arriving is not None and self.cycle is not None:
                self._arriving.cancel()
                self._arriving = None
        elif self._arriving is None:
            self._arriving = self.loop.call_later(self.slow_s, self._too_slow)

    def _too_slow(self) -> None:
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()
            return
        limit = f"{self.section}.limits.slow"
        line = f"the request did not arrive within {self.slow_s:g} s; send it at once ({limit})"
        self._end_with(HTTPStatus.REQUEST_TIMEOUT, line)

    def _not_taken(self) -> None:
        self.transport.abort()

    def note_refusal(self, status: HTTPStatus) -> None:
        """Count a request that the application does not see; subclasses may."""

    def _end_with(self, status: HTTPStatus, line: str) -> None:
        if not self.transport.is_closing():
            self.note_refusal(status)
            self.transport.write(raw_reply(status, line))
            self.transport.close()

    def _stop_timers(self) -> None:
        for timer in (self._arriving, self._taking, self._leaving):
            if timer is not None:
                timer.cancel()
        self._unset_keepalive_if_required()


@lru_cache(maxsize=64)  # all followers of a stream get the same part
def _chunk(part: bytes) -> bytes:
    """Return a part of a body as HTTP/1.1 frames it where the length of the body is not known."""
    return b"%x\r\n%b\r\n" % (len(part), part)


class _Wire(h11.Connection):
    """HTTP/1.1 without chunked requests, so that every body's length is known before it is read."""

    complaint = ""
    _head: list[bytes] | None = None  # of an answer, until the first part of its body

    @property
    def is_streaming(self) -> bool:
        """Whether a part of an answer was sent, and more may follow."""
        return self.our_state is h11.SEND_BODY and self._head is None

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        """Return the bytes to write. The head of an answer waits for its body: both leave in one packet."""
        parts = super().send_with_data_passthrough(event)
        if isinstance(event, h11.Response):
            self._head, parts = parts, []
        elif self._head and parts is not None:
            parts = self._head + parts
            self._head = None
        return parts

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event. Raises: h11.RemoteProtocolError, also for a body without length."""
        event = super().next_event()
        if isinstance(event, h11.Request) and any(name == b"transfer-encoding" for name, _ in event.headers):
            self.complaint = "Transfer-Encoding is not accepted; send the body with its Content-Length"
            raise h11.RemoteProtocolError(self.complaint, HTTPStatus.LENGTH_REQUIRED)
        return event
