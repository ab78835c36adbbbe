"""Streams that end at an edge where others go on: every rule holds for both, and an event counts in one."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.simulator.checks import Broken
from tests.simulator.edge_mutants import (
    CountedInBoth,
    EndedUnseen,
    EndNotStored,
    LateCountedTwice,
    LateLost,
    NotFollowed,
    OpenedByBoth,
    WitnessNotAsked,
)
from tests.simulator.generations import SETTINGS, EdgeWorld, StartedByGenerations, drawn
from tests.simulator.schedule import BIN_US, Action, Deed, Schedule, seeds
from tests.simulator.world import run_world

pytestmark = pytest.mark.slow


def run(seed: int, pipeline: StartedByGenerations | None = None, trace: Any = None) -> EdgeWorld:
    """Run a drawn schedule in which the settings of a stream change."""
    before, after, _ = drawn(seed)
    world = EdgeWorld(before, after, pipeline or StartedByGenerations(), trace)
    run_world(world)
    return world


@pytest.mark.parametrize("seed", seeds(quick=10, all=120))
def test_every_rule_holds_while_generations_begin(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("seed", seeds(quick=10, all=120))
def test_every_rule_holds_while_epsilon_tree_grace_or_late_policy_change(seed: int) -> None:
    before, after, _ = drawn(seed, SETTINGS)
    run_world(EdgeWorld(before, after, StartedByGenerations()))


def test_a_slow_start_begins_again_where_another_worker_has_begun_a_generation() -> None:
    run(122)


def test_a_reader_leaves_a_generation_that_ends_while_it_counts() -> None:
    run(84)


def test_a_worker_goes_on_where_another_one_began_the_generation() -> None:
    """After two losses of the store, both found another edge."""
    run(1454)


@pytest.mark.parametrize("seed", seeds(quick=5, all=60))
def test_every_rule_holds_where_a_backup_from_before_the_change_is_restored(seed: int) -> None:
    """Only the rows of the witness tell the settings."""
    [before, after, _], rng = drawn(seed), random.Random(f"lost {seed}")
    length_us = before.bins * BIN_US
    drawn_deeds = [
        one for one in before.actions if one.deed not in (Deed.BACKUP, Deed.RESTORE, Deed.CONFIGURE)
    ]
    changed = [Action(length_us * 3 // 10, Deed.CONFIGURE) for _ in range(before.workers)]
    lost = [Action(length_us // 4, Deed.BACKUP), Action(length_us * rng.randrange(7, 10) // 10, Deed.RESTORE)]
    actions = tuple(sorted([*drawn_deeds, *changed, *lost], key=lambda action: action.after_us))
    both = [replace(one, actions=actions) for one in (before, after)]
    run_world(EdgeWorld(both[0], both[1], StartedByGenerations()))


@pytest.mark.parametrize("seed", seeds(quick=6, all=60))
def test_every_rule_holds_where_a_successor_begins(seed: int) -> None:
    before, after, edge_us = drawn(seed)
    run_world(EdgeWorld(before, after, StartedByGenerations(edge_us)))


def calm(seed: int, *deeds: tuple[float, Deed]) -> tuple[Schedule, Schedule]:
    """Return drawn settings without faults. Args: deeds, each with its instant in bins."""
    before, after, _ = drawn(seed)
    actions = tuple(Action(int(at * BIN_US), deed) for at, deed in deeds)
    before, after = (
        replace(one, fault_rate=0.0, stall_rate=0.0, actions=actions, bins=16) for one in (before, after)
    )
    return before, after


SET_BACK = ((0.5, Deed.BACKUP), (1.0, Deed.CONFIGURE), (11.0, Deed.RESTORE))


@pytest.mark.parametrize(
    ("mutant", "schedules", "caught"),
    [
        (EndNotStored, [calm(0, (1.0, Deed.CONFIGURE))], "has no stored end"),
        (OpenedByBoth, [drawn(seed)[:2] for seed in (3, 19, 21)], "opens a second time"),
        (CountedInBoth, [drawn(seed)[:2] for seed in (3, 5, 9, 13)], "counts"),
        (LateLost, [drawn(seed, SETTINGS)[:2] for seed in (12, 57)], "does not count the events at"),
        (LateCountedTwice, [drawn(seed, SETTINGS)[:2] for seed in range(8)], "released by|counts"),
        (EndedUnseen, [drawn(seed)[:2] for seed in (24, 39, 33)], "stuck"),
        (NotFollowed, [drawn(seed)[:2] for seed in (8, 89, 98)], "stuck"),
        (WitnessNotAsked, [calm(seed, *SET_BACK) for seed in (5, 7, 9)], "released by|stuck"),
    ],
)
def test_mutants_are_caught(
    mutant: type[StartedByGenerations], schedules: list[tuple[Schedule, Schedule]], caught: str
) -> None:
    """One of the schedules catches it; which, depends on each call that the loops make."""

    def run_all() -> None:
        for before, after in schedules:
            run_world(EdgeWorld(before, after, mutant()))

    with pytest.raises(Broken, match=caught):
        run_all()
