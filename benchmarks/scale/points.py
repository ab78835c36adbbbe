"""The points that are measured: one set to fit the model, and two that check it.

A point is chosen so that its workers, Kafka, Redis and the producer fit together on two processors.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement: workers over one topic, all of whose streams have the same bins and keys.

    Args:
        bin_s: 0 measures reading: so many events wait in the topic, and no bin closes. Otherwise events come
            at ``events`` a second while bins of so many seconds close.
        events: in the topic, or a second.
        partitions: of the topic.
    """

    workers: int
    streams: int
    keys: int
    bin_s: int
    events: int
    partitions: int = 12

    @property
    def live(self) -> bool:
        """Whether bins close while events come."""
        return self.bin_s > 0


FITTED = (
    Point(1, 1, 1, 0, 1_000_000),
    Point(1, 20, 1, 0, 1_000_000),
    Point(1, 200, 1, 0, 600_000),
    Point(1, 5, 5_000, 0, 1_000_000),
    Point(1, 1, 100_000, 0, 400_000),
    Point(1, 20, 1_000, 0, 400_000),
    Point(1, 10, 100, 0, 800_000),
    Point(1, 10, 500, 0, 600_000),
    Point(2, 20, 1, 0, 1_000_000),
    Point(1, 1, 1, 5, 1),
    Point(1, 3, 1, 5, 8, 6),
    Point(1, 12, 1, 5, 25, 6),
    Point(1, 1, 1, 1, 100),
    Point(1, 20, 1, 1, 100),
    Point(1, 200, 1, 5, 100),
    Point(1, 200, 1, 5, 100, 2),
    Point(1, 1_000, 1, 20, 100),
    Point(1, 5, 20, 5, 10),
    Point(1, 10, 1, 5, 1_000),
    Point(1, 10, 300, 1, 2_000),
    Point(1, 2, 10_000, 5, 1_000),
    Point(1, 3, 5_000, 2, 2_000, 4),
    Point(1, 1, 1_000, 1, 100),
    Point(1, 20, 1_000, 5, 100),
    Point(1, 1, 100_000, 10, 100),
    Point(1, 2, 50, 1, 15_000),
    Point(2, 20, 1, 1, 100),
    Point(2, 1, 1, 1, 5_000),
    Point(2, 100, 1, 5, 50, 4),
    Point(3, 20, 20, 5, 100, 6),
    Point(3, 2, 5_000, 5, 300),
    Point(4, 20, 1, 0, 1_000_000),
    Point(4, 1, 1, 1, 400, 8),
    Point(4, 100, 1, 5, 50, 8),
)

# Places that somebody chose, and whose ratios were known while terms of the model were chosen.
KNOWN = (
    Point(1, 50, 100, 0, 500_000),
    Point(1, 50, 1, 2, 1_000),
    Point(1, 50, 100, 10, 2_000),
    Point(2, 50, 20, 5, 2_000),
    Point(1, 2, 20_000, 5, 500),
    Point(2, 30, 1, 2, 400),
    Point(3, 10, 20, 2, 300, 6),
    Point(4, 20, 1, 2, 400, 8),
    Point(4, 40, 1, 5, 1_000, 8),
)

WAITING = (  # those whose speed of reading the page shows
    Point(1, 1, 1, 0, 1_000_000),
    Point(1, 20, 1, 0, 1_000_000),
    Point(2, 20, 1, 0, 1_000_000),
    Point(4, 20, 1, 0, 1_000_000),
    Point(1, 200, 1, 0, 600_000),
    Point(1, 10, 100, 0, 800_000),
    Point(1, 20, 1_000, 0, 400_000),
    Point(1, 1, 100_000, 0, 400_000),
)

DELAYS = (  # those whose delays the page shows
    Point(1, 1, 1, 1, 100),
    Point(1, 20, 1, 1, 100),
    Point(2, 20, 1, 1, 100),
    Point(4, 1, 1, 1, 400, 8),
    Point(4, 20, 1, 2, 400, 8),
    Point(4, 100, 1, 5, 50, 8),
    Point(1, 50, 1, 2, 1_000),
    Point(1, 50, 100, 10, 2_000),
    Point(1, 200, 1, 5, 100, 2),
    Point(1, 200, 1, 5, 100),
    Point(1, 1_000, 1, 20, 100),
    Point(1, 2, 10_000, 5, 1_000),
    Point(1, 1, 100_000, 10, 100),
)

SEED = 23  # unless another one is given
DRAWN = 8
# What two processors, and the time of a measurement, can hold; per second but for the last.
MOST_EVENTS_OF_STREAMS, MOST_CLOSINGS, MOST_CLOSINGS_OF_KEYS = 100_000, 50, 20_000
MOST_AHEAD = 20_000_000  # draws of noise before the first bin, of all streams


def drawn(seed: int) -> Iterator[Point]:
    """Yield live points that nobody chose, evenly over the orders of magnitude of what can be measured."""
    chance = random.Random(seed)

    def size(least: float, most: float) -> int:
        return round(least * math.exp(chance.random() * math.log(most / least)))

    while True:
        workers, partitions, streams = chance.choice((1, 2, 3, 4)), size(2, 24), size(1, 200)
        bin_s = chance.choice([each for each in (1, 2, 5, 10) if streams <= MOST_CLOSINGS * each])
        keys = min(MOST_CLOSINGS_OF_KEYS, MOST_AHEAD // 3_600) * bin_s // streams
        keys = size(1, min(keys, 20_000))
        events = size(20, min(MOST_EVENTS_OF_STREAMS / streams, 15_000))
        yield Point(workers, streams, keys, bin_s, events, partitions)


def fresh(seed: int) -> tuple[Point, ...]:
    """Return the points that a seed draws."""
    return tuple(islice(drawn(seed), DRAWN))
