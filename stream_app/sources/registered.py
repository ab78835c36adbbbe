"""Decodes records in Confluent's wire format: a magic byte, the id of a schema in a registry, and the record.

The result for a record depends on its bytes and on the schema that they name, which never changes.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Container, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from stream_app.core.incoming import Reason
from stream_app.sources.decode import Decoded, TimeField, decoded_columns, untimed_columns
from stream_app.sources.times import TimeFormat, times_us, why_no_time

if TYPE_CHECKING:
    from stream_app.sources.schema_registry import SchemaRegistry  # its HTTP client takes a while to import

log = logging.getLogger(__name__)

HEADER_BYTES = 5  # the magic byte and the schema's id, big-endian
_MAGIC = 0
_LARGEST_ID = 2**31 - 1

S = TypeVar("S")
# The time of a record with its format, None if no time is read; and its other configured fields.
Fields = tuple[tuple[TimeFormat, Any] | None, list[Any]]


class RegisteredDecoder(Generic[S]):
    """Decodes each record by its own schema (``topic_records.TopicDecoder``).

    Args: field, of the time; None to decode the other fields only: every record is then kept; others, the
        paths of the other fields.
    """

    needs_timestamps = False

    def __init__(self, registry: SchemaRegistry[S], field: TimeField | None, others: Sequence[str]) -> None:
        self._registry = registry
        self._field = field
        self._others = tuple(others)

    @abstractmethod
    def _fields(self, schema: S, value: bytes) -> Fields | Reason:
        """Return the read fields of one record, or the reason for its refusal."""

    async def prepare(self, logs: Sequence[Sequence[bytes]]) -> list[int]:
        """Fetch the schemas of records; return how many records at the start of each log can be decoded now.

        A record whose schema id got no answer is neither counted nor refused: it and all later records of its
        log wait for the next call. The logs take turns, so a log with many new ids does not block the others.
        Raises: OSError if no record can be decoded.
        """
        ids = [list(map(schema_id, values)) for values in logs]
        in_turn = chain.from_iterable(zip_longest(*map(dict.fromkeys, ids)))
        unanswered = await self._registry.fetch(
            [found for found in dict.fromkeys(in_turn) if found is not None]
        )
        if not unanswered:
            return [len(values) for values in logs]
        ready = [_first_of(unanswered, found) for found in ids]
        failure = next(iter(unanswered.values()))
        if not any(ready):
            raise failure
        log.warning("%s", failure)
        return ready

    def decode(self, values: Sequence[bytes], timestamps_ms: Sequence[int]) -> Decoded:
        """Decode records whose schemas are fetched."""
        refused: list[tuple[int, Reason]] = []
        kept: list[int] = []
        written: list[Any] = []  # the time of each row, and its format
        formats: list[TimeFormat] = []
        rows: list[list[Any]] = []
        for index, value in enumerate(values):
            found = self._record(value)
            if isinstance(found, Reason):
                refused.append((index, found))
                continue
            timed, row = found
            if timed is not None:
                formats.append(timed[0])
                written.append(timed[1])
            kept.append(index)
            rows.append(row)
        # NaN is no value, as in JSON.
        others = {
            path: [None if row[place] != row[place] else row[place] for row in rows]
            for place, path in enumerate(self._others)
        }
        field = self._field
        if field is None:
            return untimed_columns(kept, others, refused)
        found_us, good = np.zeros(len(kept), dtype=np.int64), np.zeros(len(kept), dtype=np.bool_)
        for form in set(formats):
            at = [row for row, found in enumerate(formats) if found == form]
            found_us[at], good[at] = times_us([written[row] for row in at], form, field.zone)

        def why(row: int) -> Reason:
            return why_no_time(written[row], formats[row], field.zone)

        return decoded_columns(kept, field.path, (found_us, good), others, refused, why)

    def _record(self, value: bytes) -> Fields | Reason:
        number = schema_id(value)
        if number is None:
            return Reason.UNDECODABLE
        if number not in self._registry.known:
            return Reason.UNKNOWN_SCHEMA
        schema = self._registry.known[number]
        return Reason.UNDECODABLE if schema is None else self._fields(schema, value)


def timed(
    value: Any, declared: TimeFormat, unit: TimeFormat | None = None
) -> tuple[TimeFormat, Any] | Reason:
    """Return the time in a field with its format, or the reason for the record's refusal.

    Args: declared, the configured format; unit, the one in the schema, None if it has none.
    """
    if type(value) is str:
        return declared, value
    time_format = unit or declared
    if type(value) not in (int, float) or time_format == "iso8601":
        return Reason.BAD_TIME
    return time_format, value


def of_single(value: float) -> float:
    """Return the shortest number that a float of 32 bits may have been, as Protobuf writes it in JSON.

    >>> of_single(0.10000000149011612)
    0.1
    """
    return float(str(np.float32(value)))


def schema_id(value: bytes) -> int | None:
    """Return the id of a record's schema; None if the bytes are not in the wire format."""
    if len(value) < HEADER_BYTES or value[0] != _MAGIC:
        return None
    found = int.from_bytes(value[1:HEADER_BYTES], "big")
    return found if 0 < found <= _LARGEST_ID else None


def _first_of(unanswered: Container[int], ids: Sequence[int | None]) -> int:
    """Return the index of the first record whose schema got no answer; the number of records if none."""
    return next((index for index, found in enumerate(ids) if found in unanswered), len(ids))
