"""Compares what a stream declares with a sample of events: its fields, its caps, and what an epoch can hold.

For the operator only: the numbers are exact.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dphist.arrays import BoolArray
from dphist.planning.report import in_decimals
from dphist.product.columns import MOST_WEIGHT
from dphist.toeplitz.counter import MOST_EVENTS
from stream_app.config import StreamSettings
from stream_app.core.counting.bounding import LeftOut, Owner, left_out
from stream_app.core.counting.cells import Amounts, Buckets
from stream_app.core.counting.keys import KeyField, normalised
from stream_app.core.counting.read_values import numbers, users_in
from stream_app.core.counting.unlisted import key_names
from stream_app.core.declaration import Declaration
from stream_app.core.meaning import span
from stream_app.core.records import EpochRecord
from stream_app.wiring.checks import Finding, State

_FEW = 0.95  # with less in the list or the range, the operator should look at the declaration again
MUCH_LEFT_OUT = 0.05  # by caps
MUCH_FILLED = 0.1  # of what an epoch holds
CHOOSING_IT = (
    "Choosing it by the events has a cost: the number is public and tells something about the events, and "
    "epsilon does not cover that"
)
CHOOSING_THEM = CHOOSING_IT.replace("it by", "them by").replace(
    "number is public and tells", "numbers are public and tell"
)


def field_findings(stream: StreamSettings, columns: Mapping[str, Any], events: int) -> Iterator[Finding]:
    """Yield a finding for each field that decides what counts: how many of the events have it, and where."""
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
        had = sum(map(bool, users_in(columns[per_user.field])))
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


def _matching(declared: Declaration, columns: Mapping[str, Any]) -> BoolArray:
    """Return which records of a sample match the stream's condition, shape (n,)."""
    if declared.where is None:
        return np.ones(len(columns[declared.time.field]), dtype=np.bool_)
    return declared.where.matches(columns)


def cap_findings(stream: StreamSettings, columns: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a warning if the caps leave out more than a few per cent of a sample, and each cap's share.

    The warning says nothing else about the sample. A sample that covers only a part of an epoch shows less
    than the whole epoch would, so no warning is no proof.
    """
    records, per_user, what = (
        records_of_users(stream, columns),
        stream.declared.capped,
        f"streams.{stream.name}.privacy.unit",
    )
    if records is None or per_user is None:
        return
    found = left_out(*records, per_user.caps)
    is_much = found.together > MUCH_LEFT_OUT
    if is_much:
        yield Finding(what, "warn", _warning(stream, found), exact=True)
    yield Finding(what, "warn" if is_much else "ok", _shares(stream, found), exact=True)


def _warning(stream: StreamSettings, found: LeftOut) -> str:
    caps = stream.declared.privacy.caps
    much = [name for name, share in found.alone.items() if share > MUCH_LEFT_OUT] or list(found.alone)
    named = " and ".join(f"{name} {getattr(caps, name):,}" for name in much)
    leaves, it, cost = ("leaves", "it", CHOOSING_IT) if len(much) == 1 else ("leave", "them", CHOOSING_THEM)
    shorter = ", or shorten time.epoch" if span(stream.declared) == "epoch" else ""
    return (
        f"in a sample of the events, {named} {leaves} out more than {MUCH_LEFT_OUT:.0%} of them; raise "
        f"{it}{shorter}. {cost}"
    )


def records_of_users(
    stream: StreamSettings, columns: Mapping[str, Any]
) -> tuple[list[Owner], list[Hashable]] | None:
    """Return the cap window and user of each record of a sample that could count, and its key, bin by bin.

    Keys that no list names are apart, as their caps are. None without caps, or if no record could count.
    """
    declared, per_user = stream.declared, stream.declared.capped
    if per_user is None or declared.count == "users":
        return None
    of_user = np.array(users_in(columns[per_user.field]), dtype=object)
    places, refused = declared.cells.assign(columns, slice(0, len(of_user)))
    named = _matching(declared, columns) & (of_user != "")
    for mask in refused.values():
        named &= ~mask
    bins = declared.time.binning.bin_of(np.asarray(columns[declared.time.field]))[named]
    if not len(bins):
        return None
    first = int(bins.min()) if declared.time.first_us is None else declared.first_bin(0)
    horizon = declared.time.epoch_bins
    windows = declared.cap_windows(EpochRecord(0, first, horizon, 1, ""), horizon).of(bins)
    owners = zip(windows.tolist(), of_user[named].tolist(), strict=True)
    keys: list[Hashable] = (places[named] // declared.cells.key_places).tolist()
    if declared.keys is not None and declared.finds_keys:
        column = np.asarray(columns[declared.keys.field], dtype=object)[named].tolist()
        names = key_names(normalised(declared.keys.normalise, column))
        other, pairs = len(declared.keys.labels), zip(names, keys, strict=True)
        keys = [name if name and key == other else key for name, key in pairs]
    each, in_order = list(owners), np.argsort(bins, kind="stable").tolist()
    return [each[record] for record in in_order], [keys[record] for record in in_order]


def _shares(stream: StreamSettings, found: LeftOut) -> str:
    caps = stream.declared.privacy.caps
    each = [f"{name} {getattr(caps, name):,}: {share:.1%}" for name, share in found.alone.items()]
    alone = ", ".join(each)
    together = f"; all of them: {found.together:.1%}" if len(each) > 1 else ""
    return f"of the events of a sample the caps leave out: {alone}{together}"


def filling_findings(stream: StreamSettings, columns: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a warning if an epoch at the rate of a sample fills a tenth of what it holds.

    The warning says nothing else about the sample. A busier time than the sample's fills more.
    """
    declared = stream.declared
    times_us = np.asarray(columns[declared.time.field])[_matching(declared, columns)]
    if len(times_us) < 2 or (declared.amounts is None and declared.privacy.delta is None):
        return  # an epoch of other counts holds 2^44
    most, setting, holder, coarser = MOST_EVENTS, "time.epoch", "counts", ""
    if declared.amounts is not None:
        most, setting, holder = MOST_WEIGHT // declared.cells.weight, "sum.unit", "sum"
        coarser = "a coarser sum.unit, a narrower range or "
    span_us = max(int(np.ptp(times_us)), 1)
    if len(times_us) / span_us * declared.time.epoch_bins * declared.time.bin_us <= MUCH_FILLED * most:
        return
    said = (
        f"at the rate of a sample of the events, an epoch fills more than {MUCH_FILLED:.0%} of the {most:,} "
        f"events that its {holder} can hold, and the stream stops when it is full; take {coarser}a shorter "
        f"time.epoch. {CHOOSING_THEM}"
    )
    yield Finding(f"streams.{stream.name}.{setting}", "warn", said, exact=True)
