"""How the client's answers are read, and how they become columns and data frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

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


def instants(seconds: list[float]) -> TimeArray:
    """Return seconds since 1970 as datetime64[us]."""
    # Converted through integers, because a float of seconds since 1970 needs rounding to microseconds.
    return np.rint(np.array(seconds, np.float64) * 1e6).astype(np.int64).astype("datetime64[us]")


class Answered:
    """A dataclass that is read from an answer of the service: every field by its name and its type."""

    __slots__ = ()

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Self:
        """Read the service's answer."""
        return cls.taken(answer)

    @classmethod
    def taken(cls, answer: dict[str, Any], **made: Any) -> Self:
        """Read an answer. Args: made, the fields that are not taken from the answer as they are."""
        known = {one.name: one for one in fields(cls)}  # type: ignore[arg-type]
        if "interval" in answer and "lower" in known:
            made |= zip(("lower", "upper"), answer["interval"], strict=True)
        if "unmeasured" in known:
            made.setdefault("unmeasured", Gap.all_of(answer))
        # A field with a default is one that older services do not send.
        own = {
            name: _read(one.type, answer[name])
            for name, one in known.items()
            if name not in made and (name in answer or _is_required(one))
        }
        return cls(**made, **own)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Framed(Answered):
    """An answer whose arrays are columns of equal length, for data frames."""

    seq: int
    private: bool
    meaning: str = ""
    intervals: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.columns().values())))

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
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


# How the array of a field is read, by the field's type as it is written.
ARRAYS: Mapping[str, Callable[[Any], NDArray[Any]]] = {
    "TimeArray": instants,
    "FloatArray": partial(np.array, dtype=np.float64),
    "NDArray[np.int64]": partial(np.array, dtype=np.int64),
}


def _is_required(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _read(kind: Any, value: Any) -> Any:
    """Return a value of an answer for a field. Args: kind, the field's type, as a text."""
    return ARRAYS[kind](value) if kind in ARRAYS else value
