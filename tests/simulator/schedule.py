"""Everything that a seed decides: the stream, the log, the faults, the stalls, and deeds with instants."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import Any

import pytest
from msgspec import structs

from dphist.caps import Caps
from dphist.epochs import EpochLevels
from dphist.product.axis import KeyAxis, ValueAxis
from dphist.product.design import ProductDesign
from dphist.toeplitz import plan_toeplitz
from dphist.tree.design import Release, TreeDesign
from dphist.tree.shape import TreeShape
from dphist.windows.design import WindowDesign
from stream_app.core.budget import Total
from stream_app.core.counting.bins import LatePolicy
from stream_app.core.counting.bounding import PerUser
from stream_app.core.counting.cells import Amounts, Buckets
from stream_app.core.counting.keys import KeyField, KeyList
from stream_app.core.declaration import Counted, Declaration
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.toeplitz import Toeplitz
from stream_app.core.strategy import Strategy
from tests.simulator.conditions import CONDITIONS, EVERYTHING
from tests.simulator.faults import Fault
from tests.simulator.log import LogPlan
from tests.stream_app.declared import declared_of

BIN_US = 2_000_000
START_US = 850_000_000 * BIN_US
FIRST_BIN = START_US // BIN_US
WINDOW_SHARE = Fraction(3, 4)
DELTA = Fraction(1, 10**6)
KEYS = ("a", "b", "c")
SIDES = ("left", "right")  # of a second key field; all other values are one more key
AMOUNTS = Amounts("amount", Fraction(2), Fraction(8), Fraction(2))  # values are below 10
STREAM = "visits"
SIBLING = "visits beside"
SOURCE = "log"
SHARE_WITH_SIBLINGS = 0.2
SHARE_WITH_PUBLIC_WITNESS = 0.4
SHARE_WITH_LEDGER_OUTSIDE = 0.4
SHARE_WITH_SIDES = 0.3  # of those with keys
SHARE_WITH_SUMS = 0.3  # of those without buckets


class Deed(StrEnum):
    """The kinds of fault that hit workers or the store at one instant."""

    KILL = "kill"  # one worker dies at once
    STOP = "stop"  # one worker is asked to end
    OUTAGE = "outage"  # all are down for some bins
    HANDOVER = "handover"  # partitions move to the other worker, while the old one still acts
    BACKUP = "backup"  # the store is copied
    RESTORE = "restore"  # the store is set back to the copy; the witness is not
    LEAP = "leap"  # the clock jumps forward
    LOSE_NOISE = "lose noise"  # noise drawn ahead is lost: its pages, its keys, or a bit of each page
    STALL = "stall"  # one worker's process stands still
    CUT_OFF = "cut off"  # the replies to all calls are lost for a while
    CONFIGURE = "configure"  # one worker starts again with the stream's other settings


@dataclass(frozen=True, slots=True)
class Action:
    """Something that the simulator does at an instant, in microseconds after the start."""

    after_us: int
    deed: Deed


@dataclass(frozen=True)
class Schedule:
    """One run of the simulator. Everything is drawn from ``seed`` and does not change afterwards.

    Args: bins of the log; the epoch's branching; the share of calls that go wrong; the grace in bins.
    """

    seed: int
    name: str = STREAM
    bins: int = 12
    bin_us: int = BIN_US  # only a stream that another one follows, or that follows one, has other bins
    partitions: int = 2
    events_per_bin: float = 6.0
    branching: tuple[int, ...] = (2, 2)
    horizon: int = 4
    keys: int = 1
    buckets: int = 1
    sides: bool = False  # a second key field beside the keys
    total: bool = False
    sums: bool = False  # values are added up; then there are no buckets
    where: str = EVERYTHING  # the name of a condition
    count: Counted = None
    finding: int = 0  # how many new pages a user brings; 0: the stream finds no keys
    approximate: bool = False  # only with the plain axes that ``approximate.approximate`` leaves
    over_epochs: bool = False  # nodes over two epochs and over four
    window: int = 0  # in bins; windows release the cells, and the tree then counts all events
    epsilon: Fraction = Fraction(1)
    release: Release = "anticipating"
    workers: int = 1
    fault_rate: float = 0.03
    faults: tuple[Fault, ...] = tuple(fault for fault in Fault if fault is not Fault.NONE)
    longest_delay_us: int = BIN_US // 4
    stall_rate: float = 0.0  # the share of calls around which the process pauses
    longest_stall_us: int = 5 * BIN_US
    struck: frozenset[str] = frozenset()  # the calls that faults and stalls strike; empty: all
    largest_batch: int = 8
    late: LatePolicy = "next_bin"
    grace_us: int = BIN_US // 5
    publish_every_us: int = BIN_US // 4
    witness_is_public: bool = False  # readers see the witness, as they see an output topic
    ledger_outside: bool = False  # a ledger outside the store knows every epoch, and is never set back
    max_ahead_bins: int = 3
    max_events: int = 0  # events of a user that count in a window of the cap; 0: no cap
    max_keys: int = 0  # keys of a user that count in a window of the cap; 0: no cap on keys
    max_per_key: int = 0  # events of a user that count in each of them
    period_bins: int = 0  # the unit is a user's hour of so many bins; 0: it is the user
    exact_cuts: bool = False
    actions: tuple[Action, ...] = ()
    allowed: Total | None = None  # what all epochs over the log may cost together
    keep_us: int | None = None  # how long the store keeps the releases of an epoch after its end
    sibling: Schedule | None = None  # one more stream over the same log; its plan and its grace count

    @property
    def streams(self) -> tuple[Schedule, ...]:
        """Return the streams over the log: the schedule's own stream, and its siblings if there are any."""
        return (self,) if self.sibling is None else (self, *self.sibling.streams)

    @property
    def log_plan(self) -> LogPlan:
        """Return how the log is drawn."""
        return LogPlan(START_US, BIN_US, self.bins, self.partitions, self.events_per_bin)

    @cached_property
    def design(self) -> TreeDesign:
        """Return the stream's tree; every level has another scale."""
        shape, epsilon = TreeShape(self.branching), self.epsilon * self.part_of_epochs
        total = sum(range(1, shape.height + 1))
        part = 1 - WINDOW_SHARE if self.window else 1
        shares = tuple(Fraction(level, total) * part for level in shape.levels)
        return TreeDesign(shape, self.horizon, epsilon, shares, release=self.release)

    @property
    def part_of_epochs(self) -> Fraction:
        """Return the part of epsilon that is left for each epoch's tree beside the levels over epochs."""
        return Fraction(10, 17) if self.has_levels else Fraction(1)

    @property
    def has_levels(self) -> bool:
        """Return whether the stream has levels over epochs. Only streams without axes have them."""
        return self.over_epochs and self.width == 1

    @cached_property
    def levels(self) -> EpochLevels | None:
        """Return the levels over epochs; no level has the scale of another one."""
        if not self.has_levels:
            return None
        epsilons = (self.epsilon * Fraction(4, 17), self.epsilon * Fraction(3, 17))
        return EpochLevels(self.design, self.epsilon, (2, 2), epsilons)

    @cached_property
    def product(self) -> ProductDesign | None:
        """Return the shares of all axes if there are keys or values. No two groups have the same scale."""
        if (self.rows == self.buckets == 1 and not self.sums) or self.window:
            return None
        if self.sums:
            total = Fraction(2, 11) if self.total and self.rows > 1 else Fraction(0)
            time = replace(self.design, sensitivity=AMOUNTS.range.weight)
            ends = ValueAxis(2, TreeShape((2,)), (Fraction(1),))
            return ProductDesign(time, KeyAxis(self.rows, 1 - total, total), ends, AMOUNTS.range.weight)
        shape = TreeShape((2, -(-self.buckets // 2)) if self.buckets > 1 else (1,))
        shares = (Fraction(3, 10), Fraction(7, 10)) if self.buckets > 1 else (Fraction(1),)
        total = Fraction(2, 11) if self.total and self.rows > 1 else Fraction(0)
        keys = KeyAxis(self.rows, 1 - total, total)
        return ProductDesign(self.design, keys, ValueAxis(self.buckets, shape, shares))

    @property
    def width(self) -> int:
        """Return the number of cells in a bin."""
        return self.rows * (2 if self.sums else self.buckets)

    @property
    def rows(self) -> int:
        """Return the number of keys: of combinations, if there are two key fields."""
        return self.keys * (len(SIDES) + 1 if self.sides else 1)

    @cached_property
    def strategy(self) -> Strategy:
        """Return the stream's strategy."""
        if self.sides:
            fields = KeyField("key", KEYS[: self.keys], False), KeyField("side", SIDES, True)
            keys = KeyList(fields=fields, total=self.total)
        else:
            keys = KeyList("key", KEYS[: self.keys], False, self.total)
        value = Buckets("value", Fraction(0), Fraction(10), self.buckets)
        declared = declared_of(
            source=SOURCE,
            late=self.late,
            user=self._per_user,
            where=CONDITIONS[self.where].condition if self.where else None,
            count=self.count,
            amounts=AMOUNTS if self.sums else None,
            keys=keys if self.rows > 1 else None,
            value=value if self.buckets > 1 else None,
            epsilon=str(self.epsilon),
            field="time",
            bin_us=self.bin_us,
            grace_us=self.grace_us,
            first_us=START_US,
            epoch_bins=self.design.horizon,
            max_ahead_bins=self.max_ahead_bins,
        )
        if self.finding:
            from tests.simulator.finding import finding_strategy

            return finding_strategy(self, declared)
        window = None
        if self.window:
            window = WindowDesign(self.design, self.window, self.rows, self.buckets, "identity", WINDOW_SHARE)
        if self.approximate:
            return self._approximate(declared)
        kind = kind_of(window or self.product or self.levels or self.design)
        return Strategy(self.name, declared, kind)

    def _approximate(self, declared: Declaration) -> Strategy:
        """Return an approximate strategy over the keys."""
        privacy = structs.replace(declared.privacy, delta=DELTA)
        caps = Caps(max_events=max(1, self.max_events))
        design = plan_toeplitz(self.horizon, self.epsilon, DELTA, caps, width=self.rows)
        kind = Toeplitz(design, self.rows > 1)
        return Strategy(self.name, structs.replace(declared, privacy=privacy), kind)

    @property
    def is_capped(self) -> bool:
        """Return whether a user's events are capped."""
        return bool(self.max_events or self.max_keys)

    @property
    def _per_user(self) -> PerUser | None:
        if not self.is_capped:
            return None
        caps = (self.max_events or None, self.max_keys or None, self.max_per_key or None)
        return PerUser("user", *caps, per="1h" if self.period_bins else None)

    def without_trouble(self) -> Schedule:
        """Return the same stream and log without faults and without a sibling."""
        return replace(self, fault_rate=0.0, stall_rate=0.0, actions=(), workers=1, sibling=None)

    def beside(self, sibling_grace_us: int) -> Schedule:
        """Return the schedule with a second stream over the same log, whose grace is ``sibling_grace_us``."""
        plain = replace(self, keys=1, buckets=1, window=0, over_epochs=False, max_events=0, actions=())
        plain = replace(plain, sums=False, sides=False, where=EVERYTHING, count=None, approximate=False)
        sibling = replace(plain, name=SIBLING, release="causal", grace_us=sibling_grace_us, sibling=None)
        return replace(self, sibling=sibling)


def draw_schedule(seed: int) -> Schedule:
    """Draw a schedule. Some schedules have no faults, most have some, and a few have all kinds."""
    rng, axes = random.Random(f"schedule {seed}"), random.Random(f"axes {seed}")
    keys, buckets = axes.choice([(1, 1), (1, 1), (3, 1), (1, 4), (2, 3)])
    bins = rng.randint(6, 14)
    branching, horizon = rng.choice([((2, 2), 4), ((2, 2), 3), ((3,), 3), ((2, 3), 6), ((2, 2, 2), 7)])
    counted = random.Random(f"counted {seed}")
    schedule = Schedule(
        seed=seed,
        bins=bins,
        partitions=rng.randint(1, 3),
        events_per_bin=rng.choice([1.0, 4.0, 10.0]),
        branching=branching,
        horizon=horizon,
        keys=keys,
        buckets=buckets,
        total=axes.random() < 0.5,
        window=axes.choice([0, 0, 1, horizon // 2 if horizon % 2 == 0 else horizon]) if buckets > 1 else 0,
        workers=rng.choice([1, 1, 2]),
        fault_rate=rng.choice([0.0, 0.02, 0.1, 0.3]),
        longest_delay_us=rng.choice([1_000, BIN_US // 10, BIN_US]),
        largest_batch=rng.choice([1, 3, 20]),
        late=rng.choice(["next_bin", "next_bin", "drop", "dead_letter"]),
        grace_us=rng.choice([0, BIN_US // 5, BIN_US]),
        exact_cuts=rng.random() < 0.3,
        actions=_draw_actions(bins, rng),
        release=random.Random(f"release {seed}").choice(["anticipating", "anticipating", "causal"]),
        over_epochs=random.Random(f"over epochs {seed}").choice([False, True]),
        stall_rate=random.Random(f"stall rate {seed}").choice([0.0, 0.0, 0.005, 0.02]),
        witness_is_public=random.Random(f"public witness {seed}").random() < SHARE_WITH_PUBLIC_WITNESS,
        sides=keys > 1 and random.Random(f"sides {seed}").random() < SHARE_WITH_SIDES,
        ledger_outside=random.Random(f"ledger outside {seed}").random() < SHARE_WITH_LEDGER_OUTSIDE,
        where=counted.choice([*CONDITIONS, *[EVERYTHING] * 2 * len(CONDITIONS)]),
        sums=buckets == 1 and counted.random() < SHARE_WITH_SUMS,
    )
    beside = random.Random(f"beside {seed}")
    if beside.random() < SHARE_WITH_SIBLINGS:
        return schedule.beside(beside.choice([schedule.grace_us, schedule.grace_us, BIN_US // 4]))
    return schedule


def seeds(quick: int, all: int, always: bool = False) -> list[Any]:
    """Return seeds as test parameters.

    The first few run in ``make check`` and ``make test``, and all in ``make simulate``.
    Args: always, to run all in ``make test`` as well.
    """
    most = all if always or os.environ.get("EVERY_SEED") else quick
    return [pytest.param(seed, marks=() if seed < quick else pytest.mark.slow) for seed in range(most)]


def _draw_actions(bins: int, rng: random.Random) -> tuple[Action, ...]:
    deeds = [Deed.KILL, Deed.STOP, Deed.OUTAGE, Deed.HANDOVER, Deed.BACKUP, Deed.RESTORE, Deed.LEAP]
    count = rng.choice([0, 2, 4, 8])
    actions = [Action(rng.randrange(bins * BIN_US), rng.choice(deeds)) for _ in range(count)]
    if rng.random() < 0.2:
        actions.append(Action(rng.randrange(bins * BIN_US), Deed.LOSE_NOISE))
    return tuple(sorted(actions, key=lambda action: action.after_us))
