"""Streams that end at an edge where others go on: every rule holds for both, and an event counts in one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulator.generations import EdgeWorld, StartedByGenerations, drawn
from tests.simulator.schedule import seeds
from tests.simulator.world import run_world


def run(seed: int, pipeline: StartedByGenerations | None = None, trace: Any = None) -> EdgeWorld:
    """Run a drawn schedule in which the settings of a stream change."""
    before, after, _ = drawn(seed)
    world = EdgeWorld(before, after, pipeline or StartedByGenerations(), trace)
    run_world(world)
    return world


@pytest.mark.parametrize("seed", seeds(quick=10, all=300))
def test_every_rule_holds_while_generations_begin(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("seed", seeds(quick=6, all=150))
def test_every_rule_holds_where_a_successor_begins(seed: int) -> None:
    before, after, edge_us = drawn(seed)
    run_world(EdgeWorld(before, after, StartedByGenerations(edge_us)))
