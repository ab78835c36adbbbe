"""Settings that change while a stream runs: every rule holds, and an event costs the larger epsilon."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from stream_app.core.arrival import Arrival, LatePolicy
from stream_app.core.counting.bins import BinRules
from stream_app.core.ledger import statement
from stream_app.core.records import EpochRecord
from stream_app.core.segments.strategies import by_hash
from stream_app.loops import lost_entries
from stream_app.loops.closer import Closer
from stream_app.loops.next_epoch import Start
from stream_app.loops.noise_ahead import NoiseAhead
from tests.simulator.pipeline import Pipeline
from tests.simulator.schedule import BIN_US, SOURCE, Action, Deed, Schedule, draw_schedule, seeds
from tests.simulator.world import World, run_world


def changing(seed: int) -> Schedule:
    """Return a drawn schedule over time only, in which workers' configurations change several times."""
    drawn, rng = draw_schedule(seed), random.Random(f"changes {seed}")
    plain = replace(drawn, keys=1, buckets=1, window=0, sums=False, sides=False, over_epochs=False)
    plain = replace(plain, total=False, approximate=False, sibling=None)
    times = [rng.randrange(plain.bins * BIN_US) for _ in range(rng.choice([1, 2, 4]))]
    actions = [*plain.actions, *(Action(time, Deed.CONFIGURE) for time in times)]
    return replace(
        plain,
        actions=tuple(sorted(actions, key=lambda action: action.after_us)),
        changed_epsilon=rng.choice([Fraction(1, 3), Fraction(3)]),
        changed_branching=rng.choice([plain.branching, (plain.horizon,)]),
    )


def run(schedule: Schedule, pipeline: Pipeline | None = None) -> list[EpochRecord]:
    """Run a schedule, check what it cost, and return its epochs."""
    world = World(schedule, pipeline=pipeline)
    run_world(world)
    return asyncio.run(_checked(world))


async def _checked(world: World) -> list[EpochRecord]:
    """Check the ledger, and that the store and its readers know every epoch's strategy."""
    state = await world.store.load(world.schedule.name)
    public = await world.reader_state()
    assert state is not None
    assert public is not None
    epochs = world.store.streams[world.schedule.name].epochs
    assert {epoch.strategy_hash for epoch in epochs} <= by_hash(state.texts).keys()
    assert {epoch.strategy_hash for epoch in public.epochs} == by_hash(public.texts).keys()
    told = statement(SOURCE, await world.store.ledger(SOURCE))
    spent = {by_hash(state.texts)[epoch.strategy_hash].epsilon for epoch in epochs}
    assert told.epsilon <= max(Fraction(1), world.schedule.changed_epsilon or 0)
    assert told.epsilon >= max(spent)
    return epochs


def announcing(seed: int) -> Schedule:
    """Return a drawn schedule of any kind in which grace, late policy and earliness change several times."""
    drawn, rng = draw_schedule(seed), random.Random(f"announced {seed}")
    plain = replace(drawn, total=False, sibling=None, allowed=None)
    times = [rng.randrange(plain.bins * BIN_US) for _ in range(rng.choice([1, 2, 4]))]
    actions = [*plain.actions, *(Action(time, Deed.CONFIGURE) for time in times)]
    late: list[LatePolicy] = ["drop", "dead_letter"] if plain.period_bins else ["next_bin", "drop"]
    grace_us = rng.choice([0, BIN_US // 3, 2 * BIN_US])
    return replace(
        plain,
        actions=tuple(sorted(actions, key=lambda action: action.after_us)),
        changed_arrival=Arrival(grace_us, rng.choice([1, 3, 6]), rng.choice(late)),
    )


@pytest.mark.parametrize("seed", seeds(quick=8, all=200))
def test_every_rule_holds_while_what_arrival_decides_changes(seed: int) -> None:
    run(announcing(seed))


@pytest.mark.parametrize("seed", seeds(quick=6, all=150))
def test_every_rule_holds_while_settings_change(seed: int) -> None:
    run(changing(seed))


def calm(**others: Any) -> Schedule:
    """Return a schedule without faults in which the only worker's settings change in the first epoch."""
    action = Action(BIN_US, Deed.CONFIGURE)
    facts: dict[str, Any] = {"changed_epsilon": Fraction(2), "changed_branching": (4,), "actions": (action,)}
    return replace(Schedule(7).without_trouble(), **facts | others)


def test_settings_may_go_back_after_an_epoch_was_reserved_under_others() -> None:
    run(changing(33))


@pytest.mark.parametrize("release", ["anticipating", "causal"])
def test_the_next_epoch_has_the_changed_settings(release: Any) -> None:
    first, second, *others = run(calm(release=release))
    assert second.changed_from == first.strategy_hash != second.strategy_hash
    assert (first.end_reason, second.first_bin) == ("complete", first.first_bin + first.bins)
    assert all(epoch.strategy_hash == second.strategy_hash for epoch in others)
    assert all(epoch.changed_from is None for epoch in others)


class NoiseOfTheOtherSettings(Pipeline):
    """Noise is drawn ahead for the running settings, and used for whatever settings come next."""

    def patched(self) -> AbstractContextManager[object]:
        """Forget for which strategy noise was drawn."""
        stored: Callable[..., Any] = NoiseAhead.stored

        async def any_strategy(ahead: NoiseAhead, strategy: Any, epoch: int) -> Any:
            if ahead._ready is not None and ahead._ready[0] == epoch:
                ahead._ready = epoch, strategy.hash, ahead._ready[2]
            return await stored(ahead, strategy, epoch)

        async def for_the_running(closer: Closer, outage: Any) -> None:
            while True:
                await closer._ahead.draw_wanted(lambda: closer._strategy, closer._next_fits)
                outage.over()

        patches = ExitStack()
        patches.enter_context(patch.object(NoiseAhead, "stored", any_strategy))
        patches.enter_context(patch.object(Closer, "_draw_ahead", for_the_running))
        return patches


class LinkLeftOut(Pipeline):
    """The first epoch after a change does not name the strategy before."""

    def patched(self) -> AbstractContextManager[object]:
        """Open it as if the stream had never had another one."""

        def under(start: Any, strategy: Any, last_hash: str | None) -> Any:
            return start._replace(record=replace(start.record, strategy_hash=strategy.hash))

        return patch.object(Start, "under", under)


class InvisibleByTheLastSettings(Pipeline):
    """A witness that is ahead of the store is read as if all its rows had the settings of its last row."""

    def patched(self) -> AbstractContextManager[object]:
        """Ignore what the first row after a change says."""

        def strategies(rows: Any, known: Any) -> Any:
            last = {one.hash: one for one in known}[json.loads(rows[-1].row)["strategy"]] if rows else None
            return {json.loads(row.row)["strategy"]: last for row in rows}

        return patch.object(lost_entries, "strategies_of", strategies)


class LateByTheSettingsAfter(Pipeline):
    """A late record meets the late policy after the change, whichever bin was open when it arrived."""

    def patched(self) -> AbstractContextManager[object]:
        """Ignore the bin."""

        def late_is(rules: BinRules, policy: LatePolicy, earliest: Any) -> Any:
            late = rules.late if rules.change is None else rules.change.after.late
            return np.full(earliest.shape, late == policy)

        return patch.object(BinRules, "late_is", late_is)


@pytest.mark.parametrize(
    ("mutant", "schedules"),
    [
        (LateByTheSettingsAfter, [announcing(16)]),
        (LinkLeftOut, [calm()]),
        (NoiseOfTheOtherSettings, [calm()]),
        # One of them catches it; which, depends on each call that the loops make.
        (InvisibleByTheLastSettings, [changing(seed) for seed in (34, 68, 144, 155, 21, 33)]),
    ],
)
def test_mutants_are_caught(mutant: type[Pipeline], schedules: Sequence[Schedule]) -> None:
    def run_all() -> None:
        for schedule in schedules:
            run(schedule, mutant())

    with pytest.raises((AssertionError, ValueError, KeyError)):
        run_all()
