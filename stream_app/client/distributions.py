"""The client's answers about a value: cumulative counts, quantiles, and tumbling windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_app.client.columns import FloatArray, Framed, Gap, TimeArray

_BANDS = ("stderr", "count_lower", "count_upper", "lower", "upper")  # of a window; null if unknown


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _OverTime(Framed):
    """An answer for the events of one range of time; with ``key``, for those of this key."""

    key: str | None
    start: str
    end: str
    confidence: float
    unmeasured: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Cdf(_OverTime):
    """Cumulative counts of a value over a range of time, shape (buckets,): events below each ``upto``.

    Guarantee: ``value`` is unbiased; all true counts at once lie between ``lower`` and ``upper`` with at
        least ``confidence``. ``consistent`` are the nearest whole counts that never fall and lie in the
        band; biased.
    """

    upto: FloatArray
    value: FloatArray
    stderr: FloatArray
    lower: FloatArray
    upper: FloatArray
    consistent: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Cdfs(Framed):
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

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Cdfs:
        """Read the service's answer."""
        return cls.taken(answer | {"value": answer["counts"]})

    def __len__(self) -> int:
        return len(self.end)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name, end by end."""
        ends, buckets = self.value.shape
        places = {"end": np.repeat(self.end, buckets), "upto": np.tile(self.upto, ends)}
        return places | {"value": self.value.ravel(), "stderr": self.stderr.ravel()}


@dataclass(frozen=True, slots=True, eq=False)
class Quantiles(_OverTime):
    """Quantiles of a value over a range of time, shape (levels,).

    Guarantee: all true quantiles at once lie in [lower, upper], edges of buckets, with at least
        ``confidence``; the first and the last bucket also count values outside the range.
        ``value`` is NaN where no event is seen; bounds are NaN for a window whose error is not known.
    """

    level: FloatArray
    value: FloatArray
    lower: FloatArray
    upper: FloatArray

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Quantiles:
        """Read the service's answer."""
        rows = [(one["q"], one["value"], *(one["interval"] or (None, None))) for one in answer["quantiles"]]
        level, value, lower, upper = np.array(rows, np.float64).reshape(-1, 4).T  # None becomes NaN
        columns = {"level": level, "value": value, "lower": lower, "upper": upper}
        return cls.taken(answer, **columns)


@dataclass(frozen=True, slots=True, eq=False)
class Window(_OverTime):
    """One tumbling window, shape (buckets,): its released histogram and the cumulative counts.

    ``place`` identifies each count: the end of its bucket of the value, its key, or its rank if the counts
    are ``sorted``. A window is measured whole, so ``unmeasured`` is empty.

    Guarantee: each band, ``count_lower`` to ``count_upper`` and ``lower`` to ``upper``, holds all counts of
        its curve at once with at least ``confidence``. Where the mechanism's error depends on the data, all
        errors are NaN. ``consistent`` are the nearest whole cumulative counts that never fall and lie in
        the band; biased.
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
    note: str

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Window:
        """Read the service's answer."""
        size = len(answer["count"])
        unknown = {name: np.full(size, np.nan) for name in _BANDS if answer[name] is None}
        place = np.array(answer["upto"] or answer["keys"] or range(1, size + 1))
        return cls.taken(answer, place=place, quantiles=Quantiles.of(answer), **unknown)

    @property
    def known(self) -> bool:
        """Whether the errors are known, because they do not depend on the data."""
        return not bool(np.isnan(self.stderr).any())
