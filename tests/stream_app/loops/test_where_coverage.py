"""Intervals of a stream with a condition hold the number of matching events as often as they say.

One service counts 200 epochs, each with its own seeded noise. Each epoch is asked for three ranges.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from scipy.stats import binom

from dphist.tree.design import Release
from stream_app.core.answers.query import StreamView
from stream_app.core.counting.where import AnyOf, Not, OneOf, Present
from stream_app.core.kinds.tables import Span
from tests.stream_app.declared import FIRST_BIN, NO_NOISE, design_of, strategy_of
from tests.stream_app.loops.test_count_users import ServiceNoise
from tests.stream_app.one_source import OneSource
from tests.stream_app.product_stream import view_of

pytestmark = pytest.mark.slow

EPOCHS, EPOCH_BINS = 200, 6
RANGES = ((0, 1), (1, 4), (0, EPOCH_BINS))
FALSE_ALARM = 1e-7
WHERE = AnyOf((OneOf("user", ("ann",)), Not(Present("user"))))
MATCHING = {"ann", None}


def held_in(directory: Path, release: Release, epsilon: Fraction = Fraction(1)) -> Counter[str]:
    """Return in how many epochs the interval of each range holds the number of matching events."""
    view, truth = counted(directory, release, epsilon)
    held = Counter[str]()
    for start, stop in RANGES:
        for first in range(FIRST_BIN, FIRST_BIN + EPOCHS * EPOCH_BINS, EPOCH_BINS):
            exact = sum(truth[bin] for bin in range(first + start, first + stop))
            interval = view.count(Span(first + start, first + stop)).interval(0.95)
            held[f"bins {start} to {stop}"] += int(interval.lower <= exact <= interval.upper)
    return held


def counted(directory: Path, release: Release, epsilon: Fraction) -> tuple[StreamView, Counter[int]]:
    """Count random events of 200 epochs; return what is visible, and the matching events of each bin."""
    design = replace(design_of(epsilon=epsilon), release=release)
    rng, truth = random.Random(f"{release} {epsilon}"), Counter[int]()
    with closing(OneSource(directory, strategy_of(design, where=WHERE))) as one:

        async def run() -> StreamView:
            closer, ingest = one.closer(noise=ServiceNoise(rng.randrange(2**32))), one.ingest()
            await closer.reconcile()
            for first in range(FIRST_BIN, FIRST_BIN + EPOCHS * EPOCH_BINS, EPOCH_BINS):
                for bin in range(first, first + EPOCH_BINS):
                    users = [rng.choice(["ann", "bob", "eve", None]) for _ in range(rng.randrange(4))]
                    one.append_of(*((bin + rng.random(), user) for user in users))
                    truth[bin] = sum(user in MATCHING for user in users)
                one.clock.set_bin(first + EPOCH_BINS)
                while await ingest.step():
                    pass
                await closer.close_due()
            await closer.publisher.publish()
            return await view_of(one.store)

        return asyncio.run(run()), truth


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for more records at the end of the log."""
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)


@pytest.mark.parametrize(
    ("release", "epsilon"),
    [("causal", Fraction(1)), ("anticipating", Fraction(1)), ("anticipating", NO_NOISE)],
)
def test_intervals_hold_the_matching_events(tmp_path: Path, release: Release, epsilon: Fraction) -> None:
    least_hits = EPOCHS if epsilon == NO_NOISE else int(binom.ppf(FALSE_ALARM, EPOCHS, 0.95))
    for name, hits in held_in(tmp_path, release, epsilon).items():
        assert hits >= least_hits, (name, hits)
        # Intervals that hold always would be longer than they say.
        assert epsilon == NO_NOISE or hits < EPOCHS
