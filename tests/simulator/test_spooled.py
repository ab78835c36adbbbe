"""Events over HTTP under faults: what was confirmed is durable, and every record counts exactly once."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest

from tests.simulator import mutants, spool_mutants
from tests.simulator.faults import Fault
from tests.simulator.schedule import Schedule, draw_schedule
from tests.simulator.spooled import run_spooled

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("SPOOLS", "5"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_confirmed_record_is_durable_and_counts_once(seed: int) -> None:
    run_spooled(seed)


def as_drawn(seed: int) -> Schedule:
    """Return a schedule of full requests, few bins and a plain stream."""
    plain = replace(draw_schedule(seed), keys=1, buckets=1, window=0, over_epochs=False, sums=False)
    return replace(plain, sides=False, bins=6, events_per_bin=10.0, sibling=None, actions=())


def resent(seed: int) -> Schedule:
    """Return a schedule in which most applies are lost, late or repeated."""
    return replace(
        as_drawn(seed),
        fault_rate=0.6,
        struck=frozenset({"apply", "apply_together"}),
        faults=(Fault.ZOMBIE, Fault.REPEATED),
    )


# Each mutant, the schedules that show it, words of the broken rule, and the first seed that shows it.
CAUGHT = [
    (mutants.ApplyTwice, resent, "a slice was applied away from the position", 0),
    (spool_mutants.BatchStoredAgain, as_drawn, "stored again", 0),
    (spool_mutants.KeysForgottenEarly, as_drawn, "stored again", 0),
    (spool_mutants.KeysForgottenByCrash, as_drawn, "stored again", 0),
    (spool_mutants.AnsweredBeforeSync, as_drawn, "was confirmed, and its record", 0),
    (spool_mutants.FailedWriteConfirmed, as_drawn, "was confirmed, and its record", 2),
    (spool_mutants.DroppedPagesTrusted, as_drawn, "was confirmed, and its record", 2),
    (spool_mutants.CountedBeforeSync, as_drawn, "a power failure could lose them", 5),
]


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(CAUGHT)))
def test_a_schedule_over_a_spool_catches(place: int) -> None:
    mutant, shape, words, first = CAUGHT[place]
    heard = Counter[str]()
    for seed in range(first, first + 30):
        try:
            run_spooled(seed, pipeline=mutant(), schedule=shape(seed))
        except AssertionError as broken:
            if words in str(broken):
                return
            heard[str(broken)] += 1
    raise AssertionError(f"{words!r} was not heard; heard {heard.most_common(3)}")
