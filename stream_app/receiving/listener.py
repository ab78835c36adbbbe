"""``POST /v1/ingest/NAME``: NDJSON in, 200 once it is on the disk. Nothing can be read here."""

from __future__ import annotations

import hmac
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from stream_app.api.admission.connections import client_of
from stream_app.api.admission.hosts import Hosts
from stream_app.ports.access import ApiKey, digest_of
from stream_app.receiving.group_commit import GroupCommit
from stream_app.receiving.known_keys import Stored, digest
from stream_app.receiving.spool_writer import Incoming, SpoolFullError

_PATH = re.compile(r"/v1/ingest/([a-z0-9_-]{1,64})")
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_MOST_DIGITS = 12


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
    """

    keys: tuple[ApiKey, ...] | None
    most_body_bytes: int
    origins: tuple[str, ...] = ()
    hosts: Hosts = field(default_factory=Hosts)


class Listener:
    """An ASGI application over the spools. Args: spools, by name."""

    def __init__(self, spools: Mapping[str, GroupCommit], rules: WriteRules) -> None:
        self._spools, self._rules = spools, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        try:
            status, answer = 200, await self._answer(scope, headers, receive)
        except _RefusedError as refusal:
            status, answer = refusal.status, {"error": str(refusal)}
        except SpoolFullError:
            status, answer = 507, {"error": "the spool is full (ingest.max_size); try again later"}
        except OSError:
            line = "the disk failed; it is unknown what was stored: send it again with its Idempotency-Key"
            status, answer = 503, {"error": line}
        body = json.dumps(answer).encode()
        answered = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if status != 200:
            answered.append((b"connection", b"close"))  # the rest of a refused body is not read
        await send({"type": "http.response.start", "status": status, "headers": answered})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive) -> dict[str, object]:
        self._check_browser(headers)
        if scope["path"] == "/healthz" and scope["method"] == "GET":
            return {"status": "ok"}
        found = _PATH.fullmatch(scope["path"])
        if found is None or scope["method"] != "POST":
            raise _RefusedError(404, "nothing is here; POST NDJSON to /v1/ingest/NAME")
        address = scope["client"][0] if scope.get("client") else ""
        sender = self._sender(headers, address, found[1])
        if found[1] not in self._spools:
            raise _RefusedError(404, f"no stream has source.http: {found[1]}; correct the name")
        data = await self._body(headers, receive)
        key = headers.get("idempotency-key")
        if key is not None and not _KEY.fullmatch(key):
            raise _RefusedError(400, "Idempotency-Key must be 1 to 200 visible ASCII characters")
        batch = Incoming(data, None if key is None else digest(sender, key))
        stored = await self._spools[found[1]].store(sender, batch) if data else Stored(0, 0, 0, is_new=True)
        if (stored.length, stored.crc) != (len(data), zlib.crc32(data)):
            raise _RefusedError(422, "this Idempotency-Key came with another body; use a new key for it")
        return {"records": stored.records, "duplicate": not stored.is_new}

    def _check_browser(self, headers: Headers) -> None:
        """Refuse pages that are not ours: a browser sends them from inside the network, without a key."""
        if not self._rules.hosts.know(headers.get("host", "")):
            host = headers.get("host", "")[:80]
            raise _RefusedError(421, f"{host!r} is not a known name of this service; add it to ingest.hosts")
        origin = headers.get("origin")
        if origin is not None and origin not in self._rules.origins:
            raise _RefusedError(403, f"pages of {origin[:80]!r} may not send; add it to ingest.origins")

    def _sender(self, headers: Headers, address: str, name: str) -> str:
        """Return who sends. Raises: _RefusedError if they may not write to this log."""
        if self._rules.keys is None:
            return f"address:{client_of(address)}"
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

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """Return the body as whole lines."""
        most = self._rules.most_body_bytes
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdecimal()):
            raise _RefusedError(411, "Content-Length is needed; send how many bytes the body has")
        too_large = _RefusedError(413, f"the body exceeds {most:,} bytes (ingest.max_body); send parts")
        if len(length) > _MOST_DIGITS or int(length) > most:
            raise too_large
        parts, taken, more = list[bytes](), 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _RefusedError(400, "the body did not arrive; send it again")
            parts.append(message.get("body", b""))
            taken += len(parts[-1])
            if taken > most:
                raise too_large
            more = message.get("more_body", False)
        data = b"".join(parts)
        return data if not data or data.endswith(b"\n") else data + b"\n"
