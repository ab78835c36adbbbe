"""The records of a source: decoded ones, and refused ones, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dphist.arrays import Int64Array


class Reason(StrEnum):
    """Why a record is not counted; used in dead letters and as names of operator counters."""

    UNDECODABLE = "undecodable"
    UNREADABLE_BATCH = "unreadable_batch"  # the rest of a topic's batch, whose records cannot be separated
    UNKNOWN_SCHEMA = "unknown_schema"  # the schema registry had no schema with its id when it was read
    MISSING_FIELD = "missing_field"
    NULL = "null"
    BAD_TIME = "bad_time"
    LOCAL_TIME = "local_time"  # a time without an offset, of a stream without a time zone
    BEFORE_FIRST_BIN = "before_first_bin"
    FUTURE = "future"
    LATE = "late"
    NO_USER = "no_user"
    UNKNOWN_KEY = "unknown_key"  # not on the list of keys, and the list has no key other
    BAD_VALUE = "bad_value"  # not a number
    UNKNOWN_ORIGIN = "unknown_origin"  # a row of an engine, of no partition of origin
    OTHER_CAP = "other_cap"  # a row of an engine that says no cap on users, or a larger one
    REPEATED = "repeated"  # a row of an engine not beyond the last one of its origin: no dead letter
    OVER_CAP = "over_cap"  # beyond the cap of its user: an operator counter, never a dead letter
    TOMBSTONE = "tombstone"  # a record of a topic without a value: counted, but no dead letter


OF_ENGINE = frozenset({Reason.UNKNOWN_ORIGIN, Reason.OTHER_CAP, Reason.REPEATED})  # of its rows only


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record that is not counted, with the reason, as the dead letters get it."""

    partition: str
    position: int
    reason: str
    record: bytes


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Decoded records of one partition, in order, from ``start`` to ``end``.

    Args:
        positions: the position of each event, shape (n,).
        columns: one array or list of n values per configured field.
        refused: records that could not be decoded.
        records: the raw record of each event, for the dead letters; may be left out.
    """

    partition: str
    start: int
    end: int
    positions: Int64Array
    columns: Mapping[str, Any]
    refused: Sequence[Refusal] = ()
    records: Sequence[bytes] = ()
