"""The questions of the API. Fields that are times or lengths state their unit."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.asked_keys import MOST_NAMES, AskedKeys, KeyNameError
from stream_app.core.answers.consistent import Method
from stream_app.core.answers.steps import WEEKDAYS, CalendarStep, check_zone
from stream_app.core.counting.keys import ANY
from stream_app.core.kinds.tables import SeriesKind

Confidence = Annotated[
    float, Field(ge=0.5, le=0.999999, description="probability that the interval holds the true number")
]
# A band takes thousands of runs, some seconds per confidence, and is cached. So only these are offered.
BANDS = (0.5, 0.8, 0.9, 0.95, 0.975, 0.98, 0.99, 0.995, 0.999)


def _of_bands(confidence: float) -> float:
    if confidence not in BANDS:
        known = ", ".join(f"{one:g}" for one in BANDS)
        raise ValueError(f"a band is given at one of {known}; write one of them")
    return confidence


BandConfidence = Annotated[
    float,
    AfterValidator(_of_bands),
    Field(
        json_schema_extra={"enum": list(BANDS)},
        description="probability that the band holds everywhere at once",
    ),
]
Time = Annotated[
    str | None,
    Field(
        description="an edge of a bin: RFC 3339 with an offset, or seconds since 1970",
        examples=["2013-01-01T05:00:00Z", "1357016400"],
    ),
]
View = Literal["unbiased", "first_published", "consistent"]
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

DEFAULT_CONFIDENCE = 0.95
MAX_POINTS = 11_000  # the limit of Grafana and Prometheus for one answer
MOST_MEANS = 400  # points of one answer; each takes 2 to 10 ms
MAX_NODES = 10_000
EVENT_ID = r"^([1-9][0-9]{0,8}:)?[0-9]{1,15}$"
MAX_WHOLE = 2**53  # beyond it a browser's numbers are not exact, and nothing here has so many bins


class NoQuery(BaseModel):
    """The query of a route without parameters; any parameter is refused."""

    model_config = ConfigDict(extra="forbid")


class OverviewQuery(NoQuery):
    """How the page of all streams is shown."""

    table: str | None = Field(default=None, description="given: as a table, for browsers without JavaScript")


def _as_list(value: object) -> object:
    return [] if value is None else [value] if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(_as_list), Field(max_length=MOST_NAMES)]


class RangeQuery(NoQuery):
    """A half-open range of time, for some keys together or for all."""

    start: Time = None
    end: Time = None
    key: Names = Field(
        default=[],
        description="one of the stream's keys; may be repeated, for several together; default: all of them",
    )
    not_key: Names = Field(
        default=[], description="all of the stream's keys but this one; may be repeated; not beside key"
    )

    @property
    def keys_asked(self) -> AskedKeys | None:
        """The asked keys; None for all. Raises: QueryError."""
        try:
            return AskedKeys.of(self.key, self.not_key)
        except KeyNameError as refusal:
            raise QueryError(str(refusal), "not_key") from None

    @property
    def of_group(self) -> bool:
        """Whether the question may be about a group of keys, which costs more than one key."""
        return len(self.key) > 1 or bool(self.not_key) or any(ANY in key for key in self.key)


class CalendarQuery(RangeQuery):
    """A range of time in steps of calendar days or months, or of bins."""

    days: int | None = Field(
        default=None,
        ge=1,
        le=3_660,
        description="calendar days of timezone in a step, in place of bins; 7 begin on Mondays",
    )
    months: int | None = Field(
        default=None,
        ge=1,
        le=120,
        description="calendar months of timezone in a step, in place of bins: 3 are quarters, 12 are years",
    )
    week_start: Weekday | None = Field(
        default=None, description="day on which weeks begin (days=7, 14, ...); default: monday"
    )
    timezone: str | None = Field(
        default=None,
        max_length=80,
        description="time zone of days and months, whose midnights must be edges of bins; default: that of "
        "the stream's bins, or UTC",
    )

    def calendar(self, of_bins: str | None) -> CalendarStep | None:
        """Return the step of days or months; None for a step of bins.

        Args: of_bins, the time zone of the stream's bins.
        Raises: QueryError for an unknown time zone, and for parameters that do not belong together.
        """
        given = self.days or self.months
        for name in ("timezone", "week_start"):
            if getattr(self, name) is not None and given is None:
                raise QueryError(f"{name}: belongs to days; add days=1, or leave {name} out", name)
        if given is None:
            return None
        if self.days and self.months:
            raise QueryError("months: does not stand beside days; leave one of them out", "months")
        if self.week_start is not None and (self.days or 1) % 7:
            raise QueryError(
                "week_start: belongs to weeks; write days=7, or leave week_start out", "week_start"
            )
        weekday = WEEKDAYS.index(self.week_start or "monday")
        zone = check_zone(self.timezone or of_bins or "UTC")
        return CalendarStep(given, "days" if self.days else "months", zone, weekday)


class CountQuery(RangeQuery):
    """A half-open range of time, and the confidence of the interval."""

    confidence: Confidence = DEFAULT_CONFIDENCE


class CdfQuery(RangeQuery):
    """A half-open range of time, and the confidence of the band around all cumulative counts."""

    confidence: BandConfidence = DEFAULT_CONFIDENCE


class QuantileQuery(CdfQuery):
    """The requested quantiles; they come from one band, so all their intervals hold at once."""

    q: list[float] = Field(min_length=1, max_length=100, description="above 0 and below 1; may be repeated")


class PointsQuery(CountQuery):
    """Points over a range; ``step`` and ``window`` are numbers of bins."""

    step: int = Field(default=1, ge=1, le=MAX_WHOLE, description="bins from one point to the next")
    window: int | None = Field(
        default=None, ge=1, le=MAX_WHOLE, description="bins in a window; for kind=window only"
    )
    format: Literal["json", "csv", "arrow"] | None = Field(
        default=None, description="format of the answer; overrides the header Accept"
    )


class SeriesQuery(PointsQuery, CalendarQuery):
    """Counts, or sums, over a range."""

    kind: SeriesKind = Field(
        default="running",
        description="running count, counts of step bins each, or counts of sliding windows of bins",
    )
    view: View = Field(
        default="unbiased",
        description="unbiased: best current estimate; first_published: never revised; "
        "consistent: whole numbers that never fall and add up, but biased",
    )
    method: Method | None = Field(
        default=None,
        description="for view=consistent: top_down (default) fixes sums first and then their parts; "
        "isotonic returns the closest running counts that never fall",
    )
    points: int = Field(
        default=MAX_POINTS,
        ge=2,
        le=MAX_POINTS,
        description="largest number of points; downsampling keeps extremes",
    )
    inner: bool = Field(default=False, description="also half widths of the 80 and 50 % intervals, in JSON")


class MeanSeriesQuery(PointsQuery, CalendarQuery):
    """Means over a range."""

    kind: SeriesKind = Field(
        default="running",
        description="running mean, means of step bins each, or of sliding windows of bins",
    )
    points: int = Field(
        default=120, ge=2, le=MOST_MEANS, description="largest number of points; fewer are evenly spaced"
    )


class NodesQuery(NoQuery):
    """A page of released nodes of one level of one epoch."""

    epoch: int | None = Field(default=None, ge=0, le=MAX_WHOLE, description="default: the last epoch")
    level: int | None = Field(
        default=None,
        ge=1,
        le=MAX_WHOLE,
        description="level 1 is just below the root; default: the level of single bins",
    )
    first: int = Field(default=0, ge=0, le=MAX_WHOLE, description="index of the first node to return")
    limit: int = Field(default=1_000, ge=1, le=MAX_NODES, description="largest number of nodes")


class EventsQuery(NoQuery):
    """Where a follower starts; the header Last-Event-ID wins over it."""

    after: str | None = Field(
        default=None,
        pattern=EVENT_ID,
        description="id of the last event that you have: GENERATION:SEQ, of the first generation SEQ alone; "
        "0: all releases; default: the last release",
    )
