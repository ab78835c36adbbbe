"""Whether a sample of a log shows that a stream's cap per user leaves out many events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dphist.arrays import BoolArray
from stream_app.config import SourceSettings, StreamSettings
from stream_app.core.counting.bounding import LeftOut, Owner, left_out
from stream_app.core.counting.read_values import users_in
from stream_app.core.declaration import Declaration
from stream_app.core.incoming import RecordBatch
from stream_app.core.records import EpochRecord
from stream_app.sources.decode import TimeField
from stream_app.sources.finished_files import open_sample
from stream_app.sources.lines import LINE_END, MOST_BYTES
from stream_app.sources.times import TimeFormat
from stream_app.wiring.checks import Finding
from stream_app.wiring.event_logs import file_format, other_fields, time_field

MUCH = 0.05


def file_sample(
    stream: StreamSettings, time_format: TimeFormat | None = None, *, newest: bool = False
) -> RecordBatch | None:
    """Return the first records of a stream's file or list of files; None if there are none, or another log.

    Args: time_format, of the time field; None for the stream's; newest, whether to read the last records.
    Raises: OperatorError if the file cannot be read.
    """
    if not isinstance(stream.source, SourceSettings):
        return None
    file, others = stream.source.file, other_fields([stream])
    time = time_field(stream)
    time = TimeField(time.path, time_format or time.format, time.zone)
    replayed = stream.declared.source.replay is not None
    with open_sample(file, file_format(stream), time, others, replayed, newest=newest) as lines:
        start, size = lines.first_position, lines.stat().st_size
        end = lines.after_last_line(start)
        if newest and end - start > MOST_BYTES:
            start = end - MOST_BYTES
            start += lines.bytes_at(start, MOST_BYTES).find(LINE_END) + 1
        found = lines.read(start, end) if newest else lines.first_records()
        if found is None and replayed and size > start:
            return lines.unfinished_line(start, size)  # the only one
        return found


def matching(declared: Declaration, columns: Mapping[str, Any]) -> BoolArray:
    """Return which records of a sample match the stream's condition, shape (n,)."""
    if declared.where is None:
        return np.ones(len(columns[declared.time.field]), dtype=np.bool_)
    return declared.where.matches(columns)


def cap_findings(stream: StreamSettings, columns: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a warning if the caps leave out more than a few per cent of a sample, and each cap's share.

    The warning says nothing else about the sample. A sample that covers only a part of an epoch shows less
    than the whole epoch would, so no warning is no proof.
    Args: columns of the sample, by field.
    """
    found, what = sample_left_out(stream, columns), f"streams.{stream.name}.privacy.unit"
    if found is None:
        return
    is_much = found.together > MUCH
    if is_much:
        yield Finding(what, "warn", _warning(stream, found), exact=True)
    yield Finding(what, "warn" if is_much else "ok", _shares(stream, found), exact=True)


def _warning(stream: StreamSettings, found: LeftOut) -> str:
    caps = stream.declared.privacy.caps
    much = [name for name, share in found.alone.items() if share > MUCH] or list(found.alone)
    named = " and ".join(f"{name} {getattr(caps, name):,}" for name in much)
    one = len(much) == 1
    leaves, it = ("leaves", "it") if one else ("leave", "them")
    number = "the number is public and tells" if one else "the numbers are public and tell"
    shorter = "" if stream.declared.period else ", or shorten time.epoch"
    return (
        f"in a sample of the events, {named} {leaves} out more than {MUCH:.0%} of "
        f"them; raise {it}{shorter}. Choosing {it} by the events has a cost: {number} "
        "something about them, and epsilon does not cover that"
    )


def sample_left_out(stream: StreamSettings, columns: Mapping[str, Any]) -> LeftOut | None:
    """Return the shares of a sample that caps leave out; None without caps, or if no record could count."""
    found = records_of_users(stream, columns)
    per_user = stream.declared.capped
    return None if found is None or per_user is None else left_out(*found, per_user.caps)


def records_of_users(
    stream: StreamSettings, columns: Mapping[str, Any]
) -> tuple[list[Owner], list[int]] | None:
    """Return the cap window and user of each record of a sample that could count, and its key, bin by bin.

    None without caps, or if no record could count.
    """
    declared, per_user = stream.declared, stream.declared.capped
    if per_user is None or declared.count == "users":
        return None
    of_user = np.asarray(columns[per_user.field], dtype=np.object_)
    places, refused = declared.cells.assign(columns, slice(0, len(of_user)))
    named = matching(declared, columns) & ~per_user.without_user(of_user)
    for mask in refused.values():
        named &= ~mask
    bins = declared.time.binning.bin_of(np.asarray(columns[declared.time.field]))[named]
    if not len(bins):
        return None
    first = int(bins.min()) if declared.time.first_us is None else declared.first_bin(0)
    horizon = declared.time.epoch_bins
    windows = declared.cap_windows(EpochRecord(0, first, horizon, 1, ""), horizon).of(bins)
    owners = zip(windows.tolist(), users_in(of_user[named].tolist()), strict=True)
    in_order, keys = np.argsort(bins, kind="stable"), places[named] // declared.cells.key_places
    each = list(owners)
    return [each[record] for record in in_order.tolist()], keys[in_order].tolist()


def _shares(stream: StreamSettings, found: LeftOut) -> str:
    caps = stream.declared.privacy.caps
    each = [f"{name} {getattr(caps, name):,}: {share:.1%}" for name, share in found.alone.items()]
    alone = ", ".join(each)
    together = f"; all of them: {found.together:.1%}" if len(each) > 1 else ""
    return f"of the events of a sample the caps leave out: {alone}{together}"
