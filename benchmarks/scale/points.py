"""The loads that are measured: workers, Kafka, Redis and the producer of each fit on two processors."""

from __future__ import annotations

from dataclasses import dataclass


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


WAITING = (
    Point(1, 1, 1, 0, 1_000_000),
    Point(1, 20, 1, 0, 1_000_000),
    Point(2, 20, 1, 0, 1_000_000),
    Point(4, 20, 1, 0, 1_000_000),
    Point(1, 200, 1, 0, 600_000),
    Point(1, 10, 100, 0, 800_000),
    Point(1, 20, 1_000, 0, 400_000),
    Point(1, 1, 100_000, 0, 400_000),
)
LIVE = (
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
