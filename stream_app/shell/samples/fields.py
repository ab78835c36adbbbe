"""Compares each field that a stream reads with a sample of events. For the operator only: exact numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dphist.planning.report import in_decimals
from stream_app.config import StreamSettings
from stream_app.core.counting.cells import Amounts, Buckets
from stream_app.core.counting.keys import KeyField, normalised
from stream_app.core.counting.read_values import numbers
from stream_app.core.counting.unlisted import key_names
from stream_app.wiring.checks import Finding, State

_FEW = 0.95  # with less in the list or the range, the operator should look at the declaration again


def field_findings(stream: StreamSettings, columns: Mapping[str, Any], events: int) -> Iterator[Finding]:
    """Yield a finding for each field that decides what counts: how many events have it, and in which place.

    Args: columns of the decoded events of a sample, by field; events, their number.
    """
    declared, what = stream.declared, f"streams.{stream.name}"
    if not events:
        return
    for part in declared.keys.parts if declared.keys else ():
        find = _found_keys if declared.finds_keys else _keys
        assert declared.keys is not None
        yield find(f"{what}.keys", part, normalised(declared.keys.normalise, columns[part.field]))
    if declared.value is not None:
        yield _values(f"{what}.value", declared.value, columns[declared.value.field])
    if declared.amounts is not None:
        yield _values(f"{what}.sum", declared.amounts, columns[declared.amounts.field])
    per_user = declared.capped
    if per_user is not None:
        without = per_user.without_user(np.asarray(columns[per_user.field], dtype=np.object_))
        had = events - int(without.sum())
        said = f"{had:,} of {events:,} events of a sample have a user in {per_user.field}"
        yield _found(f"{what}.privacy.unit.user", had, events, said, "no_user")
    if (where := declared.where) is not None:
        matching = int(where.matches({field: columns[field] for field in where.fields}).sum())
        said = f"{matching:,} of {events:,} events of a sample match {where}"
        state: State = "ok" if matching else "warn"
        remedy = "" if matching else "; correct the condition unless such events are rare"
        public = "" if matching else f"no event of a sample matches {where}{remedy}"
        yield Finding(f"{what}.where", state, said + remedy, exact=True, public=public)


def _keys(what: str, keys: KeyField, column: Sequence[Any]) -> Finding:
    events, had = len(column), sum(key is not None for key in column)
    places = keys.places(column)
    listed = int(((places >= 0) & (places < len(keys.names))).sum())
    said = f"{had:,} of {events:,} events of a sample have {keys.field}; {listed:,} are on the list"
    if not keys.other:
        return _found(what, listed, events, said, "unknown_key")
    said += ", the rest counts as other"
    if not listed:
        remedy = "correct keys.field or keys.list"
        public = f"no event of a sample has a {keys.field} on the list; {remedy}"
        return Finding(what, "warn", f"{said}; {remedy}", exact=True, public=public)
    return Finding(what, "ok", said, exact=True)


def _found_keys(what: str, keys: KeyField, column: Sequence[Any]) -> Finding:
    """Return how many events have a key that may be found; which keys these are stays secret."""
    named, events = sum(map(bool, key_names(column))), len(column)
    said = f"{named:,} of {events:,} events of a sample have a key in {keys.field}"
    if not named:
        public = f"no event of a sample has a key in {keys.field}; correct keys.field"
        return Finding(what, "warn", f"{said}; correct keys.field", exact=True, public=public)
    return Finding(what, "ok", f"{said}, the rest counts as other", exact=True)


def _values(what: str, axis: Buckets | Amounts, column: Sequence[Any]) -> Finding:
    """Return how many values are numbers, and how many of them lie within the declared range."""
    values = numbers(column)
    values = values[~np.isnan(values)]
    inside = int(((values >= float(axis.low)) & (values <= float(axis.high))).sum())
    low, high = in_decimals(axis.low), in_decimals(axis.high)
    said = f"{len(values):,} of {len(column):,} events of a sample have a number in {axis.field}; "
    said += f"{inside:,} are from {low} to {high}, the others count at the nearer end"
    if len(values) and inside < _FEW * len(values):
        cost = "choosing min and max by the events has a cost that epsilon does not cover"
        return Finding(what, "warn", f"{said}; widen the range ({cost})", exact=True)
    return _found(what, len(values), len(column), said, "bad_value")


def _found(what: str, good: int, events: int, said: str, reason: str) -> Finding:
    """Return a finding about events that a stream refuses unless they are good."""
    if good == events:
        return Finding(what, "ok", said, exact=True)
    if not good:
        said = f"{said}; correct the field, or no event is counted ({reason})"
        return Finding(what, "fail", said, exact=True)
    return Finding(what, "warn", f"{said}; the rest is refused ({reason})", exact=True)
