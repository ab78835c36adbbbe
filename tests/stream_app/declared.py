"""A small stream for the tests of the loops: ten-second bins, any tree."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from msgspec import structs

from dphist.privacy import Exact, exact
from dphist.tree.design import Release, TreeDesign
from dphist.tree.shape import TreeShape
from stream_app.config import StreamSettings
from stream_app.core.counting.bins import LatePolicy
from stream_app.core.counting.bounding import PerUser
from stream_app.core.counting.cells import Amounts, Buckets
from stream_app.core.counting.keys import KeyList
from stream_app.core.counting.where import Condition
from stream_app.core.declaration import Counted, Declaration, Log, Privacy, Replay, Time, Tree
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
    replay: tuple[int, int] | None = None,
    epsilon: Exact = 1,
    private: bool = True,
    user: PerUser | None = None,
    release: Release = "causal",
    late: LatePolicy = "next_bin",
    keys: KeyList | None = None,
    value: Buckets | None = None,
    where: Condition | None = None,
    count: Counted = None,
    amounts: Amounts | None = None,
    **time: Any,
) -> Declaration:
    """Return what the configuration of a stream declares.

    Args: replay, the two ends of the replayed range; time, changed facts about time.
    """
    return Declaration(
        source=Log(source, "ndjson", None if replay is None else Replay(*replay)),
        time=structs.replace(Time("at", "us", BIN_US, None, 0, 6, None, 1), **time),
        privacy=Privacy(exact(epsilon), "event" if user is None else user, "add_remove", private),
        tree=Tree("prefix", release, None, None),
        late=late,
        keys=keys,
        value=value,
        where=where,
        count=count,
        amounts=amounts,
    )


def changed(declared: Declaration, **parts: Any) -> Declaration:
    """Return a declaration with changed parts: a mapping of changed facts of a part, or a new part.

    >>> changed(declared_of(), time={"bin_us": 5}, late="drop").time.bin_us
    5
    """
    return structs.replace(
        declared,
        **{
            name: structs.replace(getattr(declared, name), **part) if isinstance(part, dict) else part
            for name, part in parts.items()
        },
    )


def changed_stream(stream: StreamSettings, **parts: Any) -> StreamSettings:
    """Return a stream with a changed declaration. Args: as for ``changed``."""
    return replace(stream, declared=changed(stream.declared, **parts))


def strategy_of(
    design: TreeDesign | None = None,
    *,
    stream: str = STREAM,
    bins: int | None = None,
    max_events: int | None = None,
    **facts: Any,
) -> Strategy:
    """Return a strategy with this tree.

    Args: bins, makes the stream a replay of this many bins; max_events, makes the user the unit, with this
        cap; facts, replace the facts about time.
    """
    design = design or design_of()
    first_us = FIRST_BIN * BIN_US
    declared = declared_of(
        replay=None if bins is None else (first_us, first_us + bins * BIN_US),
        epsilon=design.epsilon,
        private=False,
        user=None if max_events is None else PerUser("user", max_events),
        **{"first_us": first_us, "epoch_bins": design.horizon} | facts,
    )
    return Strategy(stream, declared, kind_of(design))
