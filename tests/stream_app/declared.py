"""A small stream for the tests of the loops: ten-second bins, any tree."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape
from stream_app.core.kinds import kind_of
from stream_app.core.strategy import Strategy

BIN_US = 10_000_000
FIRST_BIN = 100
STREAM = "visits"
SOURCE = "file:visits.ndjson"
NO_NOISE = Fraction(10**9)  # so large that the discrete Laplace draws zeros only


def design_of(branching: tuple[int, ...] = (2, 3), epsilon: Fraction = NO_NOISE) -> TreeDesign:
    """Return a design with equal shares whose horizon fills its tree."""
    shape = TreeShape(branching)
    shares = (Fraction(1, shape.height),) * shape.height
    return TreeDesign(shape, shape.capacity, epsilon, shares)


def strategy_of(
    design: TreeDesign | None = None,
    *,
    stream: str = STREAM,
    bins: int | None = None,
    max_events: int | None = None,
    **changed: Any,
) -> Strategy:
    """Return a strategy; ``bins`` makes it a replay of so many, ``changed`` overrides facts about time.

    With ``max_events`` its unit is the user.
    """
    design = design or design_of()
    first_us = FIRST_BIN * BIN_US
    replay = None if bins is None else {"from_us": first_us, "to_us": first_us + bins * BIN_US}
    time = {
        "field": "at",
        "format": "us",
        "bin_us": BIN_US,
        "timezone": None,
        "grace_us": 0,
        "first_us": first_us,
        "max_ahead_bins": 1,
    }
    unit = "event" if max_events is None else {"user": "user", "max_events": max_events}
    declared = {
        "source": {"name": SOURCE, "format": "ndjson", "replay": replay},
        "time": time | changed,
        "privacy": {"epsilon": str(design.epsilon), "unit": unit, "private": False},
        "late": "next_bin",
        "tree": {"workload": "prefix", "branching": None, "shares": None},
    }
    return Strategy(stream, SOURCE, declared, kind_of(design))
