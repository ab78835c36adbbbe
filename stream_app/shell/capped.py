"""Whether a sample of a log shows that a stream's cap per user leaves out many events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dphist.arrays import BoolArray
from stream_app.config import SourceSettings, StreamSettings
from stream_app.core.counting.bounding import CapWindows, share_left_out
from stream_app.core.declaration import Declaration
from stream_app.core.records import RecordBatch
from stream_app.sources.decode import TimeField
from stream_app.sources.file_list import is_list
from stream_app.sources.finished_files import open_sample
from stream_app.sources.times import TimeFormat
from stream_app.wiring.event_logs import file_format, other_fields, time_field

MUCH = 0.05


def file_sample(stream: StreamSettings, time_format: TimeFormat | None = None) -> RecordBatch | None:
    """Return the first records of a stream's file or list of files; None for an empty file or another log.

    Args: time_format, of the time field; None for the stream's.
    Raises: OperatorError if the file cannot be read.
    """
    if not isinstance(stream.source, SourceSettings):
        return None
    file, others = stream.source.file, other_fields([stream])
    if not is_list(file) and not file.stat().st_size:
        return None
    time = time_field(stream)
    time = TimeField(time.path, time_format or time.format)
    with open_sample(file, file_format(stream), time, others) as lines:
        start = lines.first_position
        return lines.read(start, lines.after_last_line(start))


def matching(declared: Declaration, columns: Mapping[str, Any]) -> BoolArray:
    """Return which records of a sample match the stream's condition, shape (n,)."""
    if declared.where is None:
        return np.ones(len(columns[declared.time.field]), dtype=np.bool_)
    return declared.where.matches(columns)


def cap_warning(stream: StreamSettings, columns: Mapping[str, Any]) -> str | None:
    """Return a warning if the cap leaves out more than a few per cent of a sample; None if not.

    The warning says nothing else about the sample. A sample that covers only a part of an epoch shows less
    than the whole epoch would, so no warning is no proof.
    Args: columns of the sample, by field.
    """
    declared, per_user = stream.declared, stream.declared.privacy.per_user
    if per_user is None or declared.count == "users":
        return None
    named = matching(declared, columns) & ~per_user.without_user(
        np.asarray(columns[per_user.field], dtype=np.object_)
    )
    bins = declared.time.binning.bin_of(np.asarray(columns[declared.time.field]))[named]
    if not len(bins):
        return None
    first = int(bins.min()) if declared.time.first_us is None else declared.first_bin(0)
    horizon = declared.time.epoch_bins
    windows = CapWindows(first + horizon - 1, horizon, declared.last_bin).of(bins)
    users = [str(user) for user in np.asarray(columns[per_user.field], dtype=np.object_)[named].tolist()]
    if share_left_out(users, windows, per_user.max_events) <= MUCH:
        return None
    return (
        f"in a sample of the events, max_events {per_user.max_events:,} leaves out more than {MUCH:.0%} of "
        "them; raise it, or shorten time.epoch. Choosing it by the events has a cost: the number is public "
        "and tells something about them, and epsilon does not cover that"
    )
