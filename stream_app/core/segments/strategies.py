"""Reads segments that older releases changed in place: with the next epoch, or at an announced bin.

Such a segment has several strategies. The store keeps the texts of all of them in the place of the strategy's
text. Their ``"v"`` is not 1. The first row after a change tells the strategy before. This release
goes on with such a segment, and changes none in this way (docs/decisions/0058-segments.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from stream_app.core.records import EpochRecord, StreamState
from stream_app.core.segments.history import read_strategy
from stream_app.core.strategy import Strategy, canonical_json

_START = b'{"strategies":'  # canonical texts have sorted keys, so no strategy's text begins like this
_VERSION = 3


def unfinished_change(state: StreamState) -> int | None:
    """Return the first bin of an announced change that still decides about records; None: there is none.

    The release that announced it closes the bins before and after it by different settings.
    """
    if state.announced is None:
        return None
    change = json.loads(state.announced)
    first_bin, before, after = change["bin"], change["before"], change["after"]
    newest_before = first_bin - 1 + int(before["max_ahead_bins"])
    newest_after = state.released_bin + 2 + int(after["max_ahead_bins"])
    is_over = state.released_bin >= first_bin - 1 and newest_after >= newest_before
    return None if is_over else int(first_bin)


def source_of(text: bytes) -> str:
    """Return the name of a stream's source. Args: text, as the store keeps it, of a history, too."""
    source: str = json.loads(last_text(text))["source"]
    return source


def current(text: bytes) -> Strategy:
    """Return a stream's current strategy. Args: text, as for ``source_of``."""
    return Strategy.from_json(last_text(text))


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
    """Return a stream's strategy texts with ``text`` last, as the current one, and not repeated."""
    return *(one for one in texts if one != text), text


def before_change(then: Strategy, now: Strategy) -> dict[str, object]:
    """Return the field ``changed`` of the first row after a change: the old hash and the old values."""
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
    """Yield each difference of two texts, with the old value: [path, value], or [path] if there was none."""
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
