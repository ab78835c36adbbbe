"""The client's answers: values with their errors, as plain data, arrays or data frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas
    import polars

FloatArray = NDArray[np.float64]
TimeArray = NDArray[np.datetime64]

Answer = TypeVar("Answer")

_BANDS = ("stderr", "count_lower", "count_upper", "lower", "upper")  # of a window; null if unknown


@dataclass(frozen=True, slots=True)
class _Estimate:
    """An unbiased estimate for the bins from ``start`` to ``end`` (RFC 3339), with its interval."""

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
    counted: str = "events"
    meaning: str = ""
    intervals: str = ""

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Self:
        """Read the service's answer."""
        lower, upper = answer["interval"]
        return _taken(cls, answer, lower=lower, upper=upper)


class Count(_Estimate):
    """The best current estimate of the events in the bins from ``start`` to ``end`` (RFC 3339).

    ``counted`` says what the numbers are of, for example "users first seen in this range, once in each of its
    3 epochs". ``meaning`` says what the stream counts, and ``intervals`` what its intervals are for; both are
    empty if the service is too old to say so. All other answers have these two as well.
    Guarantee: ``value`` is unbiased; [lower, upper] holds the true number with at least ``confidence``.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """A stream in short: what it counts and how much so far.

    Args: running, from the stream's start; None before the first release. this_epoch, the users first seen in
        the last epoch with a release; None for streams of events. Words as of a ``Count``.
    """

    stream: str
    source: str
    epsilon: str
    bin: str
    timezone: str | None
    start: str
    released_until: str | None
    seq: int
    private: bool
    running: Count | None
    this_epoch: Count | None
    counted: str = ""
    meaning: str = ""
    intervals: str = ""

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Summary:
        """Read the service's answer."""
        whole = {"end": answer["released_until"]}
        parts = {"running": answer["running"], "this_epoch": answer.get("this_epoch")}
        counts = {name: part and Count.of(answer | whole | part) for name, part in parts.items()}
        return _taken(cls, answer, **counts)


class Total(_Estimate):
    """The sum of the amounts in the bins from ``start`` to ``end``, each clamped to the declared range.

    ``counted``, ``meaning`` and ``intervals`` are words, as of a ``Count``.

    Guarantee: ``value`` is unbiased; [lower, upper] holds the true sum with at least ``confidence``.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of the amounts in the bins from ``start`` to ``end``, each clamped to the declared range.

    ``counted``, ``meaning`` and ``intervals`` are words, as of a ``Count``.

    Guarantee: [lower, upper] holds the true mean with at least ``confidence``. ``value`` is None if the
        estimated count is not above 0.
    """

    value: float | None
    lower: float
    upper: float
    confidence: float
    start: str
    end: str
    released_until: str | None
    seq: int
    private: bool
    counted: str = ""
    meaning: str = ""
    intervals: str = ""

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Mean:
        """Read the service's answer."""
        lower, upper = answer["interval"]
        return _taken(cls, answer, lower=lower, upper=upper)


class _Framed:
    """An answer's arrays as columns of equal length, which can be converted to data frames."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns().values())))

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas frame; times are UTC. Raises: ImportError without the extra ``frames``."""
        import pandas

        frame = pandas.DataFrame(self.columns())
        for name in self._times():
            frame[name] = frame[name].dt.tz_localize("UTC")
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Return a polars frame; times are UTC. Raises: ImportError without the extra ``frames``."""
        import polars

        times = [polars.col(name).dt.replace_time_zone("UTC") for name in self._times()]
        return polars.DataFrame(self.columns()).with_columns(times)

    def _times(self) -> list[str]:
        return [name for name, column in self.columns().items() if column.dtype.kind == "M"]


@dataclass(frozen=True, slots=True, eq=False)
class Series(_Framed):
    """Columns of equal length, shape (points,): the range that each point counts, its value and its error.

    ``start`` and ``end`` are datetime64[us] in UTC. Each interval holds for its own point with at least
    ``confidence``, not for the worst of many. ``counted`` says what sums and means
    are of. A mean has no ``stderr`` (NaN), and no ``value`` (NaN) where the estimated count is not above 0.
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
    meaning: str = ""
    intervals: str = ""
    counted: str = ""

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Series:
        """Read the service's answer."""
        stderr = answer.get("stderr", [None] * len(answer["value"]))
        return _taken(
            cls,
            answer | {"stderr": stderr},
            start=_instants(answer["start"]),
            end=_instants(answer["end"]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Cdf(_Framed):
    """Cumulative counts of a value over a range of time, shape (buckets,): events below each ``upto``.

    Guarantee: ``value`` is unbiased; all true counts at once lie between ``lower`` and ``upper`` with at
        least ``confidence``. ``consistent`` are the nearest whole counts that never fall; biased.
    """

    upto: FloatArray
    value: FloatArray
    stderr: FloatArray
    lower: FloatArray
    upper: FloatArray
    consistent: NDArray[np.int64]
    key: str | None
    start: str
    end: str
    confidence: float
    seq: int
    private: bool
    meaning: str = ""
    intervals: str = ""

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Cdf:
        """Read the service's answer."""
        return _taken(cls, answer, consistent=np.array(answer["consistent"], np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Cdfs(_Framed):
    """Cumulative counts of a value from one start to many ends: ``value[end, bucket]`` below each ``upto``.

    They are whole numbers that never decrease over the value or over time, so they are biased. ``end`` is
    datetime64[us] in UTC. A frame has a row for each end and bucket.

    Guarantee: ``stderr`` is the standard error of the unbiased counts, which ``cdf`` returns for one range.
    """

    end: TimeArray
    upto: FloatArray
    value: NDArray[np.int64]
    stderr: FloatArray
    key: str | None
    start: str
    seq: int
    private: bool
    meaning: str = ""
    intervals: str = ""

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Cdfs:
        """Read the service's answer."""
        counts = np.array(answer["counts"], np.int64)
        return _taken(cls, answer, end=_instants(answer["end"]), value=counts)

    def __len__(self) -> int:
        return len(self.end)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name, end by end."""
        ends, buckets = self.value.shape
        places = {"end": np.repeat(self.end, buckets), "upto": np.tile(self.upto, ends)}
        return places | {"value": self.value.ravel(), "stderr": self.stderr.ravel()}


@dataclass(frozen=True, slots=True, eq=False)
class Quantiles(_Framed):
    """Quantiles of a value over a range of time, shape (levels,).

    Guarantee: all true quantiles at once lie in [lower, upper], edges of buckets, with at least
        ``confidence``; the first and the last bucket also count values outside the range.
        ``value`` is NaN where no event is seen; bounds are NaN for a window whose error is not known.
    """

    level: FloatArray
    value: FloatArray
    lower: FloatArray
    upper: FloatArray
    key: str | None
    start: str
    end: str
    confidence: float
    seq: int
    private: bool
    meaning: str = ""
    intervals: str = ""

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Quantiles:
        """Read the service's answer."""
        rows = [(one["q"], one["value"], *(one["interval"] or (None, None))) for one in answer["quantiles"]]
        level, value, lower, upper = np.array(rows, np.float64).reshape(-1, 4).T  # None becomes NaN
        return _taken(cls, answer, level=level, value=value, lower=lower, upper=upper)


@dataclass(frozen=True, slots=True, eq=False)
class Window(_Framed):
    """One tumbling window, shape (buckets,): its released histogram and the cumulative counts.

    ``place`` identifies each count: the end of its bucket of the value, its key, or its rank if the counts
    are ``sorted``.

    Guarantee: each band, ``count_lower`` to ``count_upper`` and ``lower`` to ``upper``, holds all counts of
        its curve at once with at least ``confidence``. Where the mechanism's error depends on the data, all
        errors are NaN. ``consistent`` are the nearest whole cumulative counts that never fall; biased.
    """

    place: NDArray[Any]
    count: FloatArray
    stderr: FloatArray
    count_lower: FloatArray
    count_upper: FloatArray
    cumulative: FloatArray
    lower: FloatArray
    upper: FloatArray
    consistent: NDArray[np.int64]
    quantiles: Quantiles
    mechanism: str
    epsilon: str
    sorted: bool
    earlier: str | None
    later: str | None
    key: str | None
    start: str
    end: str
    confidence: float
    seq: int
    private: bool
    note: str
    meaning: str = ""
    intervals: str = ""

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Window:
        """Read the service's answer."""
        size = len(answer["count"])
        unknown = {name: np.full(size, np.nan) for name in _BANDS if answer[name] is None}
        return _taken(
            cls,
            answer,
            place=np.array(answer["upto"] or answer["keys"] or range(1, size + 1)),
            consistent=np.array(answer["consistent"], np.int64),
            quantiles=Quantiles.of(answer),
            **unknown,
        )

    @property
    def known(self) -> bool:
        """Whether the errors are known, because they do not depend on the data."""
        return not bool(np.isnan(self.stderr).any())


@dataclass(frozen=True, slots=True)
class Release:
    """One released bin, exactly as the service sent it.

    ``value`` and its interval are the running count as first published, over all cells of the bin; the
    interval is None for a bin of several cells, whose errors the row gives one by one. ``private`` is what
    the service said last about the source, as in every answer. ``row`` is the parsed message; its
    ``not_private`` is the stream's own setting. ``counted`` says since when users are counted.
    """

    seq: int
    start: str
    end: str
    value: float
    interval: tuple[float, float] | None
    private: bool
    row: dict[str, Any]
    meaning: str = ""
    counted: str = ""

    @classmethod
    def of(cls, row: dict[str, Any], private: bool | None = None) -> Release:
        """Read one row. Args: private, the service's latest statement; None: use the row's own."""
        own = not row["not_private"] if "not_private" in row else bool(row["private"])  # older rows
        intervals = row["interval"]
        return cls(
            seq=row["seq"],
            start=row["start"],
            end=row["end"],
            value=float(sum(row["estimate"])),
            interval=(intervals[0][0], intervals[0][1]) if len(intervals) == 1 else None,
            private=own and private is not False,
            row=row,
            meaning=row.get("meaning", ""),
            counted=row.get("counted", ""),
        )


def _instants(seconds: list[float]) -> TimeArray:
    # Converted through integers, because a float of seconds since 1970 needs rounding to microseconds.
    return np.rint(np.array(seconds, np.float64) * 1e6).astype(np.int64).astype("datetime64[us]")


def _taken(cls: Callable[..., Answer], answer: dict[str, Any], **made: Any) -> Answer:
    """Return a service's answer as an object of a dataclass. A list becomes a column of floats.

    Args: made, the fields that are not taken from the answer as they are.
    """
    own = [one for one in fields(cls) if one.name not in made]  # type: ignore[arg-type]
    # A field with a default is one that older services do not send.
    given = [one.name for one in own if one.default is MISSING or one.name in answer]
    return cls(**made, **{name: _column(answer[name]) for name in given})


def _column(value: Any) -> Any:
    return np.array(value, np.float64) if isinstance(value, list) else value
