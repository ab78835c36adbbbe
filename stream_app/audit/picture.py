"""The losses that an audit measured, as a picture: each as a part of the stated loss."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stream_app.audit.checks import Check

_COLOURS = {"grey box": "#4c72b0", "black box": "#dd8452"}
_WORDS = {"grey box": "neighbouring logs, exact", "black box": "outputs counted, bounds"}


def draw(checks: Sequence[Check], file: Path) -> bool:
    """Draw every measured loss, in the file's format; return False if matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    measured = [check for check in checks if check.measured is not None]
    streams = list(dict.fromkeys(check.subject for check in measured))
    figure = Figure(figsize=(8, 0.6 + 0.42 * len(streams)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.axvline(1.0, color="#444444", linewidth=1)
    for check in measured:
        loss = check.measured
        assert loss is not None
        place = streams.index(check.subject) + (0.14 if check.part == "black box" else -0.14)
        ends = [loss.low / loss.stated, loss.high / loss.stated]
        mark = "o" if ends[0] == ends[1] else "|"
        axes.plot(ends, [place, place], color=_COLOURS[check.part], linewidth=3, marker=mark, markersize=5)
    for part, words in _WORDS.items():
        axes.plot([], [], color=_COLOURS[part], linewidth=3, label=words)
    axes.set_yticks(range(len(streams)), streams)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.2)
    axes.set_xlabel("measured loss / stated loss; no mark may lie wholly to the right of 1")
    axes.legend(loc="lower left", fontsize="small", frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(file, dpi=120)
    return True
