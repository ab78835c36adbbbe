"""Which of a capped user's records count depends on that user's records alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.simulator.cap_mutants import FirstApplied
from tests.simulator.checks import Broken
from tests.simulator.log import USERS
from tests.simulator.neighbours import binned, other_day
from tests.simulator.schedule import Deed, Schedule, draw_schedule, seeds
from tests.simulator.world import World, run_schedule


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
        actions=tuple(action for action in schedule.actions if action.deed is not Deed.RESTORE),
    )


@pytest.fixture(autouse=True)
def _one_shard_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tally one shard per step, so that faults strike between the steps."""
    monkeypatch.setattr("tests.models.memory_stream.LARGEST_TALLY_SHARDS", 1)


@pytest.mark.parametrize("seed", seeds(quick=8, all=24))
def test_every_rule_holds_where_few_events_of_a_user_count(seed: int) -> None:
    run_schedule(seed, schedule=capped(seed))


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


def _differences(seed: int) -> list[Counter[tuple[int, int]]]:
    """Return a log's counts minus the sum over each user's own log, and the sum minus the counts."""
    schedule = replace(other_day(capped(seed), seed), exact_cuts=True)
    log = World(schedule).log
    together = binned(schedule, log)
    apart = Counter[tuple[int, int]]()
    for number, user in enumerate(USERS):
        apart += binned(other_day(schedule, seed + 1000 * (number + 1)), log.of(user))
    return [together - apart, apart - together]
