"""The rules that hold for the service must catch each of its mutants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.simulator import counting_mutants, mutants, noise_mutants, opening_mutants, publishing_mutants
from tests.simulator.checks import Broken
from tests.simulator.faults import Fault
from tests.simulator.log import Entry, Kind, Log
from tests.simulator.neighbours import binned, is_one_record, moved
from tests.simulator.pipeline import Pipeline
from tests.simulator.recount import Place
from tests.simulator.schedule import BIN_US, START_US, Action, Deed, Schedule, draw_schedule
from tests.simulator.world import World, assert_caught

pytestmark = pytest.mark.slow

SEEDS = range(60)


def befallen(schedule: Schedule, *deeds: Deed) -> Schedule:
    """Return the schedule with these deeds, one in every second bin."""
    actions = tuple(Action((2 * place + 3) * BIN_US, deed) for place, deed in enumerate(deeds))
    return replace(schedule, actions=actions, bins=max(schedule.bins, 2 * len(deeds) + 4))


def crowded(schedule: Schedule) -> Schedule:
    """Return the schedule with two workers whose calls often come late."""
    late = replace(schedule, workers=2, fault_rate=0.3, longest_delay_us=BIN_US)
    return replace(late, stall_rate=0.0, actions=())


def resent(schedule: Schedule) -> Schedule:
    """Return the crowded schedule with one stream, in which most applies are lost, late or repeated."""
    return replace(
        crowded(schedule), fault_rate=0.6, struck=frozenset({"apply", "apply_together"}), sibling=None
    )


def slow(schedule: Schedule) -> Schedule:
    """Return the schedule with two workers whose calls come late, without other faults."""
    late = (Fault.DELAYED,)
    return replace(crowded(schedule), faults=late, longest_delay_us=BIN_US // 2)


def busy(schedule: Schedule) -> Schedule:
    """Return the schedule with many events, late events counted, and bins that close at their end."""
    return replace(schedule, events_per_bin=25.0, bins=8, late="next_bin", grace_us=0, exact_cuts=False)


def busy_alone(schedule: Schedule) -> Schedule:
    """Return the busy schedule without a second stream."""
    return replace(busy(schedule), sibling=None)


def slow_releases(schedule: Schedule) -> Schedule:
    """Return the slow schedule with one stream, in which most releases come late and other calls do not."""
    return replace(slow(schedule), fault_rate=0.7, struck=frozenset({"release"}), sibling=None)


def stalled(schedule: Schedule) -> Schedule:
    """Return a schedule with two streams, whose process often pauses while it asks for the log's end.

    Many records are dated as far ahead as is allowed.
    """
    calm = replace(busy(schedule.without_trouble()), max_ahead_bins=2, bins=12)
    return replace(calm, stall_rate=0.2, struck=frozenset({"positions_at"})).beside(BIN_US // 4)


def slow_answers(schedule: Schedule) -> Schedule:
    """Return a schedule in which the clock and the log's end take up to six bins to answer.

    If loops got answers from before their questions, about one in six of these schedules would show it.
    """
    plain = replace(busy(schedule.without_trouble()), keys=1, buckets=1, window=0, over_epochs=False)
    dense = replace(plain, partitions=1, events_per_bin=60.0, largest_batch=100, bins=24, max_ahead_bins=1)
    slow = replace(dense, fault_rate=1.0, faults=(Fault.DELAYED,), longest_delay_us=3 * BIN_US)
    return replace(slow, branching=(2, 2), horizon=4, struck=frozenset({"now_us", "positions_at"}))


def as_drawn(schedule: Schedule) -> Schedule:
    """Return the schedule as it is."""
    return schedule


def set_back(schedule: Schedule) -> Schedule:
    """Return the schedule with a store that is set back to a backup."""
    return befallen(schedule, Deed.BACKUP, Deed.RESTORE)


def set_back_often(schedule: Schedule) -> Schedule:
    """Return the schedule with short epochs, a ledger outside, and a store that is set back many times.

    Readers see the witness. So a lost store may have released rows that nobody has seen.
    """
    calm = replace(schedule.without_trouble(), keys=1, buckets=1, window=0, over_epochs=False, sums=False)
    short = replace(calm, branching=(2,), horizon=2, ledger_outside=True, witness_is_public=True, grace_us=0)
    slow = replace(short, publish_every_us=3 * BIN_US // 2)
    return befallen(slow, *[Deed.BACKUP, Deed.RESTORE] * 4)


def interrupted(schedule: Schedule) -> Schedule:
    """Return the busy schedule with three outages, each of some bins."""
    return befallen(busy(schedule), Deed.OUTAGE, Deed.OUTAGE, Deed.OUTAGE)


def ahead(schedule: Schedule) -> Schedule:
    """Return the schedule with noise drawn ahead, and workers that are killed and start again."""
    killed = befallen(schedule, *[Deed.KILL] * 4)
    return replace(killed, release="anticipating", branching=(2, 2, 2), horizon=7, fault_rate=0.02)


def losing(schedule: Schedule) -> Schedule:
    """Return the schedule with noise drawn ahead, which is lost three times."""
    return replace(befallen(schedule, *[Deed.LOSE_NOISE] * 3), release="anticipating")


def broken_off(schedule: Schedule) -> Schedule:
    """Return the schedule with short epochs, some of which end early, and levels over epochs."""
    short = replace(losing(schedule), branching=(2,), horizon=2, keys=1, buckets=1, window=0)
    return replace(short, over_epochs=True)


def contended(schedule: Schedule) -> Schedule:
    """Return the schedule with two workers that are often killed, and epochs that follow quickly."""
    return replace(
        befallen(crowded(schedule), *[Deed.KILL] * 8), release="anticipating", branching=(2,), horizon=2
    )


def slow_topic(schedule: Schedule) -> Schedule:
    """Return the slow schedule with a witness that readers see, and that takes up to a bin to answer."""
    seen = replace(slow(schedule), workers=1, witness_is_public=True, longest_delay_us=BIN_US)
    return replace(seen, fault_rate=0.5, struck=frozenset({"head", "append"}))


def slow_lease(schedule: Schedule) -> Schedule:
    """Return a schedule in which a bin closes at a public instant, while the worker renews its lease."""
    plain = replace(slow(schedule), keys=1, buckets=1, window=0, over_epochs=False, sibling=None)
    seen = replace(plain, witness_is_public=True, publish_every_us=BIN_US // 2, grace_us=0, exact_cuts=True)
    return replace(seen, fault_rate=0.5, longest_delay_us=BIN_US // 8, struck=frozenset({"now_us", "hold"}))


def choosy(schedule: Schedule) -> Schedule:
    """Return a schedule that counts some records, many of which are late, and writes letters of late ones."""
    return replace(busy(schedule.without_trouble()), where="one of", late="dead_letter")


def summing(schedule: Schedule) -> Schedule:
    """Return the busy schedule with amounts in place of buckets."""
    return replace(busy(schedule.without_trouble()), sums=True, buckets=1, window=0)


def over_two_fields(schedule: Schedule) -> Schedule:
    """Return the busy schedule with three keys and a second key field."""
    calm = busy(schedule.without_trouble())
    return replace(calm, keys=3, buckets=1, window=0, over_epochs=False, sums=False, sides=True)


# Each mutant, the schedules that show it, and words of the broken rule's message.
CAUGHT = [
    (mutants.HalfNoise, as_drawn, "plus one unused draw of scale"),
    (mutants.ReleaseTwice, slow_releases, "has a second value"),
    (mutants.ApplyTwice, resent, "a slice was applied away from the position"),
    (mutants.RefiredNode, busy_alone, "changed from"),
    (mutants.SealIgnoresPartition, crowded, "runs for ever"),  # the cells are sealed, so ingest cannot go on
    (mutants.SealRemoved, slow, "the log and its cuts give"),
    (mutants.WitnessIgnored, set_back, "the witness has"),
    (mutants.PublishBeforeDurable, as_drawn, "the store has released"),
    (mutants.PublishUnwitnessed, as_drawn, "visible before it is witnessed"),
    (mutants.OneReadingOfTheClock, stalled, "was on time"),
    (mutants.AnswersUnderWay, slow_answers, "was on time"),
    (mutants.LateByProcessingTime, as_drawn, "the log and its cuts give"),
    (mutants.FutureByProcessingTime, interrupted, "the log and its cuts give"),
    (noise_mutants.RedrawnAtStart, ahead, "plus the noise that was drawn for epoch"),
    (noise_mutants.NeverOpenedWith, ahead, "plus the noise that was drawn for epoch"),
    (noise_mutants.DamageIgnored, losing, "plus the noise that was drawn for epoch"),
    (noise_mutants.OpensWithoutNoise, contended, "its noise was never lost"),
    (noise_mutants.CountsOverAnEarlyEnd, broken_off, "counts one that is not complete"),
    (noise_mutants.SameNoiseTwice, ahead, "plus the noise that was drawn for epoch"),
    (opening_mutants.LostEpochOpenedAgain, set_back_often, "holds another measurement in the place"),
    (opening_mutants.LateReservationTakenUp, set_back_often, "after bin"),
    (counting_mutants.LettersOfUnmatched, choosy, "does not match, and has a dead letter"),
    (counting_mutants.AmountsRoundedFirst, summing, "the log and its cuts give"),
    (counting_mutants.AmountAtOneEnd, summing, "the log and its cuts give"),
    (counting_mutants.FieldsTurnedRound, over_two_fields, "the log and its cuts give"),
    (publishing_mutants.RowsReleasedMeanwhile, slow_topic, "before the public instant"),
    (publishing_mutants.RowsReleasedSinceTheInstant, slow_lease, "before the public instant"),
]


@pytest.mark.parametrize(("mutant", "shape", "words"), CAUGHT, ids=lambda part: getattr(part, "__name__", ""))
def test_the_simulator_catches(
    mutant: type[Pipeline], shape: Callable[[Schedule], Schedule], words: str
) -> None:
    assert_caught(mutant, shape, words, SEEDS)


@pytest.mark.slow
def test_neighbouring_logs_catch_cuts_that_wait_for_reads() -> None:
    """Without faults, taking away the first record after a closing instant moves another record."""
    assert any(_moves_others(seed, mutants.CutsWaitForReads(), _after_closing) for seed in (5, *SEEDS))


def test_neighbouring_logs_catch_watermarks() -> None:
    """Taking away a record whose time closes a bin moves late records that follow it."""
    assert any(_moves_others(seed, mutants.WatermarkClosing(), _ahead_of_all) for seed in (5, *SEEDS))


def _moves_others(seed: int, pipeline: Pipeline, records: Callable[[Log], list[Place]]) -> bool:
    """Return whether taking away one of these records changes more than one count by one."""
    schedule = replace(busy(draw_schedule(seed)).without_trouble(), partitions=1)
    log = World(schedule).log
    expected = binned(schedule, log, pipeline)
    return any(
        not is_one_record(schedule, moved(binned(schedule, log.without(*place), pipeline), expected))
        for place in records(log)
    )


def _after_closing(log: Log) -> list[Place]:
    """Return the first event after each closing instant, if it arrives within the time of one wait."""
    return [
        ("0", after)
        for after, (before, entry) in enumerate(pairwise(log.partitions["0"]), start=1)
        if entry.kind is Kind.EVENT
        and before.arrival_us // BIN_US < entry.arrival_us // BIN_US
        and entry.arrival_us % BIN_US < 100_000
    ]


def _ahead_of_all(log: Log) -> list[Place]:
    """Return the position of each event whose bin is later than the bins of all events before it.

    Events from the future are left out.
    """
    reached, places = 0, []
    for position, entry in enumerate(log.partitions["0"]):
        if entry.kind is Kind.EVENT and reached < entry.time_us // BIN_US <= entry.arrival_us // BIN_US:
            reached = entry.time_us // BIN_US
            places.append(("0", position))
    return places


@pytest.mark.slow
def test_partitions_born_before_closing_catch_a_seal_that_ignores_them() -> None:
    """Each new partition has an event in the bin that closes soon, so a seal must look for new partitions."""
    for seed in SEEDS:
        calm = replace(busy(draw_schedule(seed)).without_trouble(), exact_cuts=True)
        log = World(calm).log
        for bin in range(1, calm.bins):
            born_us = START_US + bin * BIN_US - 20_000
            log = log.joined_by(f"new {bin}", (Entry(Kind.EVENT, born_us, born_us),))
        slow_calls = replace(calm, workers=2, fault_rate=0.3, faults=(Fault.DELAYED,))
        assert binned(slow_calls, log) == binned(calm, log)
        try:
            binned(slow_calls, log, mutants.SealIgnoresUnknown())
        except Broken as broken:
            if "was on time" in str(broken):
                return
    raise AssertionError("a seal that ignores new partitions moved no record")
