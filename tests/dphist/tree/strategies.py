"""Strategies for small trees of any shape, with different shares on every level."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import strategies as st

from dphist.privacy import Neighbours
from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape


@st.composite
def branchings(draw: st.DrawFn, most: int = 24) -> tuple[int, ...]:
    """Draw branching factors with a product of at most ``most``; sometimes the tree of one bin."""
    if draw(st.integers(0, 12)) == 0:
        return (1,)
    factors = [draw(st.integers(2, min(6, most)))]
    while math.prod(factors) * 2 <= most and draw(st.booleans()):
        factors.append(draw(st.integers(2, most // math.prod(factors))))
    return tuple(factors)


@st.composite
def designs(draw: st.DrawFn, most: int = 24, dyadic: bool = False) -> TreeDesign:
    """Draw designs whose shares differ from level to level. ``dyadic`` designs need no rounding of scales."""
    branching = draw(branchings(most))
    height = len(branching)
    if dyadic:
        parts = [Fraction(1, 2 ** (i + 1)) for i in range(height)]
    else:
        wanted = draw(st.lists(st.integers(1, 60), min_size=height, max_size=height, unique=True))
        parts = [Fraction(part, sum(wanted)) for part in wanted]
    neighbours: Neighbours = draw(st.sampled_from(["add_remove", "substitute"]))
    max_events = 1 if dyadic else draw(st.integers(1, 3))
    return TreeDesign(
        shape=TreeShape(branching),
        horizon=draw(st.integers(max(1, math.prod(branching) // 2), math.prod(branching))),
        epsilon=draw(st.sampled_from([Fraction(1), Fraction(1, 4), Fraction(2)]))
        if dyadic
        else draw(st.fractions(Fraction(1, 20), Fraction(8), max_denominator=50)),
        shares=tuple(draw(st.permutations(parts))),
        neighbours=neighbours,
        sensitivity=max_events * (2 if neighbours == "substitute" else 1),
    )


@st.composite
def weighted_ranges(draw: st.DrawFn, bins: int) -> tuple[tuple[int, int, float], ...]:
    """Draw ranges of the first ``bins`` bins with their weights. They may overlap."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        a, b = sorted(draw(st.integers(0, bins)) for _ in range(2))
        found.append((a, b, draw(st.sampled_from([1.0, -0.5, -1.25]))))
    return tuple(found)


@st.composite
def anticipating_designs(draw: st.DrawFn, most: int = 24) -> TreeDesign:
    """Draw anticipating designs. In many of them the horizon, which may be anywhere, cuts the tree off."""
    shape = TreeShape(draw(branchings(most)))
    horizon = draw(st.integers(1, shape.capacity))
    epsilon = draw(st.sampled_from([Fraction(1), Fraction(1, 4), Fraction(5, 3)]))
    wanted = draw(st.lists(st.integers(1, 60), min_size=shape.height, max_size=shape.height))
    shares = tuple(Fraction(part, sum(wanted)) for part in wanted)
    return TreeDesign(shape, horizon, epsilon, shares, release="anticipating")
