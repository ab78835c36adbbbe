"""A sample of records whose fields a schema registry knows: Avro and Protobuf."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stream_app.core.instants import format_instant
from stream_app.ports import OperatorError
from stream_app.shell.samples.of_log import Sample, SchemaHints
from stream_app.sources.decode import Decoded, Decoder, TimeField
from stream_app.sources.registered import RegisteredDecoder, schema_id
from stream_app.sources.schema_registry import SchemaRegistry

_DEEPEST = 4  # nested records whose fields are named
_MOST_FIELDS = 200
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPED = "google.protobuf."

Fields = dict[str, bool]  # the paths of a schema, and whether each is a time of its own type


async def sample_of_schemas(where: str, records: Sequence[bytes], url: str, authority: Path | None) -> Sample:
    """Return a sample of records, by the schemas that they name.

    Raises: OSError if the registry is unreachable; OperatorError, one line, if it knows none of the schemas,
        or a package is missing.
    """
    ids = [found for found in dict.fromkeys(map(schema_id, records)) if found is not None]
    for read in (_of_avro, _of_protobuf):
        found = await read(url, authority, ids)
        if found is not None:
            form, decoder, fields = found
            return _sample(where, form, records, decoder, fields, SchemaHints((), url, authority))
    raise OperatorError(f"--schema-registry: it has no schema of Avro or Protobuf for the records of {where}")


_Read = tuple[Any, Callable[[TimeField | None, Sequence[str]], RegisteredDecoder[Any]], Fields]


async def _of_avro(url: str, authority: Path | None, ids: Sequence[int]) -> _Read | None:
    try:
        from stream_app.sources.avro import AvroDecoder
        from stream_app.sources.avro_schema import AVRO
    except ImportError:
        raise _missing("avro", "fastavro") from None
    registry = SchemaRegistry(url, authority, AVRO)
    schemas = await _schemas(registry, ids)
    fields = dict.fromkeys((path for one in schemas for path in _avro_paths(one.parsed, one.named)), False)
    if not schemas:
        return None
    return "avro", lambda time, others: AvroDecoder(registry, time, others), fields


async def _of_protobuf(url: str, authority: Path | None, ids: Sequence[int]) -> _Read | None:
    try:
        from stream_app.sources.protobuf import ProtobufDecoder
        from stream_app.sources.protobuf_schema import PROTOBUF
    except ImportError:
        raise _missing("protobuf", "protobuf") from None
    registry = SchemaRegistry(url, authority, PROTOBUF)
    schemas = await _schemas(registry, ids)
    messages = [message for one in schemas for message in one.messages.values()]
    fields: Fields = dict(path for message in messages for path in _message_paths(message))
    return (
        ("protobuf", lambda time, others: ProtobufDecoder(registry, time, others), fields)
        if schemas
        else None
    )


async def _schemas(registry: SchemaRegistry[Any], ids: Sequence[int]) -> list[Any]:
    """Return the schemas of one kind that records name. Raises: OSError if the registry does not answer."""
    unanswered = await registry.fetch(ids)
    if failure := next(iter(unanswered.values()), None):
        raise failure
    return [schema for found in ids if (schema := registry.known.get(found)) is not None]


def _sample(
    where: str,
    form: Any,
    records: Sequence[bytes],
    decoder: Callable[[TimeField | None, Sequence[str]], RegisteredDecoder[Any]],
    fields: Fields,
    hints: SchemaHints,
) -> Sample:
    nothing = [0] * len(records)
    paths = list(fields)[:_MOST_FIELDS]
    found = decoder(None, paths).decode(records, nothing)
    columns = {path: _values(found.columns[path]) for path in paths}
    for path in (path for path in paths if fields[path]):
        times = decoder(TimeField(path, "us"), ()).decode(records, nothing).columns[path]
        columns[path] = [format_instant(us) for us in times.tolist()]
    good = [records[index] for index in found.kept.tolist()]
    if not good:
        raise OperatorError(f"--events topic:{where}: none of its records can be decoded by its schema")
    held = {path: values for path, values in columns.items() if values}
    return Sample(
        where, form, good, lambda time: _Timed(decoder(time, ())), held, len(records) - len(good), hints
    )


class _Timed(Decoder):
    """Decodes times of records that carry no time beside their value."""

    def __init__(self, decoder: RegisteredDecoder[Any]) -> None:
        self._decoder = decoder

    def decode(self, records: Sequence[bytes]) -> Decoded:
        return self._decoder.decode(records, [0] * len(records))


def _values(column: np.ndarray[Any, Any]) -> list[Any]:
    return [value for value in column.tolist() if value is not None and not isinstance(value, dict | list)]


def _avro_paths(
    schema: Any, named: Mapping[str, Any], above: str = "", deeper: int = _DEEPEST
) -> Iterator[str]:
    """Yield the paths of the fields of an Avro record, of all branches of a union."""
    for branch in schema if isinstance(schema, list) else [schema]:
        inner = named.get(branch) if isinstance(branch, str) else branch
        if not isinstance(inner, dict) or inner.get("type") != "record":
            continue
        for field in inner["fields"]:
            path, typed = f"{above}{field['name']}", field["type"]
            yield path
            if deeper:
                yield from _avro_paths(typed, named, f"{path}.", deeper - 1)


def _message_paths(message: Any, above: str = "", deeper: int = _DEEPEST) -> Iterator[tuple[str, bool]]:
    """Yield the paths of the fields of a message, and whether each is a Timestamp."""
    for member in message.fields:
        path, inner = f"{above}{member.name}", member.message_type
        if member.is_repeated:
            continue
        if inner is None or inner.full_name.startswith(_WRAPPED):
            yield path, inner is not None and inner.full_name == _TIMESTAMP
        elif deeper:
            yield from _message_paths(inner, f"{path}.", deeper - 1)


def _missing(form: str, package: str) -> OperatorError:
    return OperatorError(f'a sample of {form} needs {package}; pip install "private-counts[{form}]"')
