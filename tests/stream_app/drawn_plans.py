"""Plans of the service drawn at random, and the intervals that the service states for them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from msgspec import structs

from dphist.laws.interval import DITHER, HalfWidth, half_width, half_widths
from dphist.product.answers import Histogram
from dphist.product.columns import KeyPlaces
from dphist.tree.estimate import Estimate
from dphist.workloads import Workload
from stream_app.config import StreamSettings, load
from stream_app.config.plans import planned
from stream_app.core.answers.answered import Missing
from stream_app.core.answers.query import StreamView
from stream_app.core.counting.bounding import PerUser
from stream_app.core.counting.cells import Buckets
from stream_app.core.counting.keys import KeyList
from stream_app.core.declaration import Tree
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.errors import CONFIDENCE
from stream_app.core.kinds.tables import OVER_EPOCHS, SeriesKind, SeriesView, Span
from stream_app.core.records import EpochRecord, PublicState
from stream_app.core.releases.release import row_errors
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError
from tests.dphist.tree.convolved import CELLS, Convolved
from tests.stream_app.declared import changed_stream
from tests.stream_app.plan_noise import Noise, of_answer, of_buckets, of_own_bins

(FLIGHTS,) = load(Path(__file__).parents[2] / "examples" / "flights.yaml", {}).streams

_CONFIDENCES = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)
_FIRST_BIN = 376_944
# Certificates may use up this part of 1 - confidence, so an interval may be wider by as much.
_CERTIFIED = 1e-4


class Stated(NamedTuple):
    """One stated interval and the noise of its answer.

    ``rounding`` is the part of the interval's half width that integer arithmetic may add.
    """

    what: str
    confidence: float
    half: HalfWidth
    noise: Noise
    rounding: float = 0.0  # already part of ``half``


def shortfall(stated: Stated, cells: int = CELLS) -> str | None:
    """Return what is wrong with an interval: too short, stated level too high, or too wide. None if right."""
    law = Convolved(*stated.noise, cells)
    chances, confidence = law.within(stated.half.value), stated.confidence
    held = chances.least if law.unit else chances.most
    narrower = stated.half.value - stated.rounding - max(law.unit, 4 * DITHER * law.deviation) - 1e-9
    if held < confidence - 1e-9:
        wrong = f"holds {held:.6f}"
    elif stated.half.level > held + 1e-9:
        wrong = f"says {stated.half.level:.6f}, holds {held:.6f}"
    elif narrower > 0 and law.within(narrower).least > confidence + _CERTIFIED * (1 - confidence) + 1e-9:
        wrong = f"is wider than need be: {narrower:.6g} would do"
    else:
        return None
    return f"{stated.what}: +- {stated.half.value:.6g} ({confidence:.1%}) {wrong}"


def plan_text(strategy: Strategy) -> str:
    """Return a text that names the plan."""
    design, declared = strategy.design, strategy.declared
    return (
        f"{declared.tree} {declared.privacy} horizon {design.horizon} branching {design.branching} "
        f"{design.release} keys {declared.keys} value {declared.value} "
        f"over epochs {strategy.kind.levels and strategy.kind.levels.branching}"
    )


def drawn_plan(seed: int, longest: int = 60) -> StreamView:
    """Return what readers see of a randomly drawn stream, after one to six epochs without events."""
    rng = random.Random(f"plan {seed}")
    while True:
        try:
            strategy = planned(_settings(rng, longest))
            break
        except OperatorError:  # for example a workload that is longer than the epoch
            continue
    return _released(strategy, rng)


def intervals(view: StreamView, seed: int) -> Iterator[Stated]:
    """Yield some of the intervals that the service states about a stream."""
    rng = random.Random(f"intervals {seed}")
    strategy, span = view.strategy, view.span
    a, b = sorted(rng.sample(range(span.start, span.stop + 1), 2))
    asked, confidence = Span(a, b), rng.choice(_CONFIDENCES)
    yield _of(
        f"count {a - span.start}..{b - span.start}",
        confidence,
        view.count(asked),
        of_answer(view, asked, "unbiased"),
    )
    whole = Span(span.start, b)
    yield _of(
        "first published",
        confidence,
        view.running("first_published", b),
        of_answer(view, whole, "first_published"),
    )
    yield from _rows(view, rng)
    labels = strategy.axes.keys.labels if strategy.axes.keys else []
    key = rng.choice([None, *labels])
    own, place = view.of_key(key), view.place_of(key)
    yield from _series(own, rng, place)
    if strategy.kind.axes is not None:
        total = view.cells(asked)
        buckets = sorted(rng.sample(range(strategy.kind.axes.values.buckets + 1), 2))
        found = Histogram.of(total, place).count(*buckets)
        yield _of(
            f"buckets {buckets} of {key}", confidence, found, of_buckets(view, asked, place, slice(*buckets))
        )
        yield _of(f"count of {key}", confidence, own.count(asked), of_answer(view, asked, "unbiased", place))


def _of(what: str, confidence: float, found: Estimate, noise: Noise) -> Stated:
    return Stated(what, confidence, half_width(found.law, confidence), noise)


def _rows(view: StreamView, rng: random.Random) -> Iterator[Stated]:
    """Yield intervals of the first epoch's rows: running counts, with rounding."""
    bins = view.epochs[0].bins
    errors = row_errors(view.strategy, 0, bins)
    alone = view if view.strategy.kind.levels is None else _first_epoch(view)
    for bin in {rng.randrange(bins), bins - 1}:
        first = view.span.start
        noise = of_answer(alone, Span(first, first + bin + 1), "first_published")
        yield Stated(f"row {bin}", CONFIDENCE, HalfWidth(errors[bin][1], 0.0), noise, 1e-2)


def _first_epoch(view: StreamView) -> StreamView:
    """Return a view of the first epoch alone, without nodes over epochs."""
    alone = StreamView(replace(view.strategy, kind=kind_of(view.strategy.design)).to_json())
    alone.epochs = view.epochs[:1]
    return alone


def _series(view: StreamView, rng: random.Random, place: KeyPlaces | None) -> Iterator[Stated]:
    kind: SeriesKind = rng.choice(["running", "bin", "window"])
    shown: SeriesView = rng.choice(["unbiased", "first_published"])
    bins = view.span.stop - view.span.start
    step, window = rng.randint(1, min(bins, 9)), rng.randint(1, bins)
    series = view.series(kind, view.span, step, window, shown)
    confidence = rng.choice(_CONFIDENCES)
    halves, levels = half_widths(series.laws, confidence)
    causal = view.strategy.design.release == "causal"
    for row in rng.sample(range(len(halves)), min(2, len(halves))):
        span = series.spans[row]
        if causal and shown == "first_published" and kind != "running":
            noise = of_own_bins(view, span.stop - span.start, place)
        else:
            noise = of_answer(view, span, shown, place)
        what = f"{shown} {kind} {span.start - view.span.start}..{span.stop - view.span.start} of {place}"
        yield Stated(what, confidence, HalfWidth(float(halves[row]), float(levels[row])), noise)


def _settings(rng: random.Random, longest: int) -> StreamSettings:
    horizon = rng.choice([rng.randint(1, 12), rng.randint(1, longest), rng.randint(1, longest)])
    epsilon = Fraction(rng.choice(["1/2", "1", "1", "2", "4", "12"]))
    unit: Literal["event"] | PerUser = "event" if rng.random() < 0.7 else PerUser("user", rng.randint(1, 3))
    tree = structs.replace(
        FLIGHTS.declared.tree,
        questions=_workload(rng, horizon).declared(),
        release=rng.choice(["anticipating", "causal"]),
        epochs=rng.choice([None, None, rng.randint(2, 9)]),
    )
    tree = _by_hand(tree, rng, horizon)
    total = rng.random() < 0.5
    keys = KeyList("carrier", tuple(f"C{i}" for i in range(rng.randint(1, 4))), rng.random() < 0.3, total)
    value = Buckets("delay", Fraction(0), Fraction(1), rng.choice([2, 3, 4, 7, 12]))
    kind = rng.choice(["tree", "tree", "keys", "value", "both", "windows"])
    if kind == "windows":
        value = structs.replace(
            value,
            mode="window",
            window_us=FLIGHTS.declared.time.bin_us,
            mechanism="identity",
            share=Fraction(rng.choice(["1/2", "3/4"])),
        )
    return changed_stream(
        FLIGHTS,
        time={"epoch_bins": horizon},
        privacy={"epsilon": epsilon, "unit": unit, "neighbours": rng.choice(["add_remove", "substitute"])},
        tree=tree if kind == "tree" else structs.replace(tree, epochs=None),
        keys=keys if kind in ("keys", "both") else None,
        value=value if kind in ("value", "both", "windows") else None,
    )


def _workload(rng: random.Random, horizon: int) -> Workload:
    window = f"sliding({rng.randint(1, horizon)})"
    mix = {kind: rng.randint(1, 9) for kind in rng.sample(["prefix", "bins", "ranges", window], 2)}
    choices: list[str | dict[str, int]] = ["prefix", "bins", "bins", window, window, "ranges", mix]
    return Workload.of(rng.choice(choices))


def _by_hand(tree: Tree, rng: random.Random, horizon: int) -> Tree:
    """Return the tree with a random shape and perhaps random shares, or unchanged for the planner."""
    if rng.random() < 0.6:
        return tree
    branching: tuple[int, ...] = ()
    while np.prod(branching, initial=1) < horizon or rng.random() < 0.2:
        branching += (rng.randint(2, 6),)
    if not branching or rng.random() < 0.5:
        return structs.replace(tree, branching=branching or (1,))
    parts = [rng.choice([1, 1, 2, 3]) for _ in branching]  # often equal, so that laws lie on lattices
    shares = tuple(Fraction(part, sum(parts)) for part in parts)
    return structs.replace(tree, branching=branching, shares=shares)


def _released(strategy: Strategy, rng: random.Random) -> StreamView:
    """Return a view in which all released values are 0. All epochs but the last are complete."""
    view, horizon = StreamView(strategy.to_json()), strategy.design.horizon
    complete = rng.randint(0, 5)
    last = rng.randint(1, horizon)
    epochs = tuple(
        EpochRecord(number, _FIRST_BIN + number * horizon, horizon, number * horizon + 1, strategy.hash)
        for number in range(complete + 1)
    )
    state = PublicState(strategy.to_json(), epochs, complete * horizon + last)
    view.extend(state, [(want, _nothing(strategy, want)) for want in view.missing(state)])
    return view


def _nothing(strategy: Strategy, want: Missing) -> np.ndarray:
    values = np.zeros((want.rows, strategy.kind.tables[want.table]), np.int64)
    if want.table == OVER_EPOCHS:
        values[:, 0] = want.epoch + 1  # how many epochs are complete
    return values
