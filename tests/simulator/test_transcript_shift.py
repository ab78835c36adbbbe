"""Transcript shift test: out(x, z) == out(x', z + R(x - x')), exactly, for whole transcripts.

The privacy proof rests on this step (docs/privacy.md, section 3): what a stream makes public depends on its
counts only through Rx + Z. The tests check everything that is public, without a tolerance, for every
insertion time. For tiny trees they also try every noise, in exact fractions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.privacy import path_epsilon
from dphist.tree.counter import CounterSnapshot, TreeCounter
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import ReleasedForest
from dphist.tree.release import BinRelease
from dphist.tree.shape import TreeShape
from tests.examples import examples
from tests.simulator.given_noise import GivenNoise, Node, node_sums, shifted, touched_nodes

pytestmark = pytest.mark.slow

Counter = Callable[..., TreeCounter]


def design_of(branching: tuple[int, ...], horizon: int | None = None) -> TreeDesign:
    """Return a design whose levels all have different scales."""
    shape = TreeShape(branching)
    total = sum(range(1, shape.height + 1))
    shares = tuple(Fraction(level, total) for level in shape.levels)
    return TreeDesign(shape, horizon or shape.capacity, Fraction(1, 2), shares)


def released(release: BinRelease) -> tuple[Any, ...]:
    """Return everything public that one bin releases, as plain integers."""
    nodes = tuple((node.level, node.index, tuple(node.values.tolist())) for node in release.nodes)
    return nodes, tuple(release.published.tolist())


def transcript(
    design: TreeDesign,
    counts: np.ndarray,
    noise: Mapping[Node, np.ndarray],
    steps: list[int],
    make: Counter = TreeCounter,
) -> tuple[Any, ...]:
    """Push the counts in steps of several bins; return all public values.

    Between steps the counter is restored from its snapshot.
    """
    width = counts.shape[1]
    source = GivenNoise(design, noise, width)
    counter = make(design, source, width=width)
    rows: list[tuple[Any, ...]] = []
    forest = ReleasedForest(design, width=width)
    for step in steps:
        pushed = counter.push_many(counts[len(rows) : len(rows) + step])
        for position in range(step):
            release = pushed.bin(position)
            forest.append(release)
            estimate = forest.live_prefix(len(rows) + 1)
            rows.append((released(release), tuple(np.ravel(estimate.value).tolist()), estimate.variance))
        snapshot = CounterSnapshot.from_bytes(counter.snapshot().to_bytes())
        counter = make.restore(design, source, snapshot)  # type: ignore[attr-defined]
    return tuple(rows)


@st.composite
def streams(draw: st.DrawFn) -> tuple[TreeDesign, np.ndarray, dict[Node, np.ndarray], list[int]]:
    """Draw a small tree, counts, noise for each node, and how many bins are pushed at a time."""
    branching = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3).map(tuple))
    shape = TreeShape(branching)
    horizon = draw(st.integers(1, min(shape.capacity, 12)))
    width = draw(st.integers(1, 2))
    counts = draw(st.lists(st.integers(0, 9), min_size=horizon * width, max_size=horizon * width))
    nodes = [(level, i) for level in shape.levels for i in range(horizon // shape.widths[level])]
    values = st.lists(st.integers(-20, 20), min_size=width, max_size=width).map(np.array)
    noise = {node: draw(values) for node in nodes}
    steps: list[int] = []
    while sum(steps) < horizon:
        steps.append(draw(st.integers(1, horizon - sum(steps))))
    return design_of(branching, horizon), np.array(counts).reshape(horizon, width), noise, steps


@examples(40)
@given(streams(), st.data())
def test_one_event_moves_the_transcript_as_its_noise_would(stream: Any, data: st.DataObject) -> None:
    design, counts, noise, steps = stream
    expected = transcript(design, counts, noise, steps)
    cell = data.draw(st.integers(0, counts.shape[1] - 1))
    for bin in range(len(counts)):
        change = np.zeros_like(counts)
        change[bin, cell] = 1
        neighbour = transcript(
            design, counts + change, shifted(design.shape, noise, -change), [1] * len(counts)
        )
        assert neighbour == expected


@examples(20)
@given(streams())
def test_the_shift_costs_at_most_epsilon(stream: Any) -> None:
    """Losses |shift| / scale add up over the nodes that one event touches, at the scales really drawn."""
    design, counts, noise, _ = stream
    source = GivenNoise(design, noise, counts.shape[1])
    TreeCounter(design, source, width=counts.shape[1]).push_many(counts)
    assert all(len(scales) == 1 for scales in source.drawn.values())
    for bin in range(len(counts)):
        path = [source.drawn[node][0] for node in touched_nodes(design.shape, bin) if node in source.drawn]
        assert path_epsilon(path, design.sensitivity) <= design.epsilon


def outcomes(
    design: TreeDesign, counts: list[int], reach: int, ratio: Mapping[int, Fraction], make: Counter
) -> dict[Any, Fraction]:
    """Return P(transcript) up to one constant, over all noise in [-reach, reach], as exact fractions.

    ``ratio[level]`` is P(z + 1) / P(z) for z >= 0. It replaces exp(-1 / scale) by a fraction.
    """
    nodes = list(node_sums(design.shape, np.array(counts)[:, None]))
    table: dict[Any, Fraction] = {}
    for values in itertools.product(range(-reach, reach + 1), repeat=len(nodes)):
        noise = {node: np.array([z]) for node, z in zip(nodes, values, strict=True)}
        counter = make(design, GivenNoise(design, noise))
        row = tuple(released(counter.push(count)) for count in counts)
        weight = Fraction(1)
        for (level, _), z in zip(nodes, values, strict=True):
            weight *= ratio[level] ** abs(z)
        table[row] = table.get(row, Fraction(0)) + weight
    return table


def loss_violations(
    design: TreeDesign, counts: list[int], neighbour: list[int], make: Counter = TreeCounter
) -> list[Any]:
    """Return the outcomes that are more than e^epsilon likelier under the counts than under the neighbour.

    The neighbour's noise reaches one unit further. So every outcome that is possible under the counts must be
    possible under the neighbour too. An outcome that is possible only under the counts is a violation.
    """
    ratio = {level: Fraction(level, level + 1) for level in design.shape.levels}
    bound = Fraction(1)
    for level in design.shape.levels:
        bound /= ratio[level]
    ours = outcomes(design, counts, 1, ratio, make)
    theirs = outcomes(design, neighbour, 2, ratio, make)
    return [row for row, weight in ours.items() if weight > bound * theirs.get(row, Fraction(0))]


@pytest.mark.parametrize(
    ("branching", "counts"),
    [((2,), [1, 0]), ((3,), [0, 2, 1]), pytest.param((2, 2), [1, 0, 2], marks=pytest.mark.slow)],
)
def test_every_outcome_of_a_tiny_tree_is_possible_for_its_neighbours(
    branching: tuple[int, ...], counts: list[int]
) -> None:
    design = design_of(branching, len(counts))
    for bin in range(len(counts)):
        more = [*counts[:bin], counts[bin] + 1, *counts[bin + 1 :]]
        assert not loss_violations(design, counts, more)
        assert not loss_violations(design, more, counts)


class NeverNegative(TreeCounter):
    """Mutant: a node is clipped at zero if its exact count is zero, which reveals that it is."""

    def push(self, counts: Any) -> BinRelease:
        release = super().push(counts)
        for node in release.nodes:
            if not np.any(counts):
                np.maximum(node.values, 0, out=node.values)
        return release


class CoarseNoise(TreeCounter):
    """Mutant: an odd draw of noise is moved by one, in a direction that the parity of the count decides."""

    def push(self, counts: Any) -> BinRelease:
        release = super().push(counts)
        for node in release.nodes:
            node.values[...] = 2 * (node.values // 2) + np.asarray(counts) % 2
        return release


@pytest.mark.parametrize("mutant", [NeverNegative, CoarseNoise])
def test_the_enumeration_catches(mutant: Counter) -> None:
    design = design_of((2,), 2)
    caught = loss_violations(design, [0, 1], [1, 1], mutant) + loss_violations(design, [1, 1], [0, 1], mutant)
    assert caught
