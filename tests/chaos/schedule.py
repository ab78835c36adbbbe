"""Draws from a seed which fault comes when, and which process it hits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

WORKERS = 3
FROZEN_S = 13.0  # longer than the consumer group's session timeout of 10 s: others then own the partitions
# Bins close meanwhile, but the session of the consumer group does not end. So the worker finishes its call as
# if no time had passed.
FROZEN_AT_CLOSING_S = (1.5, 6.0)
AFTER_CLOSING_S = 0.1  # the most seconds between a closing instant and such a freeze
WRONG_CLOCK_S = (2.0, 5.0)
WRONG_BY_S = (60.0, 900.0)


class Fault(StrEnum):
    """What the run does to one process."""

    KILL_WORKER = "kill -9 worker"
    STOP_WORKER = "terminate worker"
    FREEZE_WORKER = "freeze worker"
    NAP_WORKER = "freeze worker briefly"
    FREEZE_AT_CLOSING = "freeze worker just after a closing instant"
    KILL_REDIS = "kill -9 redis"
    SET_REDIS_BACK = "restore an older redis"
    EMPTY_REDIS = "empty redis"
    WRONG_CLOCK = "set the clock of the host of redis wrong"
    RETENTION = "delete released records from the log"
    STOP_BROKER = "restart broker"
    KILL_BROKER = "kill -9 broker"


# Frequent kinds are quick ones. Each kind comes once early in every schedule.
WEIGHTS = {
    Fault.KILL_WORKER: 8,
    Fault.STOP_WORKER: 5,
    Fault.FREEZE_WORKER: 3,
    Fault.NAP_WORKER: 4,
    Fault.FREEZE_AT_CLOSING: 4,
    Fault.KILL_REDIS: 5,
    Fault.SET_REDIS_BACK: 2,
    Fault.EMPTY_REDIS: 1,
    Fault.WRONG_CLOCK: 2,
    Fault.RETENTION: 2,
    Fault.STOP_BROKER: 1,
    Fault.KILL_BROKER: 1,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One fault, after a pause.

    Args: worker, the number of the worker that is hit, if the fault hits a worker; down_s, how long the
        process is gone or frozen, or the clock wrong; choice, in [0, 1), decides the rest, for example which
        backup.
    """

    pause_s: float
    fault: Fault
    worker: int
    down_s: float
    choice: float

    @property
    def clock_ahead_s(self) -> int:
        """By how many seconds a wrong clock is ahead: minutes; half of the time negative."""
        least, most = WRONG_BY_S
        by_s = round(least + abs(self.choice - 0.5) * 2 * (most - least))
        return by_s if self.choice < 0.5 else -by_s


def draw_steps(seed: int, faults: int) -> Iterator[Step]:
    """Yield a seed's schedule: every kind of fault once in random order, then kinds drawn by weight."""
    rng = random.Random(f"chaos {seed}")
    first = list(WEIGHTS)
    rng.shuffle(first)
    for number in range(faults):
        fault = first[number] if number < len(first) else rng.choices(list(WEIGHTS), [*WEIGHTS.values()])[0]
        down_s = {
            Fault.FREEZE_WORKER: FROZEN_S,
            Fault.NAP_WORKER: rng.uniform(0.1, 4.0),
            Fault.FREEZE_AT_CLOSING: rng.uniform(*FROZEN_AT_CLOSING_S),
            Fault.WRONG_CLOCK: rng.uniform(*WRONG_CLOCK_S),
        }.get(fault, rng.choice([0.0, rng.uniform(0.0, 1.5)]))
        yield Step(rng.uniform(0.1, 1.5), fault, rng.randrange(WORKERS), down_s, rng.random())


def draw_freezes(seed: int, freezes: int) -> Iterator[Step]:
    """Yield freezes just after closing instants. They hit one worker after the other."""
    rng = random.Random(f"freezes {seed}")
    for number in range(freezes):
        down_s = rng.uniform(*FROZEN_AT_CLOSING_S)
        yield Step(0.0, Fault.FREEZE_AT_CLOSING, number % WORKERS, down_s, rng.random())
