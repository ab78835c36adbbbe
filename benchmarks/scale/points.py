"""The points that are measured: one set to fit the model, another set to check it."""

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


FITTED = (
    Point(1, 1, 1, 0, 2_000_000),
    Point(1, 20, 1, 0, 2_000_000),
    Point(1, 200, 1, 0, 600_000),
    Point(1, 5, 5_000, 0, 1_000_000),
    Point(1, 1, 100_000, 0, 400_000),
    Point(1, 20, 1_000, 0, 400_000),
    Point(1, 10, 100, 0, 800_000),
    Point(1, 10, 500, 0, 600_000),
    Point(4, 20, 1, 0, 2_000_000),
    Point(1, 1, 1, 1, 100),
    Point(1, 20, 1, 1, 100),
    Point(1, 200, 1, 5, 100),
    Point(1, 200, 1, 5, 100, 2),
    Point(1, 1_000, 1, 20, 100),
    Point(1, 10, 1, 5, 1_000),
    Point(1, 10, 300, 1, 2_000),
    Point(1, 2, 10_000, 5, 1_000),
    Point(1, 1, 1_000, 1, 100),
    Point(1, 20, 1_000, 5, 100),
    Point(1, 1, 100_000, 10, 100),
    Point(1, 1, 1, 1, 10_000),
    Point(4, 20, 1, 1, 100),
    Point(4, 1, 1, 1, 5_000),
)

HELD_OUT = (
    Point(1, 5, 1, 0, 1_500_000),
    Point(1, 50, 100, 0, 1_000_000),
    Point(2, 10, 1_000, 0, 1_000_000),
    Point(1, 50, 1, 2, 1_000),
    Point(1, 5, 200, 1, 3_000),
    Point(2, 50, 20, 5, 2_000),
    Point(3, 5, 1, 1, 2_000),
    Point(1, 500, 1, 20, 500),
    Point(1, 2, 20_000, 5, 500),
    Point(1, 8, 400, 0, 1_000_000),
    Point(1, 400, 1, 10, 100, 3),
    Point(1, 3, 5_000, 2, 2_000, 4),
    Point(4, 30, 1, 2, 400),
    Point(1, 2, 50, 1, 15_000),
)
