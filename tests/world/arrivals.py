"""Events that arrive at given instants, under faults of the ports, and where they count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.stream_app.declared import BIN_US, strategy_of
from tests.world.faults import Call, Fault, Struck, first, lost_call, lost_reply, slow
from tests.world.world import World

BIN_S = BIN_US / 1e6


def second(fault: Fault) -> Fault:
    """Return a fault that strikes the second call only."""
    calls = iter(range(10**9))

    async def strike(call: Call) -> Any:
        return await (fault(call) if next(calls) == 1 else call())

    return strike


@dataclass(frozen=True)
class Case:
    """Events under faults, and where they count.

    Args: arrivals, (instant, event times), in bins; store, source, the faults of calls; letters, reasons.
    """

    arrivals: list[tuple[float, list[float]]]
    counts: dict[int, int]
    store: Callable[[], dict[str, Fault]] = dict
    source: Callable[[], dict[str, Fault]] = dict
    letters: list[str] = field(default_factory=list)
    workers: int = 1


CASES = {
    "an event that is read long after its bin's cut counts in its own bin": Case(
        [(100.1, [100]), (102.5, [100, 101])],
        {100: 1, 102: 2},
        source=lambda: {"read": first(slow(2.2 * BIN_S))},
    ),
    "an event from the future holds up nothing": Case(
        [(100.1, [100, 103, 100])], {100: 2}, letters=["future"]
    ),
    "a slice waits for a cut that is due": Case(
        [(100.995, [100]), (101.5, [100])],
        {100: 1, 101: 1},
        store=lambda: {"apply": first(slow(0.01 * BIN_S))},
    ),
    "a worker that needs a bin for each call counts what lies below its cuts": Case(
        [(100.1, [100, 100]), (102.3, [102, 102])],
        {100: 2, 102: 2},
        store=lambda: {"apply": slow(1.01 * BIN_S)},
    ),
    "a read that takes long moves no cut": Case(
        [(100.1, [100]), (100.5, [101]), (101.2, [100.5])],
        {100: 1, 101: 2},
        source=lambda: {"read": second(slow(1.5 * BIN_S))},
    ),
    "two workers count each event once": Case(
        [(100.1, [100, 101]), (100.2, [101]), (101.3, [100])], {100: 1, 101: 3}, workers=2
    ),
    "a lost call is repeated": Case(
        [(100.1, [100, 101]), (100.2, [101])], {100: 1, 101: 2}, store=lambda: {"apply": first(lost_call)}
    ),
    "a lost reply counts nothing twice": Case(
        [(100.1, [100, 101]), (100.2, [101])], {100: 1, 101: 2}, store=lambda: {"apply": first(lost_reply)}
    ),
}


def check(case: Case) -> None:
    """Let the events arrive, and compare counts and dead letters."""
    with World(strategy_of()) as world:
        for _ in range(case.workers):
            store, source = Struck(world.store, **case.store()), Struck(world.reader(), **case.source())
            world.start(store=store, source=source)
        for instant, times in case.arrivals:
            world.until(instant)
            world.arrive(*times)
        world.until(106)
        found = world.counts(), world.letters.reasons()
        assert found == (case.counts, case.letters), found
