"""Are alert rules as sure as they say? Calibration, delay and cost; JSON under results/.

    python -m benchmarks.alerts

- **at the threshold**: streams whose true window count is the threshold at every release; a rule with
  confidence c may hold at most at a part 1 - c of them. Neighbouring releases share noise, so many streams.
- **after a shift** of 3 standard errors: how many are noticed within the predicted delay, for noise that the
  prediction has not seen.
- **over keys and values**: the same for a key's count, two keys together, a quantile and a share, whose
  truth is at the threshold in every bin; and for distances, by their forecast.
- **cost**: 10,000 rules decided at one release, over windows of one count, and over keys and quantiles.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from dphist import SeededNoise, plan_product, plan_tree
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from stream_app.core.alerts.distance_forecast import forecast_distance
from stream_app.core.alerts.forecast import forecast
from stream_app.core.alerts.readings import readings
from stream_app.core.alerts.rules import Rule, parse_condition
from stream_app.core.alerts.states import evaluate
from stream_app.core.query import StreamView
from stream_app.core.records import ROWS, EpochRecord, PublicState
from stream_app.core.strategy import Strategy
from stream_app.core.visible import visible_epochs
from stream_app.state.memory import MemoryStore
from tests.stream_app.published import HOUR_US, Published, declared

RESULTS = Path(__file__).parent / "results" / "alerts.json"
BINS, WINDOW, RATE = 256, 8, 5
AXES_BINS = 64
EVALUATIONS = 20_000
CONFIDENCES = (0.9, 0.99, 0.999)
SHIFTED_STREAMS = 100
SHIFT_AT = 64


def rule(confidence: float, window: int = WINDOW, threshold: float = WINDOW * RATE) -> Rule:
    """Return a rule whose threshold is the true count."""
    text = f"sum(departures, {window}h) > {threshold}"
    return Rule(f"c{confidence}-{window}-{threshold}", text, parse_condition(text), confidence=confidence)


async def views(seed: int, counts: Sequence[int]) -> AsyncIterator[StreamView]:
    """Yield the view of one stream after each release."""
    stream = Published(MemoryStore(), epoch_bins=BINS, seed=seed)
    await stream.open()
    await stream.close(counts)
    reader = stream.store.reader()
    public = await reader.public_state(stream.name)
    assert public is not None
    view = StreamView(public.strategy)
    for seq in range(1, len(counts) + 1):
        state = replace(public, epochs=visible_epochs(public.epochs, seq), visible_seq=seq)
        blocks = [(want, await reader.tile_rows(stream.name, *want, 1)) for want in view.missing(state)]
        view.extend(state, blocks)
        yield view


async def calibration() -> dict[str, object]:
    """Return the part of evaluations at the threshold at which a rule holds, by confidence."""
    rules = [rule(confidence) for confidence in CONFIDENCES]
    wrong, done, seed = np.zeros(len(rules)), 0, 0
    while done < EVALUATIONS:
        seed += 1
        async for view in views(1_000 + seed, [RATE] * BINS):
            found = readings(rules, view)
            if found[0] is not None and done < EVALUATIONS:
                done += 1
                wrong += [one is not None and one.past(two) for one, two in zip(found, rules, strict=True)]
    parts = {str(confidence): part for confidence, part in zip(CONFIDENCES, wrong / done, strict=True)}
    return {"evaluations": done, "streams": seed, "holds_wrongly": parts}


async def delays() -> dict[str, object]:
    """Return how many shifts are noticed within the predicted delay."""
    watched = rule(0.99)
    design = Published(MemoryStore(), epoch_bins=BINS).strategy.design
    expected = forecast(watched, design, HOUR_US, SeededNoise(1))
    per_bin = round(expected.shift / WINDOW)
    # Counts are whole: predict for the shift that is really made.
    stderrs = per_bin * WINDOW / expected.stderr
    expected = forecast(watched, design, HOUR_US, SeededNoise(1), stderrs)
    median, most = expected.delay_bins
    last = SHIFT_AT + int(most) + 1
    found = []
    for number in range(SHIFTED_STREAMS):
        counts = [RATE] * SHIFT_AT + [RATE + per_bin] * (last - SHIFT_AT)
        delay = float("inf")
        async for view in views(50_000 + number, counts):
            since = view.visible_seq - SHIFT_AT
            if since > 0 and (reading := readings([watched], view)[0]) and reading.past(watched):
                delay = since
                break
        found.append(delay)
    return {
        "shift_stderrs": round(stderrs, 2),
        "streams": SHIFTED_STREAMS,
        "predicted_bins": {"median": median, "95 of 100": most},
        "measured_median_bins": float(np.median(found)),
        "noticed_within_predicted_95": float(np.mean(np.array(found) <= most)),
    }


def published_counts() -> dict[str, object]:
    """Return the part of evaluations at the threshold at which a rule over an anticipating stream holds.

    Its answers are differences of published counts; the noise of hundreds of epochs is drawn side by side.
    """
    design = plan_tree(BINS, 1.0, release="anticipating")
    found = {c: forecast(rule(c), design, HOUR_US, SeededNoise(90)) for c in CONFIDENCES}
    some = next(iter(found.values()))
    parts = {str(confidence): one.false_alarm_rate for confidence, one in found.items()}
    return {"evaluations": (some.bins) * some.paths, "streams": some.paths, "holds_wrongly": parts}


def axes_design(keys: int, buckets: int) -> ProductDesign:
    """Return a design over keys and values."""
    return plan_product(AXES_BINS, Fraction(1), keys, buckets)


def axes_view(keys: int, buckets: int, per_bucket: int, seed: int) -> Iterator[StreamView]:
    """Yield the view of a stream over keys and values after each release: so many events in every cell."""
    product = axes_design(keys, buckets)
    declared_axes = {
        "keys": {"field": "k", "list": [f"k{n}" for n in range(keys)], "other": False, "total": False},
        "value": {"field": "v", "min": "0", "max": str(buckets), "buckets": buckets},
    }
    strategy = Strategy("delays", "f", declared("1") | declared_axes, product.time, product.cells, product)
    epoch = EpochRecord(0, 0, AXES_BINS, 1, strategy.hash)
    cells = np.full((AXES_BINS, product.cells), per_bucket)
    released = ProductCounter(product, SeededNoise(seed)).push_many(cells)
    rows = {level.level: level.values for level in released.levels}
    rows[ROWS] = np.zeros((AXES_BINS, 1), np.int64)
    view = StreamView(strategy.to_json())
    for seq in range(1, AXES_BINS + 1):
        state = PublicState(strategy.to_json(), (epoch,), seq)
        wanted = view.missing(state)
        view.extend(state, [(want, rows[want.level][want.first : want.first + want.rows]) for want in wanted])
        yield view


def axes_calibration() -> dict[str, object]:
    """Return the part of evaluations at the threshold at which rules over keys and values hold."""
    window, per_bucket, keys, buckets = 8, 2, 3, 12
    of_key = window * per_bucket * buckets
    texts = {
        "one key": f"sum(delays['k1'], {window}h) > {of_key}",
        "two keys": f"sum(delays['k0', 'k2'], {window}h) < {2 * of_key}",
        "median": f"quantile(delays, 0.5, {window}h) > {buckets // 2}",
        "share of a key": f"cdf(delays['k1'], {buckets // 4}, {window}h) < 0.25",
    }
    rules = [
        Rule(name, text, parse_condition(text), confidence=c)
        for name, text in texts.items()
        for c in (0.9, 0.99)
    ]
    wrong, done, seed = np.zeros(len(rules)), 0, 0
    while done < EVALUATIONS:
        seed += 1
        for view in axes_view(keys, buckets, per_bucket, 7_000 + seed):
            found = readings(rules, view)
            if found[0] is not None and done < EVALUATIONS:
                done += 1
                wrong += [one is not None and one.past(two) for one, two in zip(found, rules, strict=True)]
    parts = {f"{one.name}, {one.confidence:g}": part for one, part in zip(rules, wrong / done, strict=True)}
    return {"evaluations": done, "streams": seed, "holds_wrongly": parts}


def distances() -> dict[str, object]:
    """Return the forecast of a rule over distances: never wrong more often than it says."""
    text = "ks(delays, 8h, 16h) > 0.1"
    watched = Rule("ks", text, parse_condition(text), confidence=0.99)
    found = forecast_distance(watched, axes_design(3, 12), None, HOUR_US, 20_000, SeededNoise(5))
    return {
        "events_in_a_window": 20_000,
        "evaluations": found.bins * found.paths,
        "holds_wrongly": found.false_alarm_rate,
        "shift": round(found.shift, 4),
        "noticed_after_bins": {"median": found.delay_bins[0], "95 of 100": found.delay_bins[1]},
    }


def axes_cost() -> dict[str, object]:
    """Return the time of one release for 10,000 rules over 100 keys, and over quantiles of them."""
    keys, buckets, per_bucket = 100, 20, 2
    rules = []
    for window in range(1, 11):
        of_key = window * per_bucket * buckets
        for key in range(keys):
            for step in range(8):
                text = f"sum(delays['k{key}'], {window}h) > {of_key + step}"
                rules.append(Rule(text, text, parse_condition(text), confidence=0.99))
            for step in range(2):
                text = f"quantile(delays['k{key}'], 0.5, {window}h) > {buckets // 2 + step}"
                rules.append(Rule(text, text, parse_condition(text), confidence=0.99))
    times_s = []
    for view in axes_view(keys, buckets, per_bucket, 1):
        if view.visible_seq > AXES_BINS - 5:
            start_s = time.process_time()
            evaluate(rules, {}, view, now_us=0)
            times_s.append(time.process_time() - start_s)
    return {
        "rules": len(rules),
        "keys": keys,
        "windows": 10,
        "first_cpu_s": round(times_s[0], 3),
        "median_cpu_s": round(float(np.median(times_s[1:])), 3),
    }


async def cost() -> dict[str, object]:
    """Return the time of one release for 10,000 rules."""
    rules = [
        rule(confidence, window, RATE * window + step)
        for window in range(1, 101)
        for confidence in (0.9, 0.95, 0.99, 0.999)
        for step in range(25)
    ]
    times_s = []
    async for view in views(7, [RATE] * 160):
        if view.visible_seq > 155:
            start_s = time.process_time()  # of this process: others may use the machine
            evaluate(rules, {}, view, now_us=0)
            times_s.append(time.process_time() - start_s)
    return {
        "rules": len(rules),
        "windows": 100,
        "confidences": 4,
        "median_cpu_s": round(float(np.median(times_s)), 3),
    }


async def measured() -> dict[str, object]:
    """Measure everything."""
    result: dict[str, object] = {}
    for name, measure in (
        ("cost", cost),
        ("cost_over_keys", axes_cost),
        ("after_a_shift", delays),
        ("at_the_threshold_anticipating", published_counts),
        ("at_the_threshold_over_keys_and_values", axes_calibration),
        ("distances", distances),
        ("at_the_threshold", calibration),
    ):
        found = measure()
        result[name] = await found if isinstance(found, Awaitable) else found
        print(json.dumps({name: result[name]}), flush=True)
    return result


def main() -> None:
    """Measure, write the result."""
    result = asyncio.run(measured())
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
