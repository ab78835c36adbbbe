"""Every rule of generations holds after a loss of store and notes: only the witness has the settings."""

from __future__ import annotations

import random
from collections.abc import Collection
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from stream_app.core.declaration import Declaration
from stream_app.loops.segments import Released
from stream_app.loops.stream import Ports
from stream_app.ports.errors import OperatorError
from stream_app.wiring import segments as wiring
from tests.simulator.checks import Broken
from tests.simulator.generations import EdgeWorld, StartedByGenerations, drawn
from tests.simulator.schedule import BIN_US, Action, Deed, Schedule, seeds
from tests.simulator.world import run_world


class WithoutNotes(StartedByGenerations):
    """Workers that lose their notes with the store. A generation's first row in the witness has them."""

    world: EdgeWorld

    def patched(self) -> AbstractContextManager[object]:
        """Read no note after the loss."""
        patches = ExitStack()
        patches.enter_context(super().patched())
        patches.enter_context(patch.object(wiring, "_notes", self._left))
        return patches

    def _left(self, directory: Path, streams: Collection[str]) -> dict[str, Declaration]:
        return {} if self.world.observer.restored else dict(self.notes)

    async def witnessed(self, schedule: Schedule, ports: Ports, name: str) -> Released | None:
        """Return what the witness of a generation says, which has the notes as a topic has them."""
        return await super().witnessed(replace(schedule, witness_is_public=True), ports, name)


class AsksNoWitness(WithoutNotes):
    """A mutant: a start knows what the store and the notes know."""

    async def witnessed(self, schedule: Schedule, ports: Ports, name: str) -> Released | None:
        """Return nothing."""


def run(seed: int, pipeline: WithoutNotes) -> None:
    """Run a drawn schedule, in which a backup from before the change of settings is restored at last."""
    before, after, _ = drawn(seed)
    length_us, rng = before.bins * BIN_US, random.Random(f"lost notes {seed}")
    drawn_deeds = [
        one for one in before.actions if one.deed not in (Deed.BACKUP, Deed.RESTORE, Deed.CONFIGURE)
    ]
    changed = [Action(length_us * 3 // 10, Deed.CONFIGURE) for _ in range(before.workers)]
    lost = [Action(length_us // 4, Deed.BACKUP), Action(length_us * rng.randrange(7, 10) // 10, Deed.RESTORE)]
    actions = tuple(sorted([*drawn_deeds, *changed, *lost], key=lambda action: action.after_us))
    world = EdgeWorld(replace(before, actions=actions), replace(after, actions=actions), pipeline)
    pipeline.world = world
    run_world(world)


@pytest.mark.parametrize("seed", seeds(quick=5, all=60))
def test_every_rule_holds_where_a_backup_is_restored_without_notes(seed: int) -> None:
    run(seed, WithoutNotes())


def test_a_start_that_asks_no_witness_is_caught() -> None:
    def is_caught(seed: int) -> bool:
        try:
            run(seed, AsksNoWitness())
        except (AssertionError, Broken, OperatorError):  # a start that refuses what it has released itself
            return True
        return False

    assert any(map(is_caught, (3, 5, 9, 13)))
