"""``python -m docs.site.figures``: compute the figures' numbers with the library, and draw them.

Each figure is a function here. Its numbers are in docs/figures/NAME.json, its picture in NAME.svg;
tests/test_site.py computes and draws them again and compares. Where a figure shows noise, the noise has a
seed and the events are invented.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from docs.site.svg import COLOURS, Chart, Line, drawn
from dphist import AnticipatingCounter, SeededNoise, plan_tree
from dphist.composition import Losses, epsilon_of

FOLDER = Path(__file__).parents[1] / "figures"
HOURS = 168
BLUE, ORANGE, GREEN, _ = COLOURS
Numbers = dict[str, Any]


def rounded(number: float) -> float:
    """Return a number with six digits, so that processors agree on it."""
    return float(f"{number:.6g}")


def two_logs() -> Numbers:
    """Return how probable each shown count is for two logs that differ by one event, at epsilon 1."""
    alpha = math.exp(-1.0)
    share = (1 - alpha) / (1 + alpha)
    shown = list(range(15))
    return {
        "epsilon": 1,
        "shown": shown,
        "with_7_events": [rounded(share * alpha ** abs(count - 7)) for count in shown],
        "with_8_events": [rounded(share * alpha ** abs(count - 8)) for count in shown],
    }


def draw_two_logs(found: Numbers) -> Chart:
    """Return the chart of ``two_logs``."""
    shown = found["shown"]
    return Chart(
        "One event more changes the probability of no shown count by more than e^epsilon",
        "count that is shown",
        "probability",
        [
            Line("7 events happened", list(zip(shown, found["with_7_events"], strict=True)), BLUE),
            Line("8 events happened", list(zip(shown, found["with_8_events"], strict=True)), ORANGE),
        ],
        [(count, str(count)) for count in shown],
    )


def one_week() -> Numbers:
    """Return the true and the released running count of an invented week of hours, at epsilon 0.5."""
    draw = random.Random(7)
    counts = [
        max(0, round(draw.gauss(4 + 3 * math.sin(hour / 24 * 2 * math.pi - 2), 1.5))) for hour in range(HOURS)
    ]
    design = plan_tree(horizon=HOURS, epsilon=0.5, release="anticipating")
    counter = AnticipatingCounter(design, SeededNoise(11))
    numbers: Numbers = {"epsilon": 0.5, "seed": 11, "true": [], "released": [], "lower": [], "upper": []}
    for hour, count in enumerate(counts):
        counter.push(count)
        answer = counter.live()
        interval = answer.interval(0.95)
        numbers["true"].append(sum(counts[: hour + 1]))
        for name, value in (("released", answer.value), ("lower", interval.lower), ("upper", interval.upper)):
            numbers[name].append(rounded(float(value)))
    inside = sum(
        low <= true <= high
        for low, true, high in zip(*(numbers[n] for n in ("lower", "true", "upper")), strict=True)
    )
    return numbers | {"hours_inside_their_interval": inside}


def draw_one_week(found: Numbers) -> Chart:
    """Return the chart of ``one_week``."""
    hours = range(1, HOURS + 1)
    band = list(zip(found["lower"], found["upper"], strict=True))
    return Chart(
        "Running count of a week at epsilon 0.5: what readers see, and the truth",
        "day",
        "events since the start",
        [
            Line("released, 95 % band", list(zip(hours, found["released"], strict=True)), BLUE, band),
            Line("true", list(zip(hours, found["true"], strict=True)), ORANGE),
        ],
        [(24 * day + 12, str(day + 1)) for day in range(7)],
    )


def error_by_epsilon() -> Numbers:
    """Return the root mean squared error of the running count over a year of hours, by epsilon."""
    epsilons = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0]
    found: Numbers = {"bins": 8760, "epsilon": epsilons}
    for release in ("causal", "anticipating"):
        designs = [plan_tree(horizon=8760, epsilon=str(epsilon), release=release) for epsilon in epsilons]
        found[release] = [rounded(math.sqrt(design.mean_squared_error())) for design in designs]
    return found


def draw_error_by_epsilon(found: Numbers) -> Chart:
    """Return the chart of ``error_by_epsilon``."""
    places = [math.log(epsilon) for epsilon in found["epsilon"]]
    return Chart(
        "Error of the running count over a year of hours: half the epsilon, twice the error",
        "epsilon",
        "root mean squared error, in events",
        [
            Line("causal", list(zip(places, found["causal"], strict=True)), ORANGE),
            Line("anticipating (default)", list(zip(places, found["anticipating"], strict=True)), BLUE),
        ],
        [(math.log(epsilon), f"{epsilon:g}") for epsilon in found["epsilon"]],
        logarithmic=True,
    )


def epochs_together() -> Numbers:
    """Return what epochs of epsilon 0.1 cost one user together, as a sum and composed at delta 1e-6."""
    each, delta = Fraction(1, 10), Fraction(1, 10**6)
    epochs = [1, 2, 5, 10, 20, 30, 40, 52]
    composed = [epsilon_of(Losses.of_pure(each, times), delta) for times in epochs]
    return {
        "epsilon_of_each": 0.1,
        "delta": 1e-6,
        "epochs": epochs,
        "sum": [rounded(0.1 * times) for times in epochs],
        "composed": [
            rounded(min(float(one or 99), 0.1 * times)) for one, times in zip(composed, epochs, strict=True)
        ],
    }


def draw_epochs_together(found: Numbers) -> Chart:
    """Return the chart of ``epochs_together``."""
    epochs = found["epochs"]
    return Chart(
        "What weekly epochs of epsilon 0.1 cost one user together",
        "epochs",
        "epsilon",
        [
            Line("sum, no delta", list(zip(epochs, found["sum"], strict=True)), BLUE),
            Line("with delta 1e-6", list(zip(epochs, found["composed"], strict=True)), GREEN),
        ],
        [(times, str(times)) for times in epochs if times not in (2,)],
    )


FIGURES: dict[str, tuple[Callable[[], Numbers], Callable[[Numbers], Chart]]] = {
    "two-logs": (two_logs, draw_two_logs),
    "one-week": (one_week, draw_one_week),
    "error-by-epsilon": (error_by_epsilon, draw_error_by_epsilon),
    "epochs-together": (epochs_together, draw_epochs_together),
}


def written(name: str) -> dict[str, str]:
    """Return the files of one figure, computed now: names below docs/figures/ and their texts."""
    compute, draw = FIGURES[name]
    numbers = compute()
    text = json.dumps(numbers, separators=(",", ":")).replace('],"', '],\n"').replace('{"', '{\n"')
    return {f"{name}.json": f"{text}\n", f"{name}.svg": drawn(draw(numbers))}


if __name__ == "__main__":
    for figure in FIGURES:
        for file, text in written(figure).items():
            (FOLDER / file).write_text(text, encoding="utf-8")
