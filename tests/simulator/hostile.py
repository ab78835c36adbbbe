"""Puts one hostile record of each kind into a log."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from tests.simulator.conditions import LEFT_OUT
from tests.simulator.log import Kind, Log
from tests.simulator.schedule import BIN_US, KEYS, START_US, Schedule
from tests.simulator.written import AMOUNT, Written, avro_value, json_value

NEW_KEY = "zebra"  # that no list and no other record has
HOSTILE = "hostile"  # the name of the record by which two logs differ
# The user of that record. All records of this user are in the first cell, and no other records are.
USER, KEY = "ann", KEYS[0]
KNOWN_ID, NEW_ID, NO_ID = 7, 8, 99
YEAR_US = 366 * 86_400 * 1_000_000
YEAR_9999_US = 253_402_300_799_000_000
REGISTERED_US = START_US + int(2.7 * BIN_US)  # from this time on the registry has the new id; records use it
IDLE = "idle"  # a partition without any other record


class Hostile(StrEnum):
    """The kinds of hostile record."""

    ORDINARY = "ordinary"
    IDLE_PARTITION = "alone in its partition"
    FUTURE_A_LITTLE = "a little too far in the future"
    FUTURE_YEAR = "a year in the future"
    FUTURE_9999 = "in the year 9999"
    FUTURE_IDLE = "in the future, alone in its partition"
    FAR_PAST = "far in the past"
    LATE = "late"
    UNDECODABLE = "undecodable"
    HUGE = "huge"
    DEEP = "deeply nested"
    NO_KEY = "without key"
    OTHER_KEY = "of an unknown key"
    NO_USER = "without user"
    TOMBSTONE = "a tombstone"
    NO_SCHEMA = "of an unknown schema"
    EARLY_SCHEMA = "of a schema that is registered later"
    SLOW_LOOK_UP = "of an unknown schema, while a bin closes"
    OVER_CAP = "over the cap"
    LEFT_OUT = "that the condition leaves out"
    LEFT_OUT_LATE = "late, and left out"
    LEFT_OUT_FUTURE = "in the future, and left out"
    LEFT_OUT_NO_KEY = "without key, and left out"


# Counting waits for the look-up of a schema, up to a stated time: docs/privacy.md, "the schema registry".
# Records that change nothing at all, because the condition leaves them out.
UNSEEN = {Hostile.LEFT_OUT, Hostile.LEFT_OUT_LATE, Hostile.LEFT_OUT_FUTURE, Hostile.LEFT_OUT_NO_KEY}
WAITS = {Hostile.NO_SCHEMA, Hostile.EARLY_SCHEMA, Hostile.SLOW_LOOK_UP}


@dataclass(frozen=True)
class Form:
    """How a stream's records are written, and what it counts.

    Args: where, whether it has a condition; sums, whether it adds up amounts; users, whether it counts users;
        finds, whether it finds keys that nobody listed.
    """

    avro: bool = False
    max_events: int = 0
    where: bool = False
    sums: bool = False
    users: bool = False
    finds: bool = False

    def kinds(self) -> list[Hostile]:
        """Return the kinds of record that this form of stream can meet."""
        of_avro = {Hostile.NO_SCHEMA, Hostile.EARLY_SCHEMA, Hostile.SLOW_LOOK_UP}
        of_users = {Hostile.NO_USER, Hostile.OVER_CAP}
        left_out = set() if self.avro else of_avro
        left_out |= set() if self.max_events else of_users
        left_out |= {Hostile.DEEP} if self.avro else set()
        left_out |= set() if self.where else UNSEEN
        return [kind for kind in Hostile if kind not in left_out]

    def value(
        self,
        time_us: int,
        key: str | None,
        user: str | None,
        note: str = "",
        id: int = KNOWN_ID,
        amount: int = AMOUNT,
    ) -> bytes:
        """Return the bytes of a record."""
        said = time_us, key, user, note, amount
        return avro_value(id, *said) if self.avro else json_value(*said)

    def written(
        self,
        name: str,
        arrival_us: int,
        time_us: int,
        key: str,
        user: str,
        id: int,
        note: str = "",
        amount: int = AMOUNT,
    ) -> Written:
        """Return a well-formed record."""
        value = self.value(time_us, key, user, note, id, amount)
        return Written(Kind.EVENT, arrival_us, time_us, name, value, key, user, note, amount)


def draw_written(schedule: Schedule, form: Form, rng: random.Random) -> Log:
    """Draw a log: most records on time, some late, some early, a few undecodable; one partition is empty.

    Records of users other than ``USER`` are in random cells, but not in the first cell. So the comparison
    shows a cap that depends on order.
    """
    end_us = START_US + schedule.bins * BIN_US
    partitions: dict[str, tuple[Written, ...]] = {IDLE: ()}
    for number in range(schedule.partitions):
        count = int(schedule.events_per_bin * schedule.bins / schedule.partitions)
        arrivals = sorted(rng.randrange(START_US, end_us) for _ in range(count))
        partitions[str(number)] = tuple(
            _draw(f"{number}-{place}", arrival_us, form, rng) for place, arrival_us in enumerate(arrivals)
        )
    return Log(partitions, dict.fromkeys(partitions, START_US))


def _draw(name: str, arrival_us: int, form: Form, rng: random.Random) -> Written:
    dice = rng.random()
    if dice < 0.03:
        return Written(Kind.UNDECODABLE, arrival_us, 0, name, b"{" + name.encode())
    if dice < 0.6:
        lag_us = rng.randrange(BIN_US // 5)
    elif dice < 0.9:
        lag_us = rng.randrange(4 * BIN_US)  # often late
    else:
        lag_us = -rng.randrange(2 * BIN_US)  # early
    user = rng.choice([USER, "bob", "cid", "dan", "eve", "fay"])
    key = KEY if user == USER else rng.choice(KEYS[1:])
    new = form.avro and arrival_us >= REGISTERED_US + BIN_US // 10 and rng.random() < 0.5
    time_us = max(arrival_us - lag_us, START_US)
    more = random.Random(f"more of {name} {arrival_us}")  # so that other draws are those of any form
    note = LEFT_OUT if form.where and more.random() < 0.3 else ""
    id, amount = NEW_ID if new else KNOWN_ID, more.randrange(10) if form.sums else AMOUNT
    return form.written(name, arrival_us, time_us, key, user, id, note, amount)


def with_hostile(log: Log, kind: Hostile, form: Form, schedule: Schedule, rng: random.Random) -> Log:
    """Return the log with one hostile record more.

    The record arrives at a time when no bin closes, unless its kind demands another time.
    """
    bin = rng.randrange(1, schedule.bins - 2)
    arrival_us = START_US + int((bin + rng.uniform(0.35, 0.6)) * BIN_US)
    if kind is Hostile.EARLY_SCHEMA:
        arrival_us = REGISTERED_US - rng.randrange(BIN_US // 5, BIN_US // 4)
    if kind is Hostile.SLOW_LOOK_UP:
        arrival_us = START_US + bin * BIN_US + schedule.grace_us - rng.randrange(10_000, 50_000)
    alone = kind in (Hostile.IDLE_PARTITION, Hostile.FUTURE_IDLE)
    partition = IDLE if alone else rng.choice([name for name in log.partitions if name != IDLE])
    return log.with_more(partition, _made(kind, arrival_us, form))


def hostile_value(kind: Hostile, arrival_us: int, form: Form) -> bytes | None:
    """Return the bytes of a hostile record; None for a tombstone."""
    return _made(kind, arrival_us, form).value


def _made(kind: Hostile, arrival_us: int, form: Form) -> Written:
    return _MADE.get(kind, _ordinary)(arrival_us, form)


def _ordinary(arrival_us: int, form: Form) -> Written:
    return form.written(HOSTILE, arrival_us, arrival_us, KEY, USER, KNOWN_ID)


def _dated(lag_us: int) -> Callable[[int, Form], Written]:
    def make(arrival_us: int, form: Form) -> Written:
        return form.written(HOSTILE, arrival_us, arrival_us - lag_us, KEY, USER, KNOWN_ID)

    return make


def _left_out(lag_us: int) -> Callable[[int, Form], Written]:
    def make(arrival_us: int, form: Form) -> Written:
        time_us = arrival_us - lag_us
        return form.written(HOSTILE, arrival_us, time_us, KEY, USER, KNOWN_ID, LEFT_OUT)

    return make


def _uncounted(value: Callable[[int, Form], bytes | None]) -> Callable[[int, Form], Written]:
    def make(arrival_us: int, form: Form) -> Written:
        return Written(Kind.UNDECODABLE, arrival_us, arrival_us, HOSTILE, value(arrival_us, form), KEY, USER)

    return make


def _huge(arrival_us: int, form: Form) -> Written:
    return replace(_ordinary(arrival_us, form), value=form.value(arrival_us, KEY, USER, "x" * 500_000))


def _year_9999(arrival_us: int, form: Form) -> Written:
    return form.written(HOSTILE, arrival_us, YEAR_9999_US, KEY, USER, KNOWN_ID)


_MADE: dict[Hostile, Callable[[int, Form], Written]] = {
    Hostile.FUTURE_A_LITTLE: _dated(-5 * BIN_US),
    Hostile.FUTURE_YEAR: _dated(-YEAR_US),
    Hostile.FUTURE_9999: _year_9999,
    Hostile.FUTURE_IDLE: _dated(-YEAR_US),
    Hostile.FAR_PAST: _dated(20 * YEAR_US),
    Hostile.LATE: _dated(2 * BIN_US),
    Hostile.UNDECODABLE: _uncounted(lambda at, form: b'{"time": '),
    Hostile.HUGE: _huge,
    Hostile.DEEP: _uncounted(lambda at, form: b'{"time": ' + b"[" * 100_000),
    Hostile.NO_KEY: _uncounted(lambda at, form: form.value(at, None, USER)),
    Hostile.OTHER_KEY: _uncounted(lambda at, form: form.value(at, NEW_KEY, USER)),
    Hostile.LEFT_OUT: _left_out(0),
    Hostile.LEFT_OUT_LATE: _left_out(2 * BIN_US),
    Hostile.LEFT_OUT_FUTURE: _left_out(-YEAR_US),
    Hostile.LEFT_OUT_NO_KEY: _uncounted(lambda at, form: form.value(at, None, USER, LEFT_OUT)),
    Hostile.NO_USER: _uncounted(lambda at, form: form.value(at, KEY, None)),
    Hostile.TOMBSTONE: _uncounted(lambda at, form: None),
    Hostile.NO_SCHEMA: _uncounted(lambda at, form: form.value(at, KEY, USER, id=NO_ID)),
    Hostile.EARLY_SCHEMA: _uncounted(lambda at, form: form.value(at, KEY, USER, id=NEW_ID)),
    Hostile.SLOW_LOOK_UP: _uncounted(lambda at, form: form.value(at, KEY, USER, id=NO_ID)),
}
