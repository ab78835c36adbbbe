"""Fields that answers share: the release, the keys asked for, a number with its error; and refusals."""

from __future__ import annotations

from pydantic import BaseModel, Field

from stream_app.core.kinds.tables import SeriesKind


def absent(value: object) -> bool:
    """Return whether an answer leaves a field out."""
    return value is None


class Released(BaseModel):
    """The fields of every answer about a stream."""

    stream: str
    generation: int | None = Field(
        default=None,
        exclude_if=absent,
        description="which generation of the stream answers: its settings have changed so often, less one. "
        "Absent: the first one",
    )
    private: bool = Field(
        description="false if this stream, another one over its source, or all together protect nobody"
    )
    released_until: str | None = Field(description="end of the last released bin, RFC 3339")
    seq: int = Field(
        description="released bins of this generation so far; all of the answer but private is a pure "
        "function of it"
    )
    meaning: str = Field(description="what the stream counts, in words; a cap per user leaves events out")
    intervals: str = Field(description="what the stream's intervals are for, in words")


class OfGeneration(BaseModel):
    """Where a stream's generation began; absent for the first one."""

    generation_start: str | None = Field(
        default=None,
        exclude_if=absent,
        description="start of its first bin, RFC 3339, if it is not the first",
    )
    changes: str | None = Field(
        default=None,
        exclude_if=absent,
        description="what differs from the generation before, in a sentence",
    )


class AboutKeys(Released):
    """The fields of an answer about a group of keys; other answers leave them out."""

    keys: list[str] | None = Field(
        default=None, exclude_if=absent, description="of a group: the names as asked; key then joins them"
    )
    not_keys: list[str] | None = Field(
        default=None, exclude_if=absent, description="of a group: the names that are left out of all keys"
    )


class EstimatedCount(BaseModel):
    """A count with its error."""

    value: float = Field(description="unbiased estimate; may be negative or fractional")
    stderr: float
    interval: tuple[float, float] = Field(description="holds the true number with at least this confidence")
    confidence: float


class Gap(BaseModel):
    """A time between two epochs, RFC 3339: its events are in no count."""

    start: str
    end: str


class PartlyMeasured(BaseModel):
    """What an answer about a range does not hold."""

    unmeasured: list[Gap] = Field(
        default=[],
        description="parts of the range that no epoch measured, or that had another list of keys; the answer "
        "holds the other bins",
    )


class OfRange(AboutKeys, PartlyMeasured):
    """One number of the bins from start to end."""

    counted: str = Field(description="what value and interval are of, in words: events")
    key: str | None = Field(default=None, description="key that the number is of; null: all keys")
    start: str
    end: str


class OfPoints(AboutKeys):
    """Columns of equal length, an entry for each point. Instants are seconds since 1970."""

    key: str | None = None
    kind: SeriesKind
    step: int
    window: int | None
    confidence: float
    start: list[float] = Field(description="start of the range that each point is of")
    end: list[float] = Field(description="end of the range that each point is of")
    lower: list[float]
    upper: list[float]
    days: int | None = Field(default=None, description="calendar days of each point; null: step bins each")
    months: int | None = Field(default=None, exclude_if=absent, description="calendar months of each point")
    timezone: str | None = Field(default=None, description="time zone of these days or months")
    inner: list[list[float]] | None = Field(
        default=None, exclude_if=absent, description="half widths of the 80 and of the 50 % intervals"
    )
    points_available: int
    downsampled: bool
    note: str = Field(description="what was omitted, if anything, and what the intervals do not promise")


class Health(BaseModel):
    """Whether this process is alive, or ready to answer."""

    status: str


class ErrorAnswer(BaseModel):
    """One line: what, where, remedy."""

    error: str
    parameter: str | None = None
    nearest: list[str] | None = Field(default=None, description="the nearest acceptable times")
