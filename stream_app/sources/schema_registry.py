"""A schema registry over HTTP: Avro schemas by their id, each fetched once, because none ever changes."""

from __future__ import annotations

import asyncio
import json
import ssl
from asyncio import TaskGroup
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import fastavro
import httpx
from fastavro.schema import SchemaParseException, UnknownType

from stream_app.ports import OperatorError
from stream_app.sources.avro_bounds import is_bounded
from stream_app.sources.avro_decimals import READ_AS, is_decimal

ASK_FOR_S = 1.0  # then one read asks for no further schema
ANSWER_WITHIN_S = 2.0  # to all that it asked for
AT_ONCE = 16  # requests under way
MOST_KNOWN = 5_000  # schemas in memory
_MARK = "written_as"  # stands for logicalType, which would make objects of numbers that may be out of range
_UNITS: Mapping[Any, Unit] = {
    "timestamp-millis": "ms",
    "timestamp-micros": "us",
    "timestamp-nanos": "ns",
    "local-timestamp-millis": "none",
    "local-timestamp-micros": "none",
    "local-timestamp-nanos": "none",
    "date": "none",
    "time-millis": "none",
    "time-micros": "none",
}

# What a schema says of a number: its unit, that it is no time, or (None) nothing.
Unit = Literal["ms", "us", "ns", "none"] | None


@dataclass(frozen=True)
class Schema:
    """A parsed schema, its logical types taken out, except decimals; ``units`` keeps answers by path.

    ``bounded``: its records need no check before they are decoded (``avro_bounds.py``).
    """

    parsed: Any
    named: Mapping[str, Any]
    bounded: bool
    units: dict[str, Unit] = field(default_factory=dict)

    def unit(self, path: str) -> Unit:
        """Return what the schema says of the number at a path; "none" where its branches differ.

        >>> long = {"type": "long", "logicalType": "timestamp-millis"}
        >>> fields = [{"name": "at", "type": ["null", long]}, {"name": "n", "type": "long"}]
        >>> schema = read_schema([{"type": "record", "name": "Click", "fields": fields}])
        >>> schema.unit("at"), schema.unit("n")
        ('ms', None)
        """
        units = _units(self.parsed, path.split("."), self.named)
        return units.pop() if len(units) == 1 else "none" if units else None


class _Absent(Exception):
    """The registry answers, and has no such schema."""


class SchemaRegistry:
    """The schemas of one registry.

    Guarantee: whether a schema is known, absent or unanswered is decided by answers about its own id. That an
    id is absent is never kept: the next call asks again.
    Args:
        url: of its root; a user and password in it are sent and never shown.
        authority: PEM file of the certificates that it is trusted by; None: the well-known ones.
    Raises: OperatorError, one line, for a file that holds no certificates.
    """

    def __init__(self, url: str, authority: Path | None = None) -> None:
        self._url = url.rstrip("/")
        self._trusted = _trusting(authority) if url.startswith("https:") else _trusting_nobody()
        self._place = str(httpx.URL(url).copy_with(username=None, password=None))
        # By id, the one used last at the end; None: a schema that is not Avro.
        self.known: OrderedDict[int, Schema | None] = OrderedDict()

    async def fetch(self, schema_ids: Sequence[int]) -> dict[int, OSError]:
        """Fetch the schemas that are not known yet, side by side, those named first at first.

        An id that the registry answers not to have stays out of ``known``. Anybody can write an id into a
        record. If its records waited until there is a schema, everything behind them would wait too, and
        everybody could see that such a record came.

        Returns: the ids that got no answer within ``ANSWER_WITHIN_S``, the time of this whole call, and why.
        """
        missing = [schema_id for schema_id in dict.fromkeys(schema_ids) if schema_id not in self.known]
        unanswered: dict[int, OSError] = dict.fromkeys(missing, self._too_slow())
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
        """Ask for one id after the other, until none is left, time is up or the registry does not answer."""
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
        """Keep the schemas that are needed now, and of the others those that were used last.

        Whoever names many registered ids can only have a schema fetched again, which takes time.
        """
        for schema_id in needed:
            if schema_id in self.known:
                self.known.move_to_end(schema_id)
        while len(self.known) > max(MOST_KNOWN, len(needed)):
            self.known.popitem(last=False)

    def _too_slow(self) -> OSError:
        return ConnectionError(
            f"schema registry {self._place}: no answer for every schema within {ANSWER_WITHIN_S:g} s; "
            "records that need the others wait"
        )

    async def reach(self) -> None:
        """Ask for any schema. Raises: OSError where the registry does not answer."""
        async with self._client() as client:
            with suppress(_Absent):
                await self._ask(client, "/schemas/ids/1")

    def _client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
        return httpx.AsyncClient(timeout=ANSWER_WITHIN_S, verify=self._trusted, limits=limits)

    async def _schema(self, client: httpx.AsyncClient, schema_id: int) -> Schema | None:
        answer = await self._ask(client, f"/schemas/ids/{schema_id}")
        texts: dict[tuple[str, int], str] = {}
        if answer.get("schemaType", "AVRO") != "AVRO":
            return None
        try:
            await self._referenced(client, answer, texts)
            return read_schema([json.loads(text) for text in (*texts.values(), answer["schema"])])
        except (ValueError, KeyError, TypeError, RecursionError, SchemaParseException, UnknownType):
            return None

    async def _referenced(
        self, client: httpx.AsyncClient, answer: dict[str, Any], texts: dict[tuple[str, int], str]
    ) -> None:
        """Collect the schemas that a schema refers to, each after those that it needs itself."""
        for reference in answer.get("references") or ():
            name = (str(reference["subject"]), int(reference["version"]))
            if name not in texts:
                found = await self._ask(client, f"/subjects/{quote(name[0], safe='')}/versions/{name[1]}")
                await self._referenced(client, found, texts)
                texts[name] = found["schema"]

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
        # A server that is no registry may not find the path; a registry answers that it has no such schema.
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


def _trusting_nobody() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # for plain HTTP: quick, and no other use is possible


def _trusting(authority: Path | None) -> ssl.SSLContext:
    if authority is None:
        return httpx.create_ssl_context()
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as failure:  # also what is wrong with its content
        said = failure.strerror or "it holds no certificates"
        raise OperatorError(
            f"source.schema_registry.ssl.ca.location: {authority}: {said}; name a PEM file of certificates"
        ) from None


def _distrust(failure: BaseException | None) -> str | None:
    """Return why a certificate was refused; None for any other failure."""
    while failure is not None and not isinstance(failure, ssl.SSLCertVerificationError):
        failure = failure.__cause__ or failure.__context__
    return None if failure is None else failure.verify_message


def read_schema(documents: Sequence[Any]) -> Schema:
    """Parse a schema, the last of the documents; those before it are what it refers to, in order.

    Raises: errors of fastavro, ValueError, KeyError, TypeError for what is no Avro schema.
    """
    named: dict[str, Any] = {}
    for document in documents:
        parsed = fastavro.parse_schema(_marked(document), named)
    return Schema(parsed, named, is_bounded(parsed, named))


def _marked(document: Any) -> Any:
    if isinstance(document, dict):
        marked = {_MARK if key == "logicalType" else key: _marked(value) for key, value in document.items()}
        return marked | {"logicalType": READ_AS} if is_decimal(document) else marked
    return [_marked(value) for value in document] if isinstance(document, list) else document


def _units(schema: Any, keys: Sequence[str], named: Mapping[str, Any]) -> set[Unit]:
    """Return what the branches of a schema say of a number at a path."""
    if isinstance(schema, list):
        return set().union(*(_units(branch, keys, named) for branch in schema))
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    kind = schema["type"]
    if not isinstance(kind, str):
        return _units(kind, keys, named)
    if not keys:
        return {_UNITS.get(schema.get(_MARK))} if kind in ("int", "long", "float", "double") else set()
    if kind == "map":
        return _units(schema["values"], keys[1:], named)
    inside = [member["type"] for member in schema.get("fields", ()) if member["name"] == keys[0]]
    return set().union(*(_units(member, keys[1:], named) for member in inside))
