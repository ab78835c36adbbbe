"""Runs the real loops over two logs that differ by one hostile record. Nothing else may differ.

Both runs have the same faults at the same moments: processes die or pause, partitions move, replies are lost.
The comparison names records, because their positions shift by one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass

from stream_app.core.counting.outcomes import LATE_BINS
from tests.simulator.conditions import EVERYTHING
from tests.simulator.hostile import (
    HOSTILE,
    KNOWN_ID,
    NEW_ID,
    REGISTERED_US,
    UNSEEN,
    WAITS,
    Form,
    Hostile,
    draw_written,
    with_hostile,
)
from tests.simulator.log import Log, LogSource
from tests.simulator.pipeline import Pipeline
from tests.simulator.schedule import AMOUNTS, BIN_US, FIRST_BIN, STREAM, Action, Deed, Schedule
from tests.simulator.world import World, cells_of, run_world
from tests.simulator.written import Written, WrittenSource, make_decoder, registry

FORMS = (
    Form(),
    Form(avro=True),
    Form(max_events=4),
    Form(avro=True, max_events=4),
    Form(where=True, max_events=4),
    Form(where=True, sums=True),
    Form(where=True, max_events=1, users=True, avro=True),
)
MISFORTUNES = (Deed.KILL, Deed.STOP, Deed.STALL, Deed.STALL, Deed.HANDOVER, Deed.CUT_OFF)
# How many records a counter may differ by because of the hostile record; this counter adds up bins.
MOST_MORE = {LATE_BINS: 10**9}


def draw_differential(seed: int, form: Form | None = None) -> tuple[Schedule, Form]:
    """Draw a busy stream and its faults. Seeds with one remainder by ``len(FORMS)`` draw one form."""
    rng = random.Random(f"differential {seed}")
    form = form or FORMS[seed % len(FORMS)]
    bins = rng.randint(5, 6)
    deeds = [rng.choice(MISFORTUNES) for _ in range(rng.choice([0, 0, 1, 2, 4]))]
    instants = sorted(rng.randrange(BIN_US, bins * BIN_US) for _ in deeds)
    schedule = Schedule(
        seed=seed,
        bins=bins,
        partitions=rng.randint(1, 3),
        events_per_bin=40.0,
        keys=3,
        workers=rng.choice([1, 1, 2]),
        fault_rate=0.0,
        longest_stall_us=3 * BIN_US,
        largest_batch=rng.choice([8, 16]),
        late=rng.choice(["next_bin", "drop", "dead_letter"]),
        publish_every_us=BIN_US // 10,
        max_events=form.max_events,
        where="noted" if form.where else EVERYTHING,
        sums=form.sums,
        count="users" if form.users else None,
        actions=tuple(Action(at, deed) for at, deed in zip(instants, deeds, strict=True)),
    )
    return schedule, form


@dataclass(frozen=True)
class Seen:
    """The outcome of a log: counts of cells, named dead letters, operator counters, public instants."""

    cells: Counter[tuple[int, int]]
    letters: dict[str, str]
    counters: Counter[str]
    visible_at_us: dict[int, int]


class WrittenWorld(World):
    """A world whose log consists of bytes."""

    def __init__(self, schedule: Schedule, form: Form, log: Log, pipeline: Pipeline) -> None:
        super().__init__(schedule, log=log, pipeline=pipeline)
        self._form = form
        self.counters = Counter[str]()

    def _make_source(self, rng: random.Random) -> LogSource:
        return WrittenSource(
            self.log,
            self.now_us,
            rng,
            make_decoder(self._form.avro),
            largest_batch=self.schedule.largest_batch,
            exact_cuts=False,
        )

    async def run(self) -> str:
        """Run like any world, and keep the operator counters."""
        told = await super().run()
        self.counters.update(await self.store.operator_counts(STREAM))
        return told

    def seen(self) -> Seen:
        """Return the outcome of the log."""
        letters = {
            self._name(partition, position): str(reason)
            for (*_, partition, position), reason in self.dead_letters.kept.items()
        }
        return Seen(cells_of(self), letters, self.counters, self.observer.watch.seen_at_us)

    def _name(self, partition: str, position: int) -> str:
        entry = self.log.partitions[partition][position]
        assert isinstance(entry, Written)
        return entry.name

    def registry(self) -> AbstractContextManager[None]:
        """Return a context manager: a schema registry that learns its second schema during the run."""

        def registered() -> Collection[int]:
            return {KNOWN_ID, NEW_ID} if self.now_us() >= REGISTERED_US else {KNOWN_ID}

        return registry(registered)


def seen_of(schedule: Schedule, form: Form, log: Log, pipeline: Pipeline | None = None) -> Seen:
    """Run a log and return its outcome. Raises: AssertionError for a broken rule."""
    world = WrittenWorld(schedule, form, log, pipeline or Pipeline())
    with world.registry():
        run_world(world)
    return world.seen()


def differences(kind: Hostile, schedule: Schedule, without: Seen, with_it: Seen) -> list[str]:
    """Describe each difference between two outcomes, apart from the hostile record itself."""
    found = _of_cells(schedule, without, with_it)
    if kind in UNSEEN and (with_it.cells != without.cells or HOSTILE in with_it.letters):
        found.append("a record that the condition leaves out is counted or refused")
    letters = {name: reason for name, reason in with_it.letters.items() if name != HOSTILE}
    if letters != without.letters:
        other = set(letters.items()) ^ set(without.letters.items())
        found.append(f"{len(other)} dead letters of others differ, such as {sorted(other)[:3]}")
    more, less = with_it.counters - without.counters, without.counters - with_it.counters
    if less or any(by > MOST_MORE.get(name, 1) for name, by in more.items()):
        found.append(f"operator counters differ by {dict(more)} and {dict(less)}")
    if not (kind in WAITS and (kind is Hostile.SLOW_LOOK_UP or _reads_late(schedule))):
        moved = _moved_rows(schedule, without.visible_at_us, with_it.visible_at_us)
        found += [f"rows {moved} are visible at other instants"] if moved else []
    return found


def _moved_rows(schedule: Schedule, without: dict[int, int], with_it: dict[int, int]) -> list[int]:
    """Return the rows that become visible at another instant with the record than without it.

    Two public instants earlier or later are allowed for a row that was already late without the record, and
    for the one after it: its bin closed during a fault, or while workers found out which witness is the
    longest. How long a backlog takes depends on its content (docs/privacy.md, "overload").
    """
    moved, was_late = [], False
    for seq in sorted(without.keys() | with_it.keys()):
        at_us, other_us = without.get(seq, 0), with_it.get(seq, 0)
        closing_us = (FIRST_BIN + seq) * BIN_US + schedule.grace_us
        is_late = at_us > closing_us + schedule.publish_every_us
        leeway_us = 2 * schedule.publish_every_us if is_late or was_late else 0
        if abs(at_us - other_us) > leeway_us:
            moved.append(seq)
        was_late = is_late
    return moved


def _reads_late(schedule: Schedule) -> bool:
    """Return whether records may be read long after they came: after a fault, or a start beside others.

    A second worker waits until all have said what their witnesses hold. A record may then be read only after
    its schema is registered, and its schema may still be looked up while a bin closes.
    """
    return bool(schedule.actions) or schedule.workers > 1


def _of_cells(schedule: Schedule, without: Seen, with_it: Seen) -> list[str]:
    more, less = with_it.cells - without.cells, without.cells - with_it.cells
    first, weight = (2, AMOUNTS.range.weight) if schedule.sums else (1, 1)  # the cells of the first key
    moved = sorted(cell for cell in more.keys() | less.keys() if cell[1] >= first)
    if moved:
        return [f"cells of others differ: {moved[:5]}"]
    if less.total() and not schedule.max_events:
        return [f"{less.total()} other records of the first key moved"]
    if more.total() > weight * max(1, schedule.max_events):
        return [f"one record more changed the first key by {more.total()}"]
    return []


def tried(
    seed: int,
    kinds: Collection[Hostile] = tuple(Hostile),
    pipeline: Pipeline | None = None,
    form: Form | None = None,
) -> list[str]:
    """Run a seed's log without and with a record of each kind; describe differences and broken rules."""
    schedule, form = draw_differential(seed, form)
    log = draw_written(schedule, form, random.Random(f"written {seed}"))
    found = []
    try:
        without = seen_of(schedule, form, log, pipeline)
    except AssertionError as broken:
        return [f"without a hostile record: {broken}"]
    left_out = {Hostile.EARLY_SCHEMA} if _reads_late(schedule) else set()  # it may count
    for kind in [kind for kind in form.kinds() if kind in kinds and kind not in left_out]:
        neighbour = with_hostile(log, kind, form, schedule, random.Random(f"{kind} {seed}"))
        try:
            with_it = seen_of(schedule, form, neighbour, pipeline)
        except AssertionError as broken:
            found.append(f"{kind}: {broken}")
        else:
            found += [f"{kind}: {words}" for words in differences(kind, schedule, without, with_it)]
    return found
