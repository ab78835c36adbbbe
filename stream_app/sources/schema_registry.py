"""A schema registry over HTTP: schemas by id, each fetched once, because schemas never change."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import TaskGroup
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx

from stream_app.ports import OperatorError

ASK_FOR_S = 1.0  # a read starts no request after this time
ANSWER_WITHIN_S = 2.0  # the time for the answers to all requests of a read
AT_ONCE = 16  # concurrent requests
MOST_KNOWN = 5_000  # schemas in memory
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Referenced:
    """A schema that another one refers to: the name in the reference, and its text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class SchemaKind(Generic[S]):
    """How schemas of one kind are asked for and read.

    Args: name, as the registry writes it; query, behind each path; read, from a text and the schemas that it
        refers to, each after those that it needs itself, to a schema; None if it is not one of this kind.
        ``read`` raises OSError if the registry is not able to give such schemas.
    """

    name: str
    query: str
    read: Callable[[str, Sequence[Referenced]], S | None]


class _Absent(Exception):
    """The registry answered that it has no such schema."""


class SchemaRegistry(Generic[S]):
    """The schemas of one kind in one registry.

    Guarantee: only answers about a schema's own id decide whether it is known, absent or unanswered. Absence
    is never cached: the next call asks again.
    Args:
        url: of its root; a user and password in it are sent but never shown.
        kind: of the schemas; None: only ``reach`` is called.
        authority: PEM file of the trusted certificates; None: the system's.
    Raises: OperatorError, one line, for a file without certificates.
    """

    def __init__(self, url: str, authority: Path | None = None, kind: SchemaKind[S] | None = None) -> None:
        self._url = url.rstrip("/")
        self._kind = kind
        # For plain HTTP a context that trusts nobody: it is quicker to make.
        secure = url.startswith("https:")
        self._trusted = _trusting(authority) if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._place = str(httpx.URL(url).copy_with(username=None, password=None))
        # Schemas by id, the last used one at the end; None: a schema of another kind.
        self.known: OrderedDict[int, S | None] = OrderedDict()

    async def fetch(self, schema_ids: Sequence[int]) -> dict[int, OSError]:
        """Fetch the schemas that are not known yet, concurrently, in the given order.

        An id that the registry does not have stays out of ``known``, and its records do not wait. Anybody can
        write an id into a record. If such a record waited for a schema, all later records would wait too, and
        everybody could see that it came.
        Returns: the ids without an answer within ``ANSWER_WITHIN_S``, the limit for the whole call, and why.
        """
        missing = [schema_id for schema_id in dict.fromkeys(schema_ids) if schema_id not in self.known]
        too_slow = ConnectionError(
            f"schema registry {self._place}: no answer for every schema within {ANSWER_WITHIN_S:g} s; "
            "records that need the others wait"
        )
        unanswered: dict[int, OSError] = dict.fromkeys(missing, too_slow)
        if missing:
            waiting = iter(missing)
            with suppress(TimeoutError):
                async with self._client() as client, asyncio.timeout(ANSWER_WITHIN_S), TaskGroup() as group:
                    for _ in range(min(AT_ONCE, len(missing))):
                        group.create_task(self._ask_in_turn(client, waiting, unanswered))
        self._forget_unused(schema_ids)
        return unanswered

    async def _ask_in_turn(
        self, client: httpx.AsyncClient, waiting: Iterator[int], unanswered: dict[int, OSError]
    ) -> None:
        """Fetch one id after the other until none is left, the time is up or the registry does not answer."""
        until_s = asyncio.get_running_loop().time() + ASK_FOR_S
        for schema_id in waiting:
            if asyncio.get_running_loop().time() > until_s:
                return
            try:
                self.known[schema_id] = await self._schema(client, schema_id)
            except _Absent:
                pass
            except OSError as failure:
                unanswered[schema_id] = failure
                return
            del unanswered[schema_id]

    def _forget_unused(self, needed: Sequence[int]) -> None:
        """Forget the schemas that were not used for the longest time, but none that is needed now.

        Records with many registered ids can only cause schemas to be fetched again, which takes time.
        """
        for schema_id in needed:
            if schema_id in self.known:
                self.known.move_to_end(schema_id)
        while len(self.known) > max(MOST_KNOWN, len(needed)):
            self.known.popitem(last=False)

    async def reach(self) -> None:
        """Check that the registry answers. Raises: OSError if it does not."""
        async with self._client() as client:
            with suppress(_Absent):
                await self._ask(client, "/schemas/ids/1")

    def _client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
        return httpx.AsyncClient(timeout=ANSWER_WITHIN_S, verify=self._trusted, limits=limits)

    async def _schema(self, client: httpx.AsyncClient, schema_id: int) -> S | None:
        assert self._kind is not None
        answer = await self._ask(client, f"/schemas/ids/{schema_id}{self._kind.query}")
        if answer.get("schemaType", "AVRO") != self._kind.name:
            return None
        found: dict[tuple[str, int], Referenced] = {}
        try:
            await self._referenced(client, answer, self._kind.query, found)
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        try:
            return self._kind.read(answer["schema"], list(found.values()))
        except OSError as failure:
            raise ConnectionError(f"schema registry {self._place}: {failure}; records wait") from None

    async def _referenced(
        self,
        client: httpx.AsyncClient,
        answer: dict[str, Any],
        query: str,
        found: dict[tuple[str, int], Referenced],
    ) -> None:
        """Collect the schemas that a schema refers to, each of them after the schemas that it needs."""
        for reference in answer.get("references") or ():
            key = (str(reference["subject"]), int(reference["version"]))
            if key not in found:
                path = f"/subjects/{quote(key[0], safe='')}/versions/{key[1]}{query}"
                other = await self._ask(client, path)
                await self._referenced(client, other, query, found)
                found[key] = Referenced(str(reference.get("name", key[0])), other["schema"])

    async def _ask(self, client: httpx.AsyncClient, path: str) -> dict[str, Any]:
        try:
            response = await client.get(self._url + path, headers={"Accept": "application/json"})
        except httpx.HTTPError as failure:
            if (distrust := _distrust(failure)) is not None:
                raise ConnectionError(
                    f"schema registry {self._place}: its certificate is not trusted ({distrust}); name its "
                    "authority in source.schema_registry.ssl.ca.location, or mend it"
                ) from None
            raise ConnectionError(
                f"schema registry {self._place}: no answer ({str(failure) or type(failure).__name__}); "
                "start it, or correct source.schema_registry"
            ) from None
        try:
            answer = response.json()
        except ValueError:
            answer = None
        # A server that is not a registry may not find the path; a registry says that it has no such schema.
        if isinstance(answer, dict) and str(answer.get("error_code")).startswith("404"):
            raise _Absent
        if response.is_error:
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise ConnectionError(
                f"schema registry {self._place}: gives no schemas (HTTP {response.status_code}); records "
                "wait: mend it, or correct source.schema_registry"
            )
        return answer


def _trusting(authority: Path | None) -> ssl.SSLContext:
    if authority is None:
        return httpx.create_ssl_context()
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as failure:  # also raised for invalid content
        said = failure.strerror or "it holds no certificates"
        raise OperatorError(
            f"source.schema_registry.ssl.ca.location: {authority}: {said}; name a PEM file of certificates"
        ) from None


def _distrust(failure: BaseException | None) -> str | None:
    """Return why a certificate was refused; None for any other failure."""
    while failure is not None and not isinstance(failure, ssl.SSLCertVerificationError):
        failure = failure.__cause__ or failure.__context__
    return None if failure is None else failure.verify_message
