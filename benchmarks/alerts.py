"""Are alert rules as sure as they say? Calibration, delay and cost; JSON under results/.

    python -m benchmarks.alerts

- **at the threshold**: streams whose true window count is the threshold at every release; a rule with
  confidence c may hold at most at a part 1 - c of them. Neighbouring releases share noise, so many streams.
- **after a shift** of 3 standard errors: how many are noticed within the predicted delay, for noise that the
  prediction has not seen.
- **cost**: 10,000 rules decided at one release.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dphist import SeededNoise, plan_tree
from stream_app.core.alerts.forecast import forecast
from stream_app.core.alerts.readings import readings
from stream_app.core.alerts.rules import Rule, parse_condition
from stream_app.core.alerts.states import evaluate
from stream_app.core.query import StreamView
from stream_app.core.visible import visible_epochs
from stream_app.state.memory import MemoryStore
from tests.stream_app.published import HOUR_US, Published

RESULTS = Path(__file__).parent / "results" / "alerts.json"
BINS, WINDOW, RATE = 256, 8, 5
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
    result: dict[str, object] = {"cost": await cost()}
    print(result, flush=True)
    result["after_a_shift"] = await delays()
    print(result["after_a_shift"], flush=True)
    result["at_the_threshold_anticipating"] = published_counts()
    print(result["at_the_threshold_anticipating"], flush=True)
    result["at_the_threshold"] = await calibration()
    return result


def main() -> None:
    """Measure, write the result."""
    result = asyncio.run(measured())
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
