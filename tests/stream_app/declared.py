"""A small stream for the tests of the loops: ten-second bins, any tree."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dphist.tree.design import Release, TreeDesign
from dphist.tree.shape import TreeShape
from stream_app.core.bins import LatePolicy
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


def declared_of(
    *,
    source: str = SOURCE,
    format: str = "ndjson",
    replay: tuple[int, int] | None = None,
    epsilon: object = 1,
    private: bool = True,
    user: tuple[str, int] | None = None,
    release: Release = "causal",
    late: LatePolicy = "next_bin",
    keys: Mapping[str, Any] | None = None,
    value: Mapping[str, Any] | None = None,
    **time: Any,
) -> dict[str, Any]:
    """Return what the configuration of a stream declares.

    Args: replay, its two ends; user, the field and the cap; keys and value as declared; time, changed facts.
    """
    axes = {"keys": keys, "value": value}
    return {
        "source": {
            "name": source,
            "format": format,
            "replay": replay and dict(zip(("from_us", "to_us"), replay, strict=True)),
        },
        "time": {
            "field": "at",
            "format": "us",
            "bin_us": BIN_US,
            "timezone": None,
            "grace_us": 0,
            "epoch_bins": 6,
            "first_us": None,
            "max_ahead_bins": 1,
        }
        | time,
        "privacy": {
            "epsilon": str(epsilon),
            "unit": "event" if user is None else {"user": user[0], "max_events": user[1]},
            "neighbours": "add_remove",
            "private": private,
        },
        "tree": {"workload": "prefix", "release": release, "branching": None, "shares": None},
        "late": late,
    } | {axis: dict(said) for axis, said in axes.items() if said is not None}


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
    declared = declared_of(
        replay=None if bins is None else (first_us, first_us + bins * BIN_US),
        epsilon=design.epsilon,
        private=False,
        user=None if max_events is None else ("user", max_events),
        **{"first_us": first_us, "epoch_bins": design.horizon} | changed,
    )
    return Strategy(stream, SOURCE, declared, kind_of(design))
