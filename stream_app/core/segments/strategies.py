"""Changes of a running stream's settings: which are possible, and how its strategies are stored.

A stream goes on under another strategy when its next epoch opens. The store then keeps the texts of all its
strategies in the place of the strategy's text. Their ``"v"`` is not 1, so a build that knows no changes ends
with one line. The first row after a change says what the strategy before was
(docs/decisions/0043-changes-at-the-next-epoch.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from stream_app.core.arrival import ArrivalChange
from stream_app.core.kinds.tree import Tree
from stream_app.core.records import EpochRecord, StreamState
from stream_app.core.segments.history import read_strategy
from stream_app.core.strategy import Strategy, canonical_json

_START = b'{"strategies":'  # canonical texts have sorted keys, so no strategy's text begins like this
_VERSION = 3


# What may change: facts that say how bins are released, not which events they count. So the exact counts of
# the next epoch's bins stay what they are, and no record is read again.
_CHANGEABLE = ("privacy.epsilon", "tree.workload", "tree.branching", "tree.shares")


# What arrival decides may change in every live stream, at a bin that is announced (core/arrival.py).
_ANNOUNCED = ("late", "time.grace_us", "time.max_ahead_bins")


def may_change(fact: str, running: Strategy, planned: Strategy) -> bool:
    """Return whether a fact may change when a later epoch opens. Args: fact, its path in the text.

    A fact about releases may in live streams that count over time only, if both strategies have the same kind
    of release: then each epoch's values have the same tables, and ranges over epochs of both strategies have
    exact errors.
    """
    if fact in _ANNOUNCED:
        return running.declared.until_us is None
    then, now = running.kind, planned.kind
    return (
        fact.startswith(_CHANGEABLE)
        and running.declared.until_us is None
        and isinstance(then, Tree)
        and type(then) is type(now)
        and (then.design.horizon, then.design.neighbours, then.width)
        == (now.design.horizon, now.design.neighbours, now.width)
    )


# What no generation may change: facts that say which events are meant, and for whom the promise holds. With
# another one of these, an event could count in both generations, or what both cost would add up.
_OF_ALL_GENERATIONS = (
    *("ledger", "source", "successor_of", "time.field", "time.format", "time.zone", "time.first_us"),
    *("privacy.unit", "privacy.unit.user", "privacy.unit.per", "privacy.neighbours"),
)


def may_begin_anew(fact: str, running: Strategy) -> bool:
    """Return whether a fact may change where the stream's next generation begins. Args: as ``may_change``."""
    if running.declared.until_us is not None or fact.split(".")[0] == "source":
        return False
    if fact == "time.timezone" and running.declared.period is not None:
        return False  # days of two zones overlap
    return fact not in _OF_ALL_GENERATIONS


def fixed_facts(running: Strategy, planned: Strategy) -> list[tuple[str, Any, Any]]:
    """Return the facts that differ, and that no later epoch of the segment may change."""
    then, now = (
        {"ledger": strategy.source, "width": strategy.width} | strategy.declared.plain()
        for strategy in (running, planned)
    )
    return [fact for fact in differences(then, now) if not may_change(fact[0], running, planned)]


def needs_segment(running: Strategy, planned: Strategy) -> bool:
    """Return whether the planned settings need, and may have, the next segment of the stream."""
    facts = fixed_facts(running, planned)
    return bool(facts) and all(may_begin_anew(fact[0], running) for fact in facts)


def differences(then: object, now: object, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of each fact that differs between two JSON values, and both values."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted(then.keys() | now.keys()):
            yield from differences(then.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif then != now:
        yield path, then, now


def pending_change(state: StreamState) -> ArrivalChange | None:
    """Return the announced change that no epoch has begun with yet."""
    change = state.change
    return change if change is not None and change.bin > state.epoch.first_bin else None


def announced_bin(running: Strategy, state: StreamState, now_us: int) -> int:
    """Return the first bin of a change that is announced now: an epoch begins there, by the clock alone."""
    bin, horizon = state.epoch.first_bin + state.epoch.bins, running.time.horizon
    due = running.declared.time.closing_over(state.change).last_due_bin(now_us)
    return bin + horizon * max(0, -((bin - due - 4) // horizon))


def most_ahead_bins(running: Strategy, state: StreamState) -> int:
    """Return how many bins ahead a record may be that is not counted yet, also under a change of settings."""
    change, most = state.change, running.declared.time.max_ahead_bins
    if change is None or change.is_over(state.released_bin):
        return most
    return max(most, change.before.max_ahead_bins, change.after.max_ahead_bins)


def may_announce(running: Strategy, state: StreamState, bin: int, now_us: int) -> bool:
    """Return whether it is early enough to announce, replace or take back a change that begins in this bin.

    The bin before the last one that may have a cut is still open, so that a slow call is in time, too.
    """
    return running.declared.time.closing_over(state.change).last_due_bin(now_us) < bin - 3


def source_of(text: bytes) -> str:
    """Return the name of a stream's source. Args: text, as the store keeps it, of a history, too."""
    source: str = json.loads(last_text(text))["source"]
    return source


def last_text(text: bytes) -> bytes:
    """Return the text of a stream's current strategy. Args: text, as for ``source_of``."""
    return read_strategies(read_strategy(text)[0])[-1]


def strategies_text(texts: Sequence[bytes]) -> bytes:
    """Return the text that the store keeps for a stream with these strategies, the current one last."""
    if len(texts) == 1:
        return texts[0]
    return canonical_json({"strategies": [text.decode() for text in texts], "v": _VERSION})


def read_strategies(text: bytes) -> tuple[bytes, ...]:
    """Return the texts of all strategies of a stream, the current one last."""
    if not text.startswith(_START):
        return (text,)
    return tuple(one.encode() for one in json.loads(text)["strategies"])


@lru_cache(maxsize=4_096)
def by_hash(texts: tuple[bytes, ...]) -> Mapping[str, Strategy]:
    """Return strategies by their hashes, in the order of the texts."""
    found = map(Strategy.from_json, texts)
    return {strategy.hash: strategy for strategy in found}


def strategy_of(texts: tuple[bytes, ...], epoch: EpochRecord) -> Strategy:
    """Return the strategy of an epoch, with the keys that it found. Args: texts, of all strategies."""
    strategy = Strategy.from_json(texts[0]) if len(texts) == 1 else by_hash(texts)[epoch.strategy_hash]
    return strategy.with_found(epoch)


def with_strategy(texts: Iterable[bytes], text: bytes) -> tuple[bytes, ...]:
    """Return a stream's texts with a current one, each text once."""
    return *(one for one in texts if one != text), text


def before_change(then: Strategy, now: Strategy) -> dict[str, object]:
    """Return what the first row after a change says: the strategy before, and where its text differed."""
    texts = json.loads(now.to_json()), json.loads(then.to_json())
    return {"from": then.hash, "was": list(_differences(texts[0], texts[1], ()))}


def is_change(row: bytes) -> bool:
    """Return whether a row is the first one after a change: builds that know no changes must not read it."""
    return b'"changed":{' in row  # in a text the quotation marks would be escaped


def strategy_before(now: Strategy, said: Mapping[str, Any]) -> Strategy:
    """Return the strategy before a change. Args: said, what ``before_change`` returned.

    Raises: ValueError if this is not the strategy whose hash the row holds.
    """
    text = json.loads(now.to_json())
    for path, *was in said["was"]:
        place = text
        for name in path[:-1]:
            place = place[name]
        if was:
            place[path[-1]] = was[0]
        else:
            place.pop(path[-1], None)
    found = Strategy.from_json(canonical_json(text))
    if found.hash != said["from"]:
        raise ValueError("a row after a change of settings does not match the strategy that it names")
    return found


def _differences(now: object, then: object, path: tuple[str, ...]) -> Iterator[list[object]]:
    """Yield each place where two texts differ, and what was there: [path, value], or [path] for nothing."""
    if isinstance(now, dict) and isinstance(then, dict):
        for name in sorted(now.keys() | then.keys()):
            if name not in then:
                yield [[*path, name]]
            elif name not in now:
                yield [[*path, name], then[name]]
            else:
                yield from _differences(now[name], then[name], (*path, name))
    elif now != then:
        yield [list(path), then]
