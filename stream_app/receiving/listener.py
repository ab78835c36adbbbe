"""``POST /v1/ingest/NAME``: JSON in, 200 once its events are on the disk. Nothing can be read here.

Pages' scripts send to ``/api/event`` and ``/api/send`` (``page_scripts.py``).
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from stream_app.api.admission.connections import client_of
from stream_app.api.admission.hosts import Hosts
from stream_app.ports.access import ApiKey, digest_of
from stream_app.receiving.body import lines_of
from stream_app.receiving.field_map import FieldMap, TooManyEventsError
from stream_app.receiving.group_commit import GroupCommit, TooManyKeysError
from stream_app.receiving.known_keys import Stored, digest, mark
from stream_app.receiving.page_scripts import PATHS, PastDayError, Sites, UnknownSiteError
from stream_app.receiving.spool_writer import Incoming, SpoolFullError

_PATH = re.compile(r"/v1/ingest/([a-z0-9_-]{1,64})")
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_MOST_DIGITS = 12
_PLAIN = ("", "identity")
_LEFT_BYTES = 64 << 20  # of a refused body: so much is read and dropped, so that its sender sees the answer
# Bodies that have arrived and are not answered yet, in all and of one sender.
MOST_BYTES, MOST_OF_ONE_BYTES = 256 << 20, 64 << 20

log = logging.getLogger(__name__)


class _RefusedError(Exception):
    """Why a request is refused, in one line. Args: status, of HTTP."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


@dataclass(slots=True)
class WriteRules:
    """Who may write.

    Args:
        keys: each may write to its logs; None: everybody may. They may be replaced at any time.
        origins: pages of these origins may send from a browser.
        most_body_bytes: of one request.
        maps: how bodies become events, by spool; a spool without a map stores them as they are.
        sites: whose pages send events without a key; None: there are none.
    """

    keys: tuple[ApiKey, ...] | None
    most_body_bytes: int
    origins: tuple[str, ...] = ()
    hosts: Hosts = field(default_factory=Hosts)
    maps: Mapping[str, FieldMap] = field(default_factory=dict)
    sites: Sites | None = None


class Observer(Protocol):
    """Counts answers, for the operator."""

    def answered(self, spool: str, status: int, seconds: float) -> None:
        """Count one answer. Args: spool, empty for a name that no stream has."""
        ...

    def stored(self, spool: str, length: int, records: int, is_new: bool) -> None:
        """Count one request that is on the disk, now or since an earlier request."""
        ...


class Listener:
    """An ASGI application over the spools. Args: spools, by name; observer, None for nobody."""

    def __init__(
        self, spools: Mapping[str, GroupCommit], rules: WriteRules, observer: Observer | None = None
    ) -> None:
        self._spools, self._rules, self._observer = spools, rules, observer
        self._arriving = ArrivingBytes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        body = _Body(headers, receive)
        began_s = time.perf_counter()
        try:
            status, answer = await self._answer(scope, headers, body)
        except _RefusedError as refusal:
            status, answer = refusal.status, {"error": str(refusal)}
        except SpoolFullError:
            status, answer = 507, {"error": "the spool is full (ingest.max_size); try again later"}
        except OSError:
            line = "the disk failed; it is unknown what was stored: send it again with its Idempotency-Key"
            status, answer = 503, {"error": line}
        if self._observer is not None:
            found = _PATH.fullmatch(scope["path"])
            spool = found[1] if found is not None and found[1] in self._spools else ""
            self._observer.answered(spool, status, time.perf_counter() - began_s)
        text = json.dumps(answer).encode()
        answered = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(text))]
        if status != 200:
            await body.drop()
            answered.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": answered})
        await send({"type": "http.response.body", "body": text})

    async def _answer(self, scope: Scope, headers: Headers, body: _Body) -> tuple[int, dict[str, object]]:
        """Return the status and the answer. Raises: _RefusedError; SpoolFullError; OSError."""
        self._check_browser(headers)
        if scope["path"] == "/healthz" and scope["method"] == "GET":
            return 200, {"status": "ok"}
        if self._rules.sites is not None and scope["path"] in PATHS and scope["method"] == "POST":
            return await self._visit(self._rules.sites, scope, headers, body)
        found = _PATH.fullmatch(scope["path"])
        if found is None or scope["method"] != "POST":
            raise _RefusedError(404, "nothing is here; POST JSON objects to /v1/ingest/NAME, one per line")
        name, address = found[1], client_of(scope["client"][0] if scope.get("client") else "")
        sender = self._sender(headers, address, name)
        if name not in self._spools:
            raise _RefusedError(404, f"no stream has source.http: {name}; correct the name")
        self._check_form(headers)
        async with self._arrived(f"{sender} {address}", body) as whole:
            try:
                data, others = self._events_of(name, whole)
            except ValueError as refusal:
                status = 413 if isinstance(refusal, TooManyEventsError) else 400
                raise _RefusedError(status, f"the body is not stored: {refusal}") from None
            answer = await self._store(name, sender, headers.get("idempotency-key"), data)
            return 200, {**answer, "undecodable": others} if others else answer

    async def _visit(
        self, sites: Sites, scope: Scope, headers: Headers, body: _Body
    ) -> tuple[int, dict[str, object]]:
        """Store an event of a page."""
        self._check_form(headers)
        address = scope["client"][0] if scope.get("client") else ""
        async with self._arrived(f"page {client_of(address)}", body) as whole:
            try:
                spools, event = sites.event_of(scope["path"], whole, headers, address)
            except (ValueError, UnknownSiteError) as refusal:
                status = 404 if isinstance(refusal, UnknownSiteError) else 400
                raise _RefusedError(status, str(refusal.args[0])) from None
            except PastDayError as refusal:
                raise _RefusedError(503, str(refusal)) from None
            for name in spools if event else ():
                await self._store(name, "pages", None, event)
        return PATHS[scope["path"]], {}

    @asynccontextmanager
    async def _arrived(self, who: str, body: _Body) -> AsyncIterator[bytes]:
        """Yield a whole body, which takes room until the end of the block. Raises: _RefusedError."""
        parts = list[bytes]()
        try:
            while (part := await body.next()) is not None:
                parts.append(part)
                if not self._arriving.take(who, len(part)):
                    raise _RefusedError(429, "too many bytes of unanswered requests; send it again later")
            yield b"".join(parts)
        finally:
            self._arriving.give_back(who, sum(map(len, parts)))

    def _events_of(self, name: str, body: bytes) -> tuple[bytes, int]:
        """Return the events of a body as lines, and how many lines are not events. Raises: ValueError."""
        if (field_map := self._rules.maps.get(name)) is not None:
            return field_map.events_of(body, time.time_ns() // 1_000_000, self._rules.most_body_bytes)
        return lines_of(body)

    async def _store(self, name: str, sender: str, key: str | None, data: bytes) -> dict[str, object]:
        batch = Incoming(data)
        if key is not None:
            batch = Incoming(data, digest(sender, key), None if self._rules.keys is None else mark(sender))
        try:
            stored = await self._spools[name].store(sender, batch) if data else Stored(0, 0, 0, is_new=True)
        except TooManyKeysError:
            raise self._too_many_keys(name, sender) from None
        says_arrival = name in self._rules.maps and self._rules.maps[name].says_arrival
        if not says_arrival and (stored.length, stored.crc) != (len(data), zlib.crc32(data)):
            raise _RefusedError(422, "this Idempotency-Key came with another body; use a new key for it")
        if self._observer is not None:
            self._observer.stored(name, stored.length, stored.records, stored.is_new)
        return {"records": stored.records, "duplicate": not stored.is_new}

    def _too_many_keys(self, name: str, sender: str) -> _RefusedError:
        """Return the refusal of a new key, and log a warning."""
        log.warning(
            "%s: %s has as many Idempotency-Keys as are remembered, and requests with new ones are refused; "
            "let it send larger batches, or raise ingest.most_keys",
            name,
            "everybody together" if self._rules.keys is None else sender,
        )
        remedy = "send larger batches, or wait until older keys are forgotten"
        return _RefusedError(429, f"too many Idempotency-Keys within ingest.remember; {remedy}")

    def _check_browser(self, headers: Headers) -> None:
        """Refuse requests of foreign pages: a browser inside the network could send them without a key."""
        if not self._rules.hosts.know(headers.get("host", "")):
            host = headers.get("host", "")[:80]
            raise _RefusedError(421, f"{host!r} is not a known name of this service; add it to ingest.hosts")
        origin = headers.get("origin")
        if origin is not None and origin not in self._rules.origins:
            raise _RefusedError(403, f"pages of {origin[:80]!r} may not send; add it to ingest.origins")

    def _sender(self, headers: Headers, address: str, name: str) -> str:
        """Return who sends. Raises: _RefusedError if they may not write to this log."""
        if self._rules.keys is None:
            return f"address:{address}"
        scheme, _, given = headers.get("authorization", "").partition(" ")
        sent = digest_of(given.strip() if scheme.lower() == "bearer" else "")
        found = None
        for key in self._rules.keys:  # compare all keys, so that the time does not show which one matches
            if hmac.compare_digest(key.sha256, sent):
                found = key
        if found is None:
            raise _RefusedError(401, "a key of ingest.keys is needed: Authorization: Bearer KEY")
        if found.streams is not None and name not in found.streams:
            raise _RefusedError(403, f"this key may not write to {name}; use one that may")
        return f"key:{found.name}"

    def _check_form(self, headers: Headers) -> None:
        """Refuse, before the body is read, a request that cannot be stored."""
        key = headers.get("idempotency-key")
        if key is not None and not _KEY.fullmatch(key):
            raise _RefusedError(400, "Idempotency-Key must be 1 to 200 visible ASCII characters")
        if headers.get("content-encoding", "").strip().lower() not in _PLAIN:
            raise _RefusedError(415, "Content-Encoding is not accepted; send the events uncompressed")
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdecimal()):
            raise _RefusedError(411, "Content-Length is needed; send how many bytes the body has")
        most = self._rules.most_body_bytes
        if len(length) > _MOST_DIGITS or int(length) > most:
            raise _RefusedError(413, f"the body exceeds {most:,} bytes (ingest.max_body); send parts")


class _Body:
    """The body of one request."""

    def __init__(self, headers: Headers, receive: Receive) -> None:
        self._headers, self._receive = headers, receive
        self._more = True

    async def next(self) -> bytes | None:
        """Return the next part, or None after the last one. Raises: _RefusedError if it does not come."""
        if not self._more:
            return None
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._more = False
            raise _RefusedError(400, "the body did not arrive; send it again")
        self._more = message.get("more_body", False)
        return bytes(message.get("body", b""))

    async def drop(self) -> None:
        """Read the rest of a refused body: otherwise the system may drop the answer.

        A sender that waits for ``100 Continue`` sends none.
        """
        length = self._headers.get("content-length", "")
        is_short = length.isdecimal() and len(length) <= _MOST_DIGITS and int(length) <= _LEFT_BYTES
        if is_short and "expect" not in self._headers:
            with suppress(_RefusedError):
                while await self.next() is not None:
                    pass


class ArrivingBytes:
    """Bounds the memory of unanswered requests.

    Bytes count when they are here, not when a request announces them: an announcement costs nothing.
    """

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()
        self._total = 0

    def take(self, sender: str, count: int) -> bool:
        """Count bytes that have arrived; return whether they may stay. The caller gives them back later."""
        self._bytes[sender] += count
        self._total += count
        return self._bytes[sender] <= MOST_OF_ONE_BYTES and self._total <= MOST_BYTES

    def give_back(self, sender: str, count: int) -> None:
        self._total -= count
        self._bytes[sender] -= count
        if not self._bytes[sender]:
            del self._bytes[sender]
