"""How the client's answers are read, and how they become columns and data frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas
    import polars

FloatArray = NDArray[np.float64]
TimeArray = NDArray[np.datetime64]

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Gap:
    """A time between two epochs, RFC 3339, that was never measured: its events are in no count."""

    start: str
    end: str

    @classmethod
    def all_of(cls, answer: dict[str, Any]) -> tuple[Gap, ...]:
        """Return what an answer says was not measured; nothing if the service is too old to say it."""
        return tuple(cls(gap["start"], gap["end"]) for gap in answer.get("unmeasured", ()))


class Framed:
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


def instants(seconds: list[float]) -> TimeArray:
    """Return seconds since 1970 as datetime64[us]."""
    # Converted through integers, because a float of seconds since 1970 needs rounding to microseconds.
    return np.rint(np.array(seconds, np.float64) * 1e6).astype(np.int64).astype("datetime64[us]")


def taken(cls: Callable[..., Answer], answer: dict[str, Any], **made: Any) -> Answer:
    """Return a service's answer as an object of a dataclass. A list becomes a column of floats.

    Args: made, the fields that are not taken from the answer as they are.
    """
    own = [one for one in fields(cls) if one.name not in made]  # type: ignore[arg-type]
    # A field with a default is one that older services do not send.
    given = [one.name for one in own if one.default is MISSING or one.name in answer]
    return cls(**made, **{name: _column(answer[name]) for name in given})


def _column(value: Any) -> Any:
    return np.array(value, np.float64) if isinstance(value, list) else value
