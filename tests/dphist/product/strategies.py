"""Small designs over time, keys and values, with different shares on every level, and what they release."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from dphist.arrays import Int64Array
from dphist.noise import NoiseSource, SeededNoise
from dphist.product.axis import KeyAxis, ValueAxis
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from dphist.product.forest import ProductForest, RangeSum
from dphist.product.published import CellTotals, draw_errors, publish_bins, published_range
from dphist.tree.shape import TreeShape
from tests.dphist.tree.strategies import branchings, designs


@st.composite
def value_axes(draw: st.DrawFn, most: int = 12) -> ValueAxis:
    """Draw value axes, many of them below the tree's capacity. Their shares add up to 1."""
    shape = TreeShape(draw(branchings(most)))
    wanted = draw(st.lists(st.integers(1, 60), min_size=shape.height, max_size=shape.height, unique=True))
    buckets = draw(st.integers(max(1, shape.capacity // 2), shape.capacity))
    return ValueAxis(buckets, shape, tuple(Fraction(part, sum(wanted)) for part in wanted))


@st.composite
def product_designs(draw: st.DrawFn, dyadic: bool = False) -> ProductDesign:
    """Draw designs over three axes. ``dyadic`` designs spend all of epsilon; no scale is rounded."""
    time = draw(designs(8, dyadic=dyadic))
    values = draw(value_axes(6))
    if dyadic:
        height = values.shape.height
        halves = tuple(Fraction(1, 2 ** (level + 1)) for level in range(height))
        values = ValueAxis(values.shape.capacity, values.shape, halves)
    keys = draw(st.integers(1, 3))
    total = Fraction(0)
    if keys > 1 and draw(st.booleans()):
        total = (
            Fraction(1, 2)
            if dyadic
            else draw(st.fractions(Fraction(1, 20), Fraction(9, 10), max_denominator=40))
        )
    return ProductDesign(time, KeyAxis(keys, 1 - total, total), values)


def spent(design: ProductDesign) -> Fraction:
    """Return the part of epsilon that the shares of all axes spend."""
    return (
        sum(design.time.shares, Fraction(0))
        * sum(design.values.shares, Fraction(0))
        * (design.keys.key_share + design.keys.total_share)
    )


def cells_of(design: ProductDesign, seed: int) -> Int64Array:
    """Return random counts of all cells and bins of an epoch."""
    return np.random.default_rng(seed).integers(0, 9, (design.time.horizon, design.cells))


def forest_of(design: ProductDesign, cells: Int64Array, noise: NoiseSource) -> ProductForest:
    """Return the nodes that a counter releases of some bins."""
    forest = ProductForest(design)
    forest.append_many(ProductCounter(design, noise).push_many(cells))
    return forest


def released(design: ProductDesign, cells: Int64Array, seed: int, a: int, b: int) -> RangeSum:
    """Release some bins with seeded noise; return the counts of all cells over bins [a, b)."""
    noise = SeededNoise(seed)
    if design.time.anticipates:
        errors = draw_errors(design, noise)[: len(cells)]
        rows, _ = publish_bins(design, CellTotals.first(design), cells, errors)
        return published_range(design, rows, a, b)
    return forest_of(design, cells, noise).range(a, b)


def span(axis: ValueAxis, level: int, node: int) -> range:
    """Return the buckets under a node, by definition."""
    width = math.prod(axis.shape.branching[level:])
    return range(node * width, min((node + 1) * width, axis.buckets))
