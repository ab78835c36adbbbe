"""Small streams over a file for tests of the loops: departures by carrier and delay, and visits of users."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from dphist import plan_product
from dphist.tree.design import Release
from stream_app.core.answers.query import StreamView
from stream_app.core.counting.cells import Buckets
from stream_app.core.counting.keys import KeyList
from stream_app.core.kinds import kind_of
from stream_app.core.strategy import Strategy
from tests.models.memory import MemoryStore
from tests.stream_app.declared import NO_NOISE, STREAM, strategy_of
from tests.stream_app.one_source import OneSource
from tests.world import surfaces

CARRIERS = ("UA", "AA", "7")
LOW, HIGH, BUCKETS = -10, 50, 12
Event = tuple[float, Any, Any]  # time in bins, carrier, delay

COUNTRIES = ("FR", "DE", "IT")
BINS = 15  # two epochs and a half
Visit = tuple[float, str, str]  # place on the time line in bins, user, country


def product_strategy(
    epsilon: Fraction = NO_NOISE,
    *,
    horizon: int = 6,
    other: bool = True,
    total: bool = False,
    value: bool = True,
    release: Release = "causal",
) -> Strategy:
    """Return a strategy over carriers and, with ``value``, delays."""
    keys = len(CARRIERS) + other
    share = Fraction(1, 5) if total else Fraction(0)
    product = plan_product(
        horizon,
        epsilon,
        keys,
        BUCKETS if value else 1,
        total_share=share,
        release=release,
        branching=(2, -(-horizon // 2)),
    )
    delays = Buckets("flight.delay", Fraction(LOW), Fraction(HIGH), BUCKETS)
    plain = strategy_of(
        product.time, keys=KeyList("carrier", CARRIERS, other, total), value=delays if value else None
    )
    return replace(plain, kind=kind_of(product))


class ProductSource(OneSource):
    """A file of departures, a store and a witness."""

    fields = ("carrier", "flight.delay")

    def append_events(self, events: Iterable[Event]) -> None:
        """Append departures. If a delay is None, its record has no delay."""
        self.append_events_of(
            (bin, {"carrier": carrier, "flight": {} if delay is None else {"delay": delay}})
            for bin, carrier, delay in events
        )

    def run_until(self, bin: int) -> None:
        """Count all events and close the bins before ``bin``."""
        asyncio.run(self.count_until(bin))


async def view_of(store: MemoryStore, stream: str = STREAM) -> StreamView:
    """Read everything that is visible."""
    return await surfaces.view_of(store, stream)


def bucket_of(delay: float) -> int:
    """Return a delay's bucket, by exact arithmetic."""
    place = (Fraction(str(delay)) - LOW) * BUCKETS / (HIGH - LOW)
    return int(min(max(place // 1, 0), BUCKETS - 1))


def recount(events: Iterable[Event], other: bool = True) -> Counter[tuple[int, int]]:
    """Count events by (bin, cell), one at a time."""
    counts: Counter[tuple[int, int]] = Counter()
    for bin, carrier, delay in events:
        label = str(carrier) if isinstance(carrier, str | int) else ""
        place = CARRIERS.index(label) if label in CARRIERS else len(CARRIERS) if other else None
        number = isinstance(delay, int | float) and not isinstance(delay, bool)
        if place is not None and number:
            counts[int(bin), place * BUCKETS + bucket_of(delay)] += 1
    return counts


def some_events(seed: int, bins: int, per_bin: int = 30) -> list[Event]:
    """Return random departures in order of time, some with unknown carriers or without a delay."""
    generator = np.random.default_rng(seed)
    carriers = [*CARRIERS, 7, "ZZ", None]
    events = []
    for place in np.sort(generator.uniform(0, bins, bins * per_bin)):
        delay: Any = [None, round(float(generator.normal(10, 30)), 1), int(generator.integers(-40, 90))][
            min(2, int(generator.integers(0, 20)))
        ]
        events.append((float(place), carriers[int(generator.integers(0, len(carriers)))], delay))
    return events


class Visits(OneSource):
    """A file of visits, a store and a witness."""

    fields = ("user", "country")
    run_until = OneSource.count_until

    def append_visits(self, visits: Iterable[Visit]) -> None:
        """Append visits."""
        self.append_events_of((bin, {"user": user, "country": country}) for bin, user, country in visits)
