"""Boards: pages with panels of several streams, as their operator declares them. They change no number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Show = Literal["number", "bins", "running", "rate", "keys", "quantiles", "heat", "cdf", "alerts"]
Measure = Literal["count", "sum", "mean"]

SHOWS: tuple[Show, ...] = get_args(Show)
MEASURES: tuple[Measure, ...] = get_args(Measure)
SEVERAL: frozenset[Show] = frozenset({"bins", "running"})  # what one chart can show of several streams
OF_VALUES: frozenset[Show] = frozenset({"quantiles", "heat", "cdf"})
MOST_LINES = 6  # more lines in one chart cannot be told apart
MOST_PANELS = 24
MOST_ANNOTATIONS = 50
# The paths below /v1/streams/{stream} that a panel asks. A board's key opens no other path, and no
# other key of the stream than that of the line.
_COUNTS = {"count": "", "sum": "sum/", "mean": "mean/"}
_PATHS: Mapping[Show, tuple[str, ...]] = {
    "number": ("{single}",),
    "bins": ("{of}series", "{single}"),
    "running": ("{of}series",),
    "rate": ("{of}series",),
    "keys": ("{of}keys",),
    "quantiles": ("quantiles",),
    "heat": ("heat",),
    "cdf": ("cdf",),
    "alerts": ("marks", "transitions"),
}


@dataclass(frozen=True, slots=True)
class Annotation:
    """A text beside a time of a chart. Args: end_us, None for an instant; link, may be empty."""

    start_us: int
    end_us: int | None
    text: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """The subject of one line of a chart: a stream, or one of its keys (a pattern is several keys)."""

    stream: str
    key: str | None = None

    @classmethod
    def of(cls, text: str) -> Line:
        """Return the line that a text names.

        >>> Line.of("clicks"), Line.of("clicks/FR/*").key
        (Line(stream='clicks', key=None), 'FR/*')
        """
        stream, slash, key = text.partition("/")
        return cls(stream, key if slash else None)

    def __str__(self) -> str:
        return self.stream if self.key is None else f"{self.stream}/{self.key}"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of a board.

    Args: title, empty for none; range_us, how much of the newest time it shows; None: as its board.
    """

    name: str
    show: Show
    lines: tuple[Line, ...]
    measure: Measure = "count"
    title: str = ""
    range_us: int | None = None

    def questions(self) -> Iterable[tuple[str, str | None]]:
        """Yield the panel's questions: paths, each with the key that the question names; None for no key."""
        of, single = _COUNTS[self.measure], self.measure
        for line in self.lines:
            described = f"/v1/streams/{line.stream}"
            yield described, None
            if line.key is not None:
                yield f"{described}/keys/list", line.key
            for path in _PATHS[self.show]:
                yield f"{described}/{path.format(of=of, single=single)}", line.key


@dataclass(frozen=True, slots=True)
class Board:
    """A page of panels.

    Args:
        range_us: how much of the newest time its charts show; None: everything.
        embed: origins whose pages may show it in a frame.
    """

    name: str
    title: str
    panels: tuple[Panel, ...]
    annotations: tuple[Annotation, ...] = ()
    range_us: int | None = None
    embed: tuple[str, ...] = ()

    @property
    def streams(self) -> frozenset[str]:
        return frozenset(line.stream for panel in self.panels for line in panel.lines)

    def questions(self) -> frozenset[tuple[str, str | None]]:
        """Return its page's questions: paths of the API, each with the key that it names, or None."""
        of_panels = {question for panel in self.panels for question in panel.questions()}
        return frozenset(of_panels | {(f"/v1/boards/{self.name}", None), ("/v1/changes", None)})
