"""Counts drawn visits by every feature at once, and compares what readers see with the recount."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from dphist.noise import NoiseSource, SeededNoise
from dphist.tree.estimate import Interval
from dphist.users import BUCKETS as POWERS
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.readings import readings
from stream_app.core.alerts.rules import Rule
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.steps import point_ranges
from stream_app.core.answers.sums import mean_over, means_over, sum_of, sum_series
from stream_app.core.answers.weighted import weighted_count
from stream_app.core.kinds.tables import PUBLISHED, USERS, SeriesKind, Span, node_table
from tests.stream_app.declared import FIRST_BIN
from tests.stream_app.published import estimates
from tests.world.features import BUCKETS, FEATURES, Arrivals, Feature, Recount, recounted, total_of
from tests.world.settings import EPOCH_BINS, configured
from tests.world.world import World

SPANS = ((0, 1), (2, 5), (4, 8), (1, 13))  # in bins; an epoch has six
SERIES: tuple[tuple[SeriesKind, dict[str, Any]], ...] = (
    ("running", {}),
    ("bin", {}),
    ("bin", {"step": 2}),
    ("window", {"window": 3}),
)


class ServiceNoise(SeededNoise):
    """Seeded noise that the service accepts."""

    private = True  # stands in for the system source, which nobody can repeat


def counting(
    features: Mapping[str, Feature],
    release: str,
    epsilon: str = "1e9",
    noise: NoiseSource | None = None,
    seed: int = 1,
    make: Callable[..., World] = World,
) -> World:
    """Return a world that counts by all these features side by side. Args: make, makes it."""
    streams = {name: feature.settings_of(release, epsilon) for name, feature in features.items()}
    return make(*configured(**streams), noise=noise, seed=seed)


def patterns_of(feature: Feature) -> list[str | None]:
    """Return the keys and rollups that a stream is asked about; None: all events."""
    rollups = ["FR/*", "other/*", "*/tv"] if "fields" in feature.settings.get("keys", {}) else []
    return [None, *feature.keys, *rollups]


def check_exact(view: StreamView, feature: Feature, recount: Recount, bins: int) -> None:
    """Compare every answer of a stream without noise with the recount."""
    near = 0.05 if "delta" in feature.settings.get("privacy", {}) else 0.01
    assert view.span == (FIRST_BIN, FIRST_BIN + bins)
    for start, stop in (*SPANS, (0, bins)):
        span = Span(FIRST_BIN + start, FIRST_BIN + stop)
        for pattern in patterns_of(feature):
            own = recount.within(start, stop, pattern)
            asked = pattern, start, stop
            assert view.of_key(pattern).count(span).value == pytest.approx(len(own), abs=near), asked
            if feature.has("sum"):
                total = float(total_of(own, feature))
                assert sum_of(view, span, pattern).value == pytest.approx(total, abs=1e-6), asked
                if own and start:
                    mean = mean_over(view, span, pattern).value
                    assert mean == pytest.approx(total / len(own), abs=1e-6), asked
        if feature.has("value"):
            table = Counter((one.key, one.bucket) for one in recount.within(start, stop))
            rows = [[table[key, bucket] for bucket in range(BUCKETS)] for key in feature.keys or ("",)]
            assert np.allclose(view.cells(span).groups[-1].values, rows, atol=1e-2), (start, stop)
    if "propose_caps" in feature.settings.get("privacy", {}):
        for epoch in view.epochs:
            numbers = [number for (one, _), number in recount.users.items() if one == epoch.record.epoch]
            wanted = [
                np.bincount(
                    [min(number.bit_length(), POWERS) - 1 for number in numbers], minlength=POWERS
                ).tolist()
            ] * (epoch.bins == EPOCH_BINS)
            assert epoch.rows(USERS).tolist() == wanted, numbers
    for pattern in (None, *feature.keys[:1]):
        _check_series(view, feature, recount, pattern, near)
        _check_rules(view, feature, recount, bins, pattern)


def _check_rules(
    view: StreamView, feature: Feature, recount: Recount, bins: int, pattern: str | None
) -> None:
    """Compare rules against the past with the recount: within an epoch, over two epochs, whole epochs."""
    asked, near = "" if pattern is None else f"[{pattern!r}]", 0.2
    for window, length, ago in ((1, 1, 1), (2, 1, 2), (4, 3, 5), (1, EPOCH_BINS, bins - 2 * EPOCH_BINS)):
        now = recount.within(bins - window, bins, pattern)
        past = recount.within(bins - ago - length, bins - ago, pattern)
        for measure in ("count", "total") if feature.has("sum") else ("count",):
            of = f"{measure}({view.name}{asked}, "
            lengths = (f"{bins * 10}s" for bins in (window, length, ago))
            text = "{0}{1}) > 0.5 * {0}{2}, {3} ago)".format(of, *lengths)
            [reading] = readings([Rule("r", text, parse_condition(text))], view)
            assert reading is not None
            values = [
                float(total_of(one, feature)) if measure == "total" else len(one) for one in (now, past)
            ]
            assert reading.beyond == pytest.approx(values[0] - 0.5 * values[1], abs=near), text
            assert (reading.show()[0], reading.against()) == pytest.approx(
                (values[0], 0.5 * values[1]), abs=near
            )


def check_rows(world: World, name: str, feature: Feature, recount: Recount) -> None:
    """Compare the rows of a stream without noise with the recount, and check what they vouch for."""
    strategy, reader = world.strategy(name), world.public_reader()
    near = 0.05 if "delta" in feature.settings.get("privacy", {}) else 1e-6
    for row in world.rows(name):
        place = row["bin"] - FIRST_BIN
        first = place - place % EPOCH_BINS
        own = recount.within(first, place + 1)
        assert row["estimate"] == [pytest.approx(len(own), abs=near)], row["bin"]
        assert ("sum" in row) == feature.has("sum")
        if feature.has("sum"):
            total = float(total_of(own, feature))
            said = [row["sum"]["estimate"], *row["sum"]["interval"]]
            assert said == pytest.approx([total] * 3, abs=1e-6)
        if feature.finds_keys:
            continue  # a hash is of the tables of all groups of keys: tests/simulator/finding.py
        vouched = [(node_table(level), index, digest) for level, index, digest in row.get("node_hashes", [])]
        if "columns_hash" in row:
            vouched.append((PUBLISHED, place - first, row["columns_hash"]))
        assert vouched or row["nodes"] or row["published"]
        for table, index, digest in vouched:
            width = strategy.kind.tables[table]
            kept = world.run(reader.tile_rows(name, row["epoch"], table, index, 1, width))
            assert hashlib.sha256(kept.astype("<i8").tobytes()).hexdigest() == digest, (row["bin"], table)


def check_points(view: StreamView, feature: Feature) -> None:
    """Compare each point of the series of a stream with noise with the answer about the point's range."""
    for pattern in (None, *feature.keys[-1:]):
        own = view.of_key(pattern)
        for kind, asked in SERIES:
            series = own.series(kind, view.span, **asked)
            sums = sum_series(view, kind, view.span, pattern, **asked) if feature.has("sum") else None
            for place, (span, point) in enumerate(zip(series.spans, estimates(series), strict=True)):
                alone = own.count(span)
                assert point.value == pytest.approx(alone.value, abs=alone.rounding + point.rounding + 1e-6)
                assert point.variance == pytest.approx(alone.variance, rel=1e-6)
                assert weighted_count(own, [(span, 1.0)]).law.variance == pytest.approx(alone.variance)
                epochs = {(bin - FIRST_BIN) // EPOCH_BINS for bin in (span.start, span.stop - 1)}
                if len(epochs) == 1 < span.stop - span.start:  # both parts share nodes
                    edge = span.start + 1
                    parts = [(span._replace(stop=edge), 1.0), (span._replace(start=edge), 1.0)]
                    assert weighted_count(own, parts).law.variance == pytest.approx(alone.variance)
                assert point.rounding >= alone.rounding * (1 - 1e-9)
                if sums is not None:
                    summed = sum_of(view, span, pattern)
                    assert sums.values[place] == pytest.approx(summed.value, rel=1e-9, abs=1e-6)
                    assert sums.laws.deviations()[place] == pytest.approx(summed.stderr, rel=1e-9)


def _check_series(
    view: StreamView, feature: Feature, recount: Recount, pattern: str | None, near: float
) -> None:
    for kind, asked in SERIES:
        series = view.of_key(pattern).series(kind, view.span, **asked)
        own = [
            recount.within(span.start - FIRST_BIN, span.stop - FIRST_BIN, pattern) for span in series.spans
        ]
        assert len(own) > 3
        assert series.values == pytest.approx([len(some) for some in own], abs=near), (kind, asked, pattern)
        if feature.has("sum"):
            summed = [float(total_of(some, feature)) for some in own]
            assert sum_series(view, kind, view.span, pattern, **asked).values == pytest.approx(
                summed, abs=1e-6
            )
            if (pattern, kind) != (None, "bin"):
                continue
            ranges = point_ranges(view.binning, kind, view.span, asked.get("step", 1), 1, view.span.start)
            means = means_over(view, kind, *ranges, pattern).means
            for some, mean in zip(own, means, strict=True):
                if some:
                    assert mean.value == pytest.approx(float(total_of(some, feature)) / len(some), abs=1e-6)


def check_letters(world: World, feature: Feature, stream: str, recount: Recount) -> None:
    """Compare dead letters and the operator's counters of a stream with the recount."""
    lettered = +Counter({name: n for name, n in recount.refused.items() if name != "over_cap"})
    if feature.late == "drop":
        del lettered["late"]
    own = Counter(
        str(letter.reason)
        for letter, refused_by in zip(world.letters.kept, world.letters.streams, strict=True)
        if refused_by in (stream, None)
    )
    assert own == lettered, (own, lettered)
    counted = world.operator_counts(stream)
    assert {name: counted[name] for name in recount.refused if name in counted} == +recount.refused, (
        counted,
        recount.refused,
    )


def played(
    world: World, arrivals: Arrivals, bins: int, features: Mapping[str, Feature] = FEATURES
) -> Iterable[tuple[str, Feature, Recount]]:
    """Let the visits arrive under workers that end every two bins; yield each stream with its recount."""
    world.play(arrivals, FIRST_BIN + bins)
    for name, feature in features.items():
        yield name, feature, recounted(feature, arrivals, bins)


def held(view: StreamView, feature: Feature, recount: Recount, bins: int) -> Iterator[tuple[str, bool]]:
    """Yield, for some answers of a stream with noise, whether the 95 % interval holds the recount."""
    for start, stop in ((0, bins), (1, 5), (4, 8)):
        span = Span(FIRST_BIN + start, FIRST_BIN + stop)
        for pattern in (None, *patterns_of(feature)[-2:]):
            own = recount.within(start, stop, pattern)
            interval = view.of_key(pattern).count(span).interval(0.95)
            yield f"count {pattern} {span}", _holds(interval, len(own))
            if feature.has("sum") and own:
                total = float(total_of(own, feature))
                interval, mean = sum_of(view, span, pattern).interval(0.95), mean_over(view, span, pattern)
                yield f"sum {pattern} {span}", _holds(interval, total)
                yield f"mean {pattern} {span}", mean.lower <= total / len(own) <= mean.upper


def _holds(interval: Interval, value: float) -> bool:
    return bool(interval.lower - 1e-9 <= value <= interval.upper + 1e-9)
