"""Line charts as SVG, small and the same on every run. Colours suit light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 44, 44
COLOURS = ("#2a78d6", "#c2571a", "#2b8a4b", "#8a4fc0")
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """One line of a chart. Args: band, lower and upper values at the same places; dots instead of a line."""

    name: str
    points: Points
    colour: str
    band: Sequence[tuple[float, float]] = ()
    dots: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart. Args: x_ticks, places and labels; logarithmic, the vertical axis."""

    title: str
    across: str
    up: str
    lines: Sequence[Line]
    x_ticks: Sequence[tuple[float, str]] = field(default_factory=tuple)
    logarithmic: bool = False


def drawn(chart: Chart) -> str:
    """Return the SVG text of a chart."""
    xs = [x for line in chart.lines for x, _ in line.points]
    ys = [y for line in chart.lines for _, y in line.points]
    ys += [edge for line in chart.lines for pair in line.band for edge in pair]
    across = _scale(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    ticks = _decades(min(ys), max(ys)) if chart.logarithmic else _round_ticks(min(ys), max(ys))
    change = math.log10 if chart.logarithmic else float
    up = _scale(change(min(*ticks, *ys)), change(max(*ticks, *ys)), HEIGHT - BOTTOM, TOP)
    height = {y: up(change(y)) for y in {*ys, *ticks}}
    parts = [_text(LEFT, 16, chart.title, "font-weight='600'"), *_grid(chart, ticks, height, across)]
    for line in chart.lines:
        parts += _line(line, across, height)
    parts += _legend(chart.lines)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' role='img' viewBox='0 0 {WIDTH} {HEIGHT}' color='#6b7280' "
        f"font-family='system-ui, sans-serif' font-size='12' fill='currentColor'>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    ).replace("'", '"')


def _grid(chart: Chart, ticks: Sequence[float], height: dict[float, float], across: Place) -> list[str]:
    parts = [
        f"<path d='M{LEFT} {height[y]:.1f}H{WIDTH - RIGHT}' stroke='currentColor' stroke-opacity='0.2'/>"
        for y in ticks
    ]
    parts += [_text(LEFT - 8, height[y] + 4, _number(y), "text-anchor='end'") for y in ticks]
    parts += [
        _text(across(x), HEIGHT - BOTTOM + 18, label, "text-anchor='middle'") for x, label in chart.x_ticks
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [
        *parts,
        _text(middle, HEIGHT - 8, chart.across, "text-anchor='middle'"),
        _text(LEFT, 34, chart.up, "font-size='11'"),
    ]


def _line(line: Line, across: Place, height: dict[float, float]) -> list[str]:
    path = " ".join(f"{across(x):.1f},{height[y]:.1f}" for x, y in line.points)
    parts = []
    if line.band:
        upper = [
            f"{across(x):.1f},{height[top]:.1f}"
            for (x, _), (_, top) in zip(line.points, line.band, strict=True)
        ]
        lower = [
            f"{across(x):.1f},{height[low]:.1f}"
            for (x, _), (low, _) in zip(line.points, line.band, strict=True)
        ]
        corners = " ".join([*upper, *reversed(lower)])
        parts.append(f"<polygon points='{corners}' fill='{line.colour}' fill-opacity='0.2'/>")
    if line.dots:
        return parts + [
            f"<circle cx='{across(x):.1f}' cy='{height[y]:.1f}' r='2.5' fill='{line.colour}'/>"
            for x, y in line.points
        ]
    return [*parts, f"<polyline points='{path}' fill='none' stroke='{line.colour}' stroke-width='2'/>"]


def _legend(lines: Sequence[Line]) -> list[str]:
    parts, right = [], WIDTH - RIGHT
    for line in reversed(lines):
        right -= 26 + round(7 * len(line.name))
        parts.append(f"<rect x='{right}' y='26' width='10' height='10' rx='2' fill='{line.colour}'/>")
        parts.append(_text(right + 14, 35, line.name, ""))
    return parts


def _text(x: float, y: float, text: str, more: str) -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' {more}>{escape(text, quote=True)}</text>"


Place = Callable[[float], float]


def _scale(least: float, greatest: float, start: float, end: float) -> Place:
    span = (greatest - least) or 1.0
    return lambda value: start + (value - least) / span * (end - start)


def _round_ticks(least: float, greatest: float) -> list[float]:
    step: float = 10 ** math.floor(math.log10((greatest - min(least, 0)) / 4 or 1))
    step *= next(times for times in (1, 2, 5, 10) if (greatest - min(least, 0)) / (step * times) <= 5)
    first, last = math.floor(min(least, 0) / step), math.ceil(greatest / step)
    return [round(step * place, 9) for place in range(first, last + 1)]


def _decades(least: float, greatest: float) -> list[float]:
    return [
        float(10**power)
        for power in range(math.floor(math.log10(least)), math.ceil(math.log10(greatest)) + 1)
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"
