"""Streams that share a total: their schedules, and the rule that nothing they show may cost more."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from stream_app.core.budget import Total
from stream_app.core.records import LedgerEntry, Reply
from stream_app.ports import OperatorError
from tests.simulator.checks import Broken
from tests.simulator.schedule import BIN_US, SOURCE, Action, Deed, Schedule

if TYPE_CHECKING:
    from tests.simulator.world import World

NAMES = ("visits", "visits beside", "visits again")
EPSILONS = (Fraction(1), Fraction(1, 2), Fraction(1))
ENOUGH = 10**6  # events of a user: the cap leaves nothing out
LOSSES = (Deed.KILL, Deed.OUTAGE, Deed.BACKUP, Deed.RESTORE, Deed.RESTORE, Deed.LEAP)


def under_a_total(schedule: Schedule) -> Schedule:
    """Return the schedule with two or three streams of users over its log, short epochs and one total.

    The store is often set back.
    """
    rng = random.Random(f"total {schedule.seed}")
    plain = replace(schedule, keys=1, buckets=1, window=0, over_epochs=False, sums=False, sides=False)
    branching, horizon = rng.choice([((2,), 2), ((2, 2), 3)])
    short = replace(plain, branching=branching, horizon=horizon, bins=12, max_events=ENOUGH, sibling=None)
    count = rng.choice([2, 3])
    total = Total(rng.randint(count + 1, 3 * count) * Fraction(1))
    deeds = [Deed.BACKUP, *[rng.choice(LOSSES) for _ in range(rng.choice([1, 3, 5]))]]
    instants = sorted(rng.randrange(short.bins * BIN_US) for _ in deeds)
    short = replace(short, allowed=total, actions=tuple(map(Action, instants, deeds)))
    last = None
    for number in reversed(range(count)):
        release = rng.choice(["anticipating", "causal"]) if number else short.release
        facts: dict[str, Any] = {"name": NAMES[number], "epsilon": EPSILONS[number], "release": release}
        last = replace(short, **facts, sibling=last)
    assert last is not None
    return last


def ends_for_its_total(failure: BaseException | None) -> bool:
    """Return whether a worker ended because a stream without a running epoch may not open one."""
    return isinstance(failure, OperatorError) and "would exceed streams." in str(failure)


async def check_total(world: World, method: str, args: tuple[Any, ...], reply: Any) -> None:
    """Check the rules of a total after an effect on the store. Raises: Broken.

    The ledgers never state more than the total. Epochs of which anybody saw a row, and those that are open,
    never cost more, whatever a lost store forgets. An epoch is in the ledger before it is open. A stream is
    stopped only if one more epoch would exceed the total.
    """
    if reply is not Reply.DONE or method not in ("reserve", "open_epoch", "stop"):
        return
    total = world.schedule.allowed
    assert total is not None
    known = await _known(world)
    stated = _sum((entry.stream, entry.epoch, entry.start_us) for entry in known)
    if stated > total.epsilon:
        raise Broken(f"the ledgers state {stated}, more than the total of {total.epsilon}")
    if method == "open_epoch":
        _check_opened(args[0], args[2].epoch, known)
        spent = await _spent(world)
        if spent > total.epsilon:
            raise Broken(f"epochs that were seen or are open cost {spent}, the total is {total.epsilon}")
    if method == "stop" and stated + _epsilon(args[0]) <= total.epsilon:
        raise Broken(f"{args[0]} is stopped, and {total.epsilon} allows one more epoch beside {stated}")


def _check_opened(stream: str, epoch: int, known: Iterable[LedgerEntry]) -> None:
    if not any((entry.stream, entry.epoch) == (stream, epoch) for entry in known):
        raise Broken(f"epoch {epoch} of {stream} is open, and the ledger does not have it")


async def _known(world: World) -> list[LedgerEntry]:
    """Return what the store's ledger and the one outside it have, each entry once."""
    outside = world.pipeline.outside
    kept = [*await world.store.ledger(SOURCE), *(await outside.entries() if outside is not None else ())]
    return list({replace(entry, lost=False) for entry in kept})


async def _spent(world: World) -> Fraction:
    """Return what the epochs cost of which anybody has seen a row, or that are open now."""
    epochs = {(name, epoch) for name, one in world.observers.items() for epoch, _, _ in one.watch.nodes}
    for name in world.observers:
        state = await world.store.load(name)
        if state is not None and state.epoch.end_reason is None:
            epochs.add((name, state.epoch.epoch))
    return _sum((name, epoch, 0) for name, epoch in epochs)


def _sum(epochs: Iterable[tuple[str, int, int]]) -> Fraction:
    """Return what epochs cost a user: their epsilons add up."""
    return sum((_epsilon(name) for name, _, _ in set(epochs)), Fraction(0))


def _epsilon(stream: str) -> Fraction:
    return EPSILONS[NAMES.index(stream)]
