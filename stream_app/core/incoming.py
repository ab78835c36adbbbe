"""The records of a source: decoded ones, and refused ones, each with its reason and the operator's remedy."""

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
    UNKNOWN_ORIGIN = "unknown_origin"  # a row of an engine that names no known partition of origin
    OTHER_CAP = "other_cap"  # a row of an engine whose cap on users is missing, or larger than declared
    REPEATED = "repeated"  # a row of an engine not beyond the last one of its origin: no dead letter
    OVER_CAP = "over_cap"  # beyond the cap of its user: an operator counter, never a dead letter
    TOMBSTONE = "tombstone"  # a record of a topic without a value: counted, but no dead letter


OF_ENGINE = frozenset({Reason.UNKNOWN_ORIGIN, Reason.OTHER_CAP, Reason.REPEATED})  # of its rows only
_FIELD = "correct time.field"

# (what these records are, the remedy)
REMEDIES: Mapping[str, tuple[str, str]] = {
    Reason.UNDECODABLE: (
        "they are not in the format of the source",
        "correct source.format, or write each event on one line, as a JSON object or a value for each column",
    ),
    Reason.UNREADABLE_BATCH: ("their batch of the topic is damaged", "see what its producer sent"),
    Reason.UNKNOWN_SCHEMA: ("the registry has no such schema", "register it before events are sent"),
    Reason.MISSING_FIELD: ("they have no such time field", _FIELD),
    Reason.NULL: ("their time is null", _FIELD),
    Reason.BAD_TIME: ("their time cannot be read", "correct time.field or time.format"),
    Reason.LOCAL_TIME: ("their time does not say its offset from UTC", "name its zone in time.zone"),
    Reason.BEFORE_FIRST_BIN: (
        "they are dated before the first bin",
        (
            "to count the past, set time.first; after a loss or restore of the store nothing is wrong: they "
            "have counted before; if the events are newer, correct time.field or time.format"
        ),
    ),
    Reason.FUTURE: ("they are dated in the future", "correct time.format, or the producers' clocks"),
    Reason.LATE: ("they come after their bin closed", "set a longer time.grace"),
    Reason.NO_USER: (
        "they name no user",
        "correct privacy.unit.user; lines of visitors are of a day whose key is destroyed (docs/runbook.md)",
    ),
    Reason.UNKNOWN_KEY: ("their key is not on the list", "correct keys, or set keys.other: true"),
    Reason.BAD_VALUE: (
        "they have no number to count",
        "correct the field of value or sum, or the rows of the engine (docs/how-to/engine.md)",
    ),
    Reason.UNKNOWN_ORIGIN: ("source.origins has no such partition", "correct it, or the rows of the engine"),
    Reason.OTHER_CAP: ("they say no cap on users, or a larger one", "let the engine cap as max_events says"),
    Reason.REPEATED: ("their engine has sent them before", "give an engine that begins anew a larger epoch"),
    Reason.OVER_CAP: ("their user has reached the cap", "see max_events"),
}


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


def refused_because(reason: str) -> str:
    """Return a reason in words, with the remedy.

    >>> refused_because("late")
    'late: they come after their bin closed; set a longer time.grace'
    """
    what, remedy = REMEDIES[reason]
    return f"{reason}: {what}; {remedy}"
