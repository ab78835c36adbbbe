"""Are alert rules wrong as rarely as they say? Calibration and cost; JSON under results/.

    python -m benchmarks.alerts                    (make bench-alerts)
    python -m benchmarks.alerts cost      (only this part; the other results stay)

- **at the threshold**: in all streams the true count of the window is at the threshold at every release. A
  rule with confidence c may hold for at most 1 - c of them. Releases close together share noise, so many
  streams are drawn.
- **against the past**: the window has half the events of its past, whose bins share nodes with it or lie in
  the epoch before.
- **over keys and values**: the same for a key's count, two keys together, a quantile and a share, whose true
  value is at the threshold in every bin.
- **cost**: 10,000 rules decided at one release, over windows of one count, and over keys and quantiles.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist import SeededNoise, plan_product, plan_tree
from dphist.laws.law import WeightedNoise
from dphist.product.counter import ProductCounter
from dphist.tree.anticipating import new_counter
from dphist.tree.estimate import Estimate
from dphist.tree.weights import weighted_law
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.readings import margins, readings
from stream_app.core.alerts.rules import Rule
from stream_app.core.alerts.states import evaluate
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.visible import visible_epochs
from stream_app.core.counting.cells import Buckets
from stream_app.core.counting.keys import KeyList
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.tables import PUBLISHED, node_table
from stream_app.core.records import EpochRecord, PublicState
from stream_app.core.strategy import Strategy
from tests.models.memory import MemoryStore
from tests.stream_app.published import Published, declared

RESULTS = Path(__file__).parent / "results" / "alerts.json"
BINS, WINDOW, RATE = 256, 8, 5
PAST, AGO = 2 * WINDOW, 64
AXES_BINS = 64
EVALUATIONS = 20_000
CONFIDENCES = (0.9, 0.99, 0.999)
STREAMS = 500  # whose noise is drawn in one array


def rule(confidence: float, window: int = WINDOW, threshold: float = WINDOW * RATE) -> Rule:
    """Return a rule whose threshold is the true count of the window."""
    text = f"sum(departures, {window}h) > {threshold}"
    return Rule(f"c{confidence}-{window}-{threshold}", text, parse_condition(text), confidence=confidence)


async def views(seed: int, counts: Sequence[int], epsilon: str = "1") -> AsyncIterator[StreamView]:
    """Yield the view of one stream after each release."""
    stream = Published(MemoryStore(), epsilon=epsilon, epoch_bins=BINS, seed=seed)
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
    """Return the part of releases at which a rule holds although the true value is at the threshold.

    There is one part per confidence.
    """
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


def published_counts() -> dict[str, object]:
    """Return the part of releases at which a rule over an anticipating stream holds at the threshold.

    The rule's values are differences of published counts. The noise of hundreds of epochs is drawn in one
    array.
    """
    drawn = new_counter(plan_tree(BINS, 1.0, release="anticipating"), SeededNoise(90), STREAMS)
    wrong, done = np.zeros(len(CONFIDENCES)), 0
    for bin in range(BINS):
        drawn.push(np.zeros(STREAMS, np.int64))
        if bin >= WINDOW - 1:
            found, done = drawn.range(bin + 1 - WINDOW, bin + 1), done + STREAMS
            wrong += [(np.asarray(found.value) > margins([found], c)[0]).sum() for c in CONFIDENCES]
    parts = {str(confidence): part for confidence, part in zip(CONFIDENCES, wrong / done, strict=True)}
    return {"evaluations": done, "streams": STREAMS, "holds_wrongly": parts}


def past_counts() -> dict[str, object]:
    """Return the part of releases at which a rule holds although the window is half of its past."""
    wrong: dict[str, NDArray[np.float64]] = {}
    done: dict[str, int] = {}
    for release in ("causal", "anticipating"):
        design = plan_tree(BINS, 1.0, release=release)
        before, drawn = (new_counter(design, SeededNoise(seed), STREAMS) for seed in (91, 92))
        before.push_many(np.zeros((BINS, STREAMS), np.int64))
        for end in range(1, BINS + 1):
            drawn.push(np.zeros(STREAMS, np.int64))
            now, then = (end - WINDOW, end), (end - AGO - PAST, end - AGO)
            if now[0] < 0 or then[0] < 0 < then[1]:
                continue
            if then[0] >= 0:
                name, past = f"{release}, one epoch", drawn.range(*then)
                law = weighted_law(design, end, ((*now, 1.0), (*then, -0.5)))
            else:
                name, past = f"{release}, two epochs", before.range(then[0] + BINS, then[1] + BINS)
                law = WeightedNoise.weighted([(1.0, 1, drawn.range(*now).law), (0.5, 1, past.law)])
            found = np.asarray(drawn.range(*now).value) - 0.5 * np.asarray(past.value)
            estimate = Estimate(0.0, law.variance, law, drawn.range(*now).rounding + 0.5 * past.rounding)
            over = [(found > margins([estimate], c)[0]).sum() for c in CONFIDENCES]
            wrong[name], done[name] = wrong.get(name, 0) + np.array(over), done.get(name, 0) + STREAMS
    parts = {
        f"{name}, {confidence}": part / done[name]
        for name, of_name in wrong.items()
        for confidence, part in zip(CONFIDENCES, of_name.tolist(), strict=True)
    }
    return {"evaluations": done, "streams": STREAMS, "holds_wrongly": parts}


@lru_cache
def axes_strategy(keys: int, buckets: int, epsilon: str = "1") -> Strategy:
    """Return the strategy of a stream over keys and values."""
    product = plan_product(AXES_BINS, Fraction(epsilon), keys, buckets)
    names = tuple(f"k{n}" for n in range(keys))
    axes: dict[str, Any] = {
        "keys": KeyList("k", names, False, False),
        "value": Buckets("v", Fraction(0), Fraction(buckets), buckets),
    }
    return Strategy("delays", declared(epsilon, **axes), kind_of(product))


def axes_view(
    keys: int, buckets: int, counts: int | NDArray[np.int64], seed: int, epsilon: str = "1"
) -> Iterator[StreamView]:
    """Yield the view of a stream over keys and values after each release.

    Args: counts, the events of each bin and cell, shape (AXES_BINS, cells), or one number for all of them.
    """
    strategy = axes_strategy(keys, buckets, epsilon)
    product = strategy.kind.product
    assert product is not None
    epoch = EpochRecord(0, 0, AXES_BINS, 1, strategy.hash)
    cells = np.broadcast_to(counts, (AXES_BINS, product.cells))
    released = ProductCounter(product, SeededNoise(seed)).push_many(cells)
    rows = {node_table(level.level): level.values for level in released.levels}
    rows[PUBLISHED] = np.zeros((AXES_BINS, 1), np.int64)
    view = StreamView(strategy.to_json())
    for seq in range(1, AXES_BINS + 1):
        state = PublicState(strategy.to_json(), (epoch,), seq)
        wanted = view.missing(state)
        view.extend(state, [(want, rows[want.table][want.first : want.first + want.rows]) for want in wanted])
        yield view


def axes_calibration() -> dict[str, object]:
    """Return the part of releases at which rules over keys and values hold at the threshold."""
    window, per_bucket, keys, buckets = 8, 2, 3, 12
    of_key = window * per_bucket * buckets
    texts = {
        "one key": f"sum(delays['k1'], {window}h) > {of_key}",
        "two keys": f"sum(delays['k0', 'k2'], {window}h) < {2 * of_key}",
        "median": f"quantile(delays, 0.5, {window}h) > {buckets // 2}",
        "a key against its past": f"sum(delays['k1'], {window}h) > sum(delays['k1'], {window}h, 24h ago)",
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
            if None not in found and done < EVALUATIONS:
                done += 1
                wrong += [one is not None and one.past(two) for one, two in zip(found, rules, strict=True)]
    parts = {f"{one.name}, {one.confidence:g}": part for one, part in zip(rules, wrong / done, strict=True)}
    return {"evaluations": done, "streams": seed, "holds_wrongly": parts}


def axes_cost() -> dict[str, object]:
    """Return the time that 10,000 rules over 100 keys, and over quantiles of them, take at one release."""
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
    """Return the time that 10,000 rules take at one release."""
    rules = [
        rule(confidence, window, RATE * window + step)
        for window in range(1, 101)
        for confidence in (0.9, 0.95, 0.99, 0.999)
        for step in range(25)
    ]
    times_s = []
    async for view in views(7, [RATE] * 160):
        if view.visible_seq > 155:
            start_s = (
                time.process_time()
            )  # processor time of this process, because others may use the machine
            evaluate(rules, {}, view, now_us=0)
            times_s.append(time.process_time() - start_s)
    return {
        "rules": len(rules),
        "windows": 100,
        "confidences": 4,
        "median_cpu_s": round(float(np.median(times_s)), 3),
    }


async def measured(only: Sequence[str]) -> dict[str, object]:
    """Return all measurements, or only the named ones."""
    result: dict[str, object] = json.loads(RESULTS.read_text()) if only else {}
    for name, measure in (
        ("cost", cost),
        ("cost_over_keys", axes_cost),
        ("at_the_threshold_anticipating", published_counts),
        ("at_the_threshold_against_the_past", past_counts),
        ("at_the_threshold_over_keys_and_values", axes_calibration),
        ("at_the_threshold", calibration),
    ):
        if only and name not in only:
            continue
        found = measure()
        result[name] = await found if isinstance(found, Awaitable) else found
        print(json.dumps({name: result[name]}), flush=True)
    return result


def main() -> None:
    """Measure and write the results."""
    result = asyncio.run(measured(sys.argv[1:]))
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
