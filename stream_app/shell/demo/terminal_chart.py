"""Draw a running count with its interval as text characters."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from stream_app.client import Release
from stream_app.shell.spans import end_in_words

HEIGHT = 14
LABEL_CELLS = 12
BAND, VALUE = "░", "●"


class RunningChart:
    """A chart of a stream's last releases across the terminal: values and their intervals."""

    def __init__(self, stream: str, releases: Sequence[Release], zone: str | None = None) -> None:
        self.stream, self.releases, self.zone = stream, releases, zone

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        shown = self.releases[-max(options.max_width - LABEL_CELLS - 1, 1) :]
        last = shown[-1]
        yield Text.assemble(
            (f"{self.stream} ", "bold"),
            (f"{last.value:z,.0f}", "bold green"),
            "" if last.interval is None else f"  ({last.interval[0]:z,.0f} to {last.interval[1]:z,.0f})",
            f"  until {end_in_words(last.end, self.zone)}",
            ("" if last.private else "  NOT PRIVATE", "red"),
        )
        points = [(one.value, *(one.interval or (one.value, one.value))) for one in shown]
        top, bottom = max(point[2] for point in points), min(point[1] for point in points)
        for row, line in enumerate(drawn(points, HEIGHT)):
            label = top if row == 0 else bottom if row == HEIGHT - 1 else None
            yield Text.assemble(
                (f"{label:>z{LABEL_CELLS},.0f} " if label is not None else " " * (LABEL_CELLS + 1), "dim"),
                line,
            )


def drawn(points: Sequence[tuple[float, float, float]], height: int) -> list[str]:
    """Return lines of characters, top line first, with a column per (value, lower, upper).

    >>> drawn([(1, 0, 2), (2, 1, 3), (4, 4, 4)], 5)
    ['  ●', ' ░ ', '░● ', '●░ ', '░  ']
    """
    bottom, top = min(point[1] for point in points), max(point[2] for point in points)
    scale = (height - 1) / (top - bottom) if top > bottom else 0.0

    def row(value: float) -> int:
        return height - 1 - round((value - bottom) * scale)

    cells = [[" "] * len(points) for _ in range(height)]
    for column, (value, lower, upper) in enumerate(points):
        for line in range(row(upper), row(lower) + 1):
            cells[line][column] = BAND
        cells[row(value)][column] = VALUE
    return ["".join(line) for line in cells]
