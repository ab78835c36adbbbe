"""Authenticate and limit requests: API keys with their streams, a trusted proxy, limits for every reader.

Without keys and proxy, everybody who reaches the port may read. The configuration allows this on loopback,
and elsewhere only if the operator accepts it explicitly.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_app.api.admission.connections import client_of
from stream_app.api.admission.hosts import Hosts
from stream_app.api.admission.turns import Turnstile
from stream_app.api.errors import reply
from stream_app.core.boards import Board
from stream_app.core.segments.names import base_of
from stream_app.ports.access import ApiKey, Limits, Scrapes, digest_of

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
PAGE_FILES = "/dashboard/"  # cheap, many per page, and without any query
FRAMED_PAGES = "/embed/"  # a page in a frame; its script sends the key of its address with every question
LARGEST_BODY_BYTES = 16_384
LARGEST_QUERY_BYTES = 8_192
_TOO_LARGE = f"the body is larger than {LARGEST_BODY_BYTES:,} bytes; shorten it"
_MOST_DIGITS = 18  # longest Content-Length that is parsed as a number
_MOST_CLIENTS = 10_000
_BURST_S = 2.0  # a client that was idle may send the requests of this time at once


@dataclass(slots=True)
class AccessRules:
    """The rules that a request must satisfy.

    Args:
        keys: each grants access to its streams; None requires no key, an empty tuple refuses everybody. Keys
            may be replaced at any time: a removed key grants nothing, and its holder's open answers end.
        proxy_header, proxies: the proxy at these addresses has authenticated requests with this header.
        origins: pages of these origins may call the API from a browser.
        requests_per_s: for each key or address; None: no limit.
        hosts: accepted names in the header Host.
        limits: limits on readers' connections.
        scrapes: what a scrape of ``/metrics`` gets.
        boards: by name; the keys of a board open it.
    """

    keys: tuple[ApiKey, ...] | None = None
    proxy_header: str | None = None
    proxies: frozenset[str] = frozenset()
    origins: tuple[str, ...] = ()
    requests_per_s: float | None = None
    hosts: Hosts = field(default_factory=Hosts)
    limits: Limits = field(default_factory=Limits)
    scrapes: Scrapes = field(default_factory=Scrapes)
    boards: Mapping[str, Board] = field(default_factory=dict)

    @property
    def frames(self) -> bool:
        """Whether a page elsewhere may show a board in a frame."""
        return any(board.embed for board in self.boards.values())

    @property
    def asks(self) -> bool:
        """Whether requests must be authenticated."""
        return self.keys is not None or self.proxy_header is not None


@dataclass(frozen=True, slots=True)
class Reader:
    """An authenticated reader, and the streams that this reader may read (None: all streams).

    Args: boards, questions: of a key of boards, these boards and the only questions that it opens; else None.
        A question is a path with the key of the stream that it names, or with None.
    """

    name: str
    streams: frozenset[str] | None = None
    boards: frozenset[str] | None = None
    questions: frozenset[tuple[str, str | None]] | None = None


NOBODY = Reader("", frozenset(), frozenset(), frozenset())  # gets files of pages, which show nothing


def reader_of(request: Request) -> str:
    """Return the name under which the limits count the request's reader."""
    reader: Reader | None = getattr(request.state, "reader", None)
    return "" if reader is None else reader.name


def may_read(request: Request, stream: str) -> bool:
    """Return whether the request's reader may read a stream. A key opens all generations of its streams."""
    reader: Reader | None = getattr(request.state, "reader", None)
    return reader is None or reader.streams is None or base_of(stream) in reader.streams


def may_ask_of(request: Request, stream: str, other: str) -> bool:
    """Return whether the request's reader may ask its question of ``other`` in place of ``stream``."""
    reader: Reader | None = getattr(request.state, "reader", None)
    if reader is None or reader.questions is None:
        return may_read(request, other)
    asked, beside = base_of(stream), base_of(other)
    path, key = _question_of(request.scope) or ("", None)
    of_other = path.replace(f"/streams/{asked}", f"/streams/{beside}", 1)
    return (asked == beside or of_other != path) and (of_other, key) in reader.questions


def sees_panels_only(request: Request) -> bool:
    """Return whether the request's reader has a key of boards."""
    reader: Reader | None = getattr(request.state, "reader", None)
    return reader is not None and reader.boards is not None


def may_read_board(request: Request, board: Board) -> bool:
    """Return whether the request's reader may read a board: by a key of it, or with all of its streams."""
    reader: Reader | None = getattr(request.state, "reader", None)
    if reader is not None and reader.boards is not None:
        return board.name in reader.boards
    return all(may_read(request, stream) for stream in board.streams)


class Access:
    """Pass a request to the application, or refuse it in one line: 400, 401, 403, 413, 414, 421 or 429."""

    def __init__(
        self,
        app: ASGIApp,
        rules: AccessRules,
        clock_s: Callable[[], float] = time.monotonic,
        followed: Callable[[], bool] = lambda: False,
    ) -> None:
        self.app = app
        self._rules = rules
        self._budgets = Budgets(rules.requests_per_s, clock_s)
        self._turnstile = Turnstile(followed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; no answer is buffered, so server-sent events flow."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        exchange = _Exchange(headers, receive, send)
        address = scope["client"][0] if scope.get("client") else ""
        reader = self._reader(headers, address)
        await self._turnstile.passed(reader.name if reader else client_of(address))
        refusal = self._refusal(scope, headers, reader, address)
        if refusal is not None:
            answer = reply(refusal.status_code, refusal.detail)
            answer.headers.update(refusal.headers or {})
            await answer(scope, receive, exchange.send)
            return
        state = scope.setdefault("state", {})
        state["reader"] = reader or NOBODY
        still_in = partial(self._still_accepted, reader, self._rules.keys, headers, address)
        connection = state.get("connection", _no_connection)
        state["push"] = lambda part: (open := connection()) is not None and still_in() and open.push(part)
        await self.app(scope, exchange.receive, _while_let_in(exchange.send, still_in))

    def _still_accepted(
        self, reader: Reader | None, keys: tuple[ApiKey, ...] | None, headers: Headers, address: str
    ) -> bool:
        """Return whether a running request would still be accepted. Args: keys, in force when it began."""
        return self._rules.keys is keys or self._reader(headers, address) == reader

    def _refusal(
        self, scope: Scope, headers: Headers, reader: Reader | None, address: str
    ) -> HTTPException | None:
        if not self._rules.hosts.know(headers.get("host", "")):
            line = (
                f"{headers.get('host', '')[:80]!r} is not known as a name of this service; ask for localhost "
                "or an address, or add the name to api.hosts"
            )
            return HTTPException(421, line)
        if len(scope.get("query_string", b"")) > LARGEST_QUERY_BYTES:
            return HTTPException(
                414, f"the question is longer than {LARGEST_QUERY_BYTES:,} bytes; shorten it"
            )
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal()):
            line = "Content-Length is not a number of bytes; leave it out, or send how many there are"
            return HTTPException(400, line)
        if int(length[-_MOST_DIGITS:]) > LARGEST_BODY_BYTES or length[:-_MOST_DIGITS].strip("0"):
            return HTTPException(413, _TOO_LARGE)
        counted = not scope["path"].startswith(PAGE_FILES)
        wait_s = self._budgets.take(reader.name if reader else client_of(address)) if counted else 0.0
        if wait_s > 0:
            line = f"more than {self._rules.requests_per_s:g} requests a second; ask more slowly"
            return HTTPException(429, line, {"Retry-After": str(max(1, round(wait_s)))})
        if reader is None and not self._is_open(scope["path"]):
            line = "a key is needed: Authorization: Bearer KEY, or as the password of a browser's prompt"
            return HTTPException(
                401, line, {"WWW-Authenticate": 'Basic realm="private counts", charset="UTF-8"'}
            )
        opens = None if reader is None else reader.questions
        if opens is not None and not self._is_open(scope["path"]) and _question_of(scope) not in opens:
            opened = ", ".join(sorted((reader or NOBODY).boards or ()))
            line = f"this key opens the board {opened} only: what its panels ask; use a key of streams"
            return HTTPException(403, line)
        return None

    def _is_open(self, path: str) -> bool:
        """Return whether everybody may have a path. A frame loads a page and its files without a key."""
        if path in OPEN_PATHS:
            return True
        return self._rules.frames and path.startswith((PAGE_FILES, FRAMED_PAGES))

    def _reader(self, headers: Headers, address: str) -> Reader | None:
        """Return the request's reader, or None if authentication is required and missing."""
        rules = self._rules
        if not rules.asks:
            return Reader(client_of(address))
        if rules.proxy_header and address in rules.proxies:
            users = headers.getlist(rules.proxy_header)
            if len(users) == 1 and users[0]:  # of two, one may be the reader's own words
                return Reader(f"proxy:{users[0]}")
        digest = digest_of(_key_in(headers.get("authorization", "")))
        found: ApiKey | None = None
        for key in rules.keys or ():  # compare all keys, so that the time does not show which one matches
            if hmac.compare_digest(key.sha256, digest):
                found = key
        return None if found is None else self._of_key(found, address)

    def _of_key(self, key: ApiKey, address: str) -> Reader:
        """Return the reader who holds a key.

        A key of boards stands in a page that many people open, so each of their addresses is a reader: the
        limits of one do not stop the others.
        """
        if key.boards is None:
            return Reader(f"key:{key.name}", key.streams)
        boards = [board for name, board in self._rules.boards.items() if name in key.boards]
        streams = frozenset[str]().union(*(board.streams for board in boards))
        questions = frozenset[tuple[str, str | None]]().union(*(board.questions() for board in boards))
        return Reader(f"key:{key.name}@{client_of(address)}", streams, key.boards, questions)


def _no_connection() -> None:
    """Return nothing: this request has no connection, or another server's."""


def _question_of(scope: Scope) -> tuple[str, str | None] | None:
    """Return a request's path and the key of a stream that it names; None if it is about several keys."""
    asked = QueryParams(scope.get("query_string", b""))
    keys = asked.getlist("key")
    if len(keys) > 1 or "not_key" in asked:
        return None
    return scope["path"], keys[0] if keys else None


def _while_let_in(send: Send, still_in: Callable[[], bool]) -> Send:
    """Wrap ``send`` so that a long answer, such as an event stream, ends when its reader loses access."""
    ended = False

    async def sent(message: Message) -> None:
        nonlocal ended
        if ended:
            return
        ended = message["type"] == "http.response.body" and not still_in()
        await send({"type": message["type"], "body": b"", "more_body": False} if ended else message)

    return sent


class Budgets:
    """A budget of requests for each client. It fills steadily, and is full after ``_BURST_S`` seconds."""

    def __init__(self, per_s: float | None, clock_s: Callable[[], float]) -> None:
        self._per_s, self._clock_s = per_s, clock_s
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Take one request from the client's budget; return 0, or the seconds to wait if it is empty."""
        if self._per_s is None:
            return 0.0
        now_s, most = self._clock_s(), max(1.0, self._per_s * _BURST_S)
        left, then_s = self._left.pop(client, (most, now_s))
        left = min(most, left + (now_s - then_s) * self._per_s)
        granted = left >= 1.0
        self._left[client] = (left - 1.0 if granted else left, now_s)
        if len(self._left) > _MOST_CLIENTS:
            self._left.popitem(last=False)
        return 0.0 if granted else (1.0 - left) / self._per_s


def _key_in(authorization: str) -> str:
    """Return the key in a header: the bearer token, or the password from a browser's prompt."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


class _Exchange:
    """One request and its answer. Bodies are limited in length and not read after the answer.

    A server would otherwise read and discard all that a client sends. If part of the body is unread, the
    connection closes with the answer. A client that still sends while it is being answered counts as
    disconnected, because it is too late to refuse the request.
    """

    def __init__(self, headers: Headers, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._is_unread = "transfer-encoding" in headers or bool(headers.get("content-length", "").strip("0"))
        self._taken, self._begun = 0, False

    async def receive(self) -> Message:
        message = await self._receive()
        self._is_unread = self._is_unread and bool(message.get("more_body"))
        self._taken += len(message.get("body", b""))
        if self._taken <= LARGEST_BODY_BYTES:
            return message
        if self._begun:
            return {"type": "http.disconnect"}
        self._is_unread = True
        raise HTTPException(413, _TOO_LARGE)

    async def send(self, message: Message) -> None:
        if not self._begun and self._is_unread:
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        self._begun = True
        await self._send(message)
