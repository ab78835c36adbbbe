"""What a client hands out: values with their errors, as plain data, arrays or frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas
    import polars

FloatArray = NDArray[np.float64]
TimeArray = NDArray[np.datetime64]


@dataclass(frozen=True, slots=True)
class Count:
    """Events in the bins from ``start`` to ``end`` (RFC 3339), as well as they are known.

    Guarantee: ``value`` is unbiased; [lower, upper] holds the true count with at least ``confidence``.
    """

    value: float
    stderr: float
    lower: float
    upper: float
    confidence: float
    start: str
    end: str
    released_until: str | None
    seq: int
    private: bool

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Count:
        """Read the service's answer."""
        lower, upper = answer["interval"]
        same = ("value", "stderr", "confidence", "start", "end", "released_until", "seq", "private")
        return cls(lower=lower, upper=upper, **{name: answer[name] for name in same})


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Columns of equal length, shape (points,): the range that each point counts, its value and its error.

    ``start`` and ``end`` are datetime64[us] in UTC. Each interval holds for its own point with at least
    ``confidence``, not for the worst of many.
    """

    start: TimeArray
    end: TimeArray
    value: FloatArray
    stderr: FloatArray
    lower: FloatArray
    upper: FloatArray
    confidence: float
    seq: int
    private: bool
    downsampled: bool
    note: str

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Series:
        """Read the service's answer."""
        columns: dict[str, Any] = {name: _instants(answer[name]) for name in ("start", "end")}
        for name in ("value", "stderr", "lower", "upper"):
            columns[name] = np.array(answer[name], np.float64)
        same = ("confidence", "seq", "private", "downsampled", "note")
        return cls(**columns, **{name: answer[name] for name in same})

    def __len__(self) -> int:
        return len(self.value)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name."""
        return {name: getattr(self, name) for name in ("start", "end", "value", "stderr", "lower", "upper")}

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas frame; times are UTC. Raises: ImportError without the extra ``frames``."""
        import pandas

        frame = pandas.DataFrame(self.columns())
        for name in ("start", "end"):
            frame[name] = frame[name].dt.tz_localize("UTC")
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Return a polars frame; times are UTC. Raises: ImportError without the extra ``frames``."""
        import polars

        times = [polars.col(name).dt.replace_time_zone("UTC") for name in ("start", "end")]
        return polars.DataFrame(self.columns()).with_columns(times)


@dataclass(frozen=True, slots=True)
class Release:
    """One released bin: what became visible, exactly as the service sent it.

    ``value`` and its interval are the running count as first published, over all cells of the bin; the
    interval is None for a bin of several cells, whose errors the row gives one by one. ``row`` is the
    parsed message.
    """

    seq: int
    start: str
    end: str
    value: float
    interval: tuple[float, float] | None
    private: bool
    row: dict[str, Any]

    @classmethod
    def of(cls, row: dict[str, Any]) -> Release:
        """Read one row."""
        intervals = row["interval"]
        return cls(
            seq=row["seq"],
            start=row["start"],
            end=row["end"],
            value=float(sum(row["estimate"])),
            interval=(intervals[0][0], intervals[0][1]) if len(intervals) == 1 else None,
            private=row["private"],
            row=row,
        )


def _instants(seconds: list[float]) -> TimeArray:
    # Through integers: a float of seconds since 1970 holds its microseconds only after rounding.
    return np.rint(np.array(seconds, np.float64) * 1e6).astype(np.int64).astype("datetime64[us]")
