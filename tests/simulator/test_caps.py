"""Which of a capped user's records count depends on that user's records alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from stream_app.core.counting.bounding import CapWindows
from tests.simulator.cap_mutants import CountsAgain, FirstApplied, OneTooMany
from tests.simulator.checks import Broken
from tests.simulator.conditions import CONDITIONS, EVERYTHING
from tests.simulator.counting_mutants import (
    CapsByKey,
    OneAmountOfAUser,
    UsersForgottenAtACrash,
    WhereAfterCap,
)
from tests.simulator.log import USERS
from tests.simulator.neighbours import binned, other_day
from tests.simulator.pipeline import Pipeline
from tests.simulator.schedule import BIN_US, Action, Deed, Schedule, draw_schedule, seeds
from tests.simulator.world import World, run_schedule

pytestmark = pytest.mark.slow

# These conditions take all or no records of a user, so unmatched records use up nobody's cap.
ONE_USER = {"present", "not"}


def capped(seed: int) -> Schedule:
    """Return a schedule with several partitions, many events, and a cap of few events per user.

    Restores are left out. A restored store drops bins, and what these bins have used up of a user's cap
    depends on whether they were tallied before.
    """
    schedule = draw_schedule(seed)
    return replace(
        schedule,
        partitions=max(2, schedule.partitions),
        events_per_bin=10.0,
        max_events=1 + seed % 3,
        sums=False,
        count="users" if seed % 3 == 0 else None,
        actions=tuple(action for action in schedule.actions if action.deed is not Deed.RESTORE),
    )


def summed(seed: int) -> Schedule:
    """Return a capped schedule that adds up amounts by key; half of them have a second key field."""
    plain = replace(capped(seed), count=None, sibling=None, buckets=1, window=0, over_epochs=False)
    return replace(plain, keys=3, sides=seed % 2 == 1, sums=True)


@pytest.fixture(autouse=True)
def _one_shard_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tally one shard per step, so that faults strike between the steps."""
    monkeypatch.setattr("tests.models.memory_stream.LARGEST_TALLY_SHARDS", 1)


@pytest.mark.parametrize("seed", seeds(quick=8, all=24))
def test_every_rule_holds_where_few_events_of_a_user_count(seed: int) -> None:
    run_schedule(seed, schedule=capped(seed))


@pytest.mark.parametrize("seed", seeds(quick=4, all=24))
def test_every_rule_holds_where_few_amounts_of_a_user_count(seed: int) -> None:
    run_schedule(seed, schedule=summed(seed))


@pytest.mark.parametrize("mutant", [CapsByKey, OneAmountOfAUser])
def test_the_recount_of_capped_amounts_catches(mutant: type[Pipeline]) -> None:
    with pytest.raises(Broken, match="the log and its cuts give"):
        _run_all([summed(seed) for seed in range(20)], mutant())


@pytest.mark.parametrize("seed", seeds(quick=2, all=8))
def test_each_users_counted_events_are_those_of_a_log_of_their_own(seed: int) -> None:
    """The other users' records and the faults differ between the two runs."""
    differences = list(_differences(seed))
    assert differences == [Counter()] * len(differences)


def test_the_recount_catches_counting_in_order_of_application() -> None:
    def run_until_caught() -> None:
        for seed in range(60):
            run_schedule(seed, pipeline=FirstApplied(), schedule=capped(seed))

    with pytest.raises(Broken, match="the log and its cuts give"):
        run_until_caught()


def test_a_user_who_counts_twice_in_an_epoch_is_caught() -> None:
    users = replace(capped(0), fault_rate=0.0, stall_rate=0.0, actions=(), workers=1, sibling=None)
    assert users.strategy.declared.count == "users"
    run_schedule(0, schedule=users)
    with pytest.raises(Broken, match="the log and its cuts give"):
        run_schedule(0, pipeline=CountsAgain(), schedule=users)


def keyed(seed: int) -> Schedule:
    """Return a schedule with caps on each user's keys; every second one has a cap on all events as well."""
    caps: dict[str, Any] = {
        "max_keys": 1 + seed % 2,
        "max_per_key": 1 + seed % 3,
        "max_events": 2 * (seed % 2),
    }
    axes: dict[str, Any] = {"keys": 3, "buckets": 1 + 3 * (seed % 2), "window": 0, "over_epochs": False}
    return replace(capped(seed), count=None, sides=False, **caps, **axes)


def of_hours(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> Schedule:
    """Return the schedule with a user's hour as the unit; an hour has two bins here."""
    monkeypatch.setattr("stream_app.core.declaration.PERIODS", {"1h": 2 * BIN_US})
    even: dict[str, Any] = {"branching": (2, 2), "horizon": 4, "period_bins": 2}
    return replace(schedule, late="drop", sibling=None, **even)


@pytest.mark.parametrize("seed", seeds(quick=3, all=24))
def test_every_rule_holds_under_caps_on_keys(seed: int) -> None:
    run_schedule(seed, schedule=keyed(seed))


@pytest.mark.parametrize("seed", seeds(quick=3, all=24))
def test_every_rule_holds_where_the_unit_is_a_user_s_hour(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_schedule(seed, schedule=of_hours(keyed(seed), monkeypatch))


@pytest.mark.parametrize("seed", seeds(quick=1, all=8))
@pytest.mark.parametrize("hours", [False, True])
def test_each_users_events_in_keys_are_those_of_a_log_of_their_own(
    seed: int, hours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other users' records, their partitions and the faults differ between the two runs."""
    schedule = of_hours(keyed(seed), monkeypatch) if hours else keyed(seed)
    differences = list(_differences_of(schedule, seed))
    assert differences == [Counter()] * len(differences)


@pytest.mark.parametrize("cap", ["max_keys", "max_per_key", "max_events"])
def test_the_recount_catches_one_too_many_under_each_cap(cap: str) -> None:
    """A cap is caught where it alone binds: one key, one event of a key, or three events in all."""
    each: dict[str, dict[str, Any]] = {
        "max_keys": {"max_keys": 1, "max_per_key": 9, "max_events": 9},
        "max_per_key": {"max_keys": 3, "max_per_key": 1, "max_events": 9},
        "max_events": {"max_keys": 3, "max_per_key": 9, "max_events": 3},
    }
    calm = replace(keyed(0), fault_rate=0.0, stall_rate=0.0, actions=(), workers=1, sibling=None, **each[cap])
    run_schedule(0, schedule=calm)
    with pytest.raises(Broken, match="the log and its cuts give"):
        run_schedule(0, pipeline=OneTooMany(cap=cap), schedule=calm)


def test_an_hour_that_does_not_begin_anew_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = replace(keyed(1), fault_rate=0.0, stall_rate=0.0, actions=(), workers=1)
    hourly = of_hours(calm, monkeypatch)
    run_schedule(1, schedule=hourly)
    whole = CapWindows(3, 4)  # windows as long as an epoch
    monkeypatch.setattr("stream_app.core.declaration.Declaration.cap_windows", lambda *_: whole)
    with pytest.raises(Broken, match="the log and its cuts give"):
        run_schedule(1, schedule=hourly)


def killed(seed: int) -> Schedule:
    """Return a schedule that counts users, with one worker that is killed in every second bin."""
    users = replace(capped(3 * seed), where=EVERYTHING, fault_rate=0.0, workers=1, sibling=None)
    kills = tuple(Action(bin * BIN_US + BIN_US // 2, Deed.KILL) for bin in range(1, users.bins, 2))
    return replace(users, actions=kills, stall_rate=0.0)


def test_a_user_counts_once_in_an_epoch_whatever_is_killed() -> None:
    run_schedule(0, schedule=killed(0))
    with pytest.raises(Broken, match="the log and its cuts give"):
        run_schedule(0, pipeline=UsersForgottenAtACrash(), schedule=killed(0))


@pytest.mark.parametrize("where", CONDITIONS)
def test_a_record_that_does_not_match_takes_nothing_of_its_user_s_cap(where: str) -> None:
    """With each condition the recount must catch a service that applies it after the cap."""
    schedules = [replace(capped(seed).without_trouble(), where=where) for seed in range(4)]
    run_schedule(1, schedule=schedules[1])
    if where not in ONE_USER:
        with pytest.raises(Broken, match="the log and its cuts give"):
            _run_all(schedules, WhereAfterCap())


def _run_all(schedules: list[Schedule], pipeline: Pipeline) -> None:
    for schedule in schedules:
        run_schedule(schedule.seed, pipeline=pipeline, schedule=schedule)


def _differences(seed: int) -> list[Counter[tuple[int, int]]]:
    """Return a log's counts minus the sum over each user's own log, and the sum minus the counts."""
    return _differences_of(capped(seed), seed)


def _differences_of(drawn: Schedule, seed: int) -> list[Counter[tuple[int, int]]]:
    schedule = replace(other_day(drawn, seed), exact_cuts=True)
    log = World(schedule).log
    together = binned(schedule, log)
    apart = Counter[tuple[int, int]]()
    for number, user in enumerate(USERS):
        apart += binned(other_day(schedule, seed + 1000 * (number + 1)), log.of(user))
    return [together - apart, apart - together]
