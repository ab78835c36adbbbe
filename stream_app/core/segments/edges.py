"""Whether a stream may have a next segment, and where it begins.

It begins where an epoch ends, or is cut short for the new bins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from math import lcm
from typing import Any

from stream_app.core.declaration import Declaration
from stream_app.core.instants import format_instant
from stream_app.core.records import StreamState
from stream_app.core.strategy import Strategy

_LATEST_US = 5_000_000  # a beginning that is nearer could pass before it is stored
_MOST_EPOCHS, _MOST_US = 10_000, 3_650 * 86_400_000_000  # in which a common edge is looked for

# The first and the last bin before which an epoch can end; the last is its planned end.
Ends = tuple[int, int]


def ends_ahead(running: Strategy, state: StreamState | None, now_us: int) -> Iterator[Ends]:
    """Yield where each epoch can end from now on. The clock and the stored state alone decide it."""
    declared, horizon = running.declared, running.time.horizon
    if state is not None and state.until_bin is not None:
        yield state.until_bin, state.until_bin
        return
    begun = declared.first_bin(now_us) if state is None else state.epoch.first_bin
    end = begun + (declared.epoch_bins(begun, None, horizon) if state is None else state.epoch.bins)
    near = declared.time.binning.bin_of([now_us + _LATEST_US, now_us + _MOST_US]) + 1
    soonest, farthest = near.tolist()
    if state is not None and state.stopped:  # its total allows no epoch: any bin that is ahead will do
        step = declared.day_bins
        ahead = range(soonest + -soonest % step, soonest + _MOST_EPOCHS * step, step)
        yield from ((bin, bin) for bin in ahead)
        return
    if end < soonest:
        begun = end + (soonest - end - 1) // horizon * horizon
        end = begun + horizon
    yield max(begun + 1, soonest), end
    for last in islice(range(end + horizon, farthest + horizon, horizon), _MOST_EPOCHS - 1):
        yield last - horizon + 1, last


def common_edge(running: Strategy, wanted: Declaration, ends: Iterable[Ends]) -> int | None:
    """Return where the next segment begins: an epoch's planned end, if a bin of the wanted settings does.

    Otherwise it is the latest instant within the epoch at which bins of both begin: the stream ends there,
    and with it the epoch. The first epoch with such an instant counts.
    Returns: None if bins of both never begin together. Args: ends, of the epochs, as ``ends_ahead``.
    """
    old, new, step = running.declared.time.binning, wanted.time.binning, running.declared.end_step
    day = running.declared.day_bins  # caps begin anew at an edge, so a visitor's day lies on one side of it
    edges = (
        old.latest_shared(new, first, last - last % day, lcm(step, day))
        for first, last in ends
        if last % day % step == 0
    )
    return next((old.start_us(edge) for edge in edges if edge is not None), None)


def never_meet(stream: str, end_us: int) -> str:
    """Return why a segment has no instant to begin. Args: end_us, the end of an epoch."""
    return (
        f"streams.{stream}.time.bin: no bin begins where an epoch of the settings so far ends, for "
        f"example at {format_instant(end_us)}, or could be cut short; choose bins that begin there"
    )


# Facts that say which events are meant, and for whom the promise holds. With another one of these, an event
# could count in two segments, or what both cost would add up.
_FIXED = (
    *("ledger", "source", "successor_of", "time.field", "time.format", "time.zone", "time.first_us"),
    *("privacy.unit", "privacy.unit.user", "privacy.unit.per", "privacy.neighbours"),
)


def may_change(fact: str, running: Declaration) -> bool:
    """Return whether a fact may change where the next segment begins. Args: fact, its path in the text."""
    if running.until_us is not None or fact.split(".")[0] == "source":
        return False
    if fact == "time.timezone" and running.period is not None:
        return False  # days of two zones overlap
    return fact not in _FIXED


def needs_segment(running: Declaration, wanted: Declaration) -> bool:
    """Return whether the wanted settings need, and may have, the next segment of the stream."""
    facts = [fact for fact, _, _ in differences(running.plain(), wanted.plain())]
    return bool(facts) and all(may_change(fact, running) for fact in facts)


def differences(then: object, now: object, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of each fact that differs between two JSON values, and both values."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted(then.keys() | now.keys()):
            yield from differences(then.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif then != now:
        yield path, then, now
