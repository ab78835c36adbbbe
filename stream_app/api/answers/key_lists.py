"""Parts of a stream's public list of keys. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, islice

import numpy as np

from dphist.arrays import Int64Array
from stream_app.api import schemas
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView
from stream_app.core.counting.keys import KeyList
from stream_app.core.instants import format_instant

LIST_US = 2_000.0  # a part of a list of 100,000 keys
_BETWEEN = "\n"  # names, where they are searched as one text


def key_list(view: StreamView, query: schemas.KeyListQuery) -> schemas.KeyListAnswer:
    """Return a part of a stream's list of keys, or which of some names it has. Raises: QueryError."""
    declared = view.declared.keys
    if declared is None:
        raise QueryError("this stream has no keys; ask for its count", "stream")
    names = _names(declared, query.field)
    if query.key:
        return _looked_up(view, declared, query)
    found = list(islice(_containing(names, query.contains.lower(), query.after), query.limit + 1))
    shown = found[: query.limit]
    return schemas.KeyListAnswer(
        stream=view.name,
        field=query.field,
        found=found_at(view, shown),
        listed=len(names),
        keys=[names[place] for place in shown],
        next=shown[-1] + 1 if len(found) > len(shown) else None,
        unknown=[],
    )


def found_at(view: StreamView, places: Sequence[int | None]) -> list[str | None] | None:
    """Return when the keys at these places were found, null for listed ones; None if no keys are found.

    Args: places, in the list of keys, with ``other`` after it; None for a pattern, which is no key.
    """
    if not view.declared.finds_keys:
        return None
    found = view.epochs[-1].record.found if view.epochs else ()
    ends = [format_instant(view.binning.end_us(one.bin)) for one in found for _ in one.names]
    listed = len(view.declared.keys.labels) - len(ends) if view.declared.keys else 0
    has = range(listed, listed + len(ends))
    return [ends[place - listed] if place is not None and place in has else None for place in places]


def _looked_up(view: StreamView, declared: KeyList, query: schemas.KeyListQuery) -> schemas.KeyListAnswer:
    """Return which of the asked names are keys, or patterns of several fields that match keys."""
    if query.contains or query.field is not None or query.after:
        line = "key: looks names up, so it stands alone; leave contains, field and after out"
        raise QueryError(line, "key")
    known = [name for name in query.key if name in declared.place_of_label or declared.matches(name)]
    known_names = set(known)
    return schemas.KeyListAnswer(
        stream=view.name,
        field=None,
        found=found_at(view, [declared.place_of_label.get(name) for name in known]),
        listed=len(declared.labels),
        keys=known,
        next=None,
        unknown=[name for name in query.key if name not in known_names],
    )


def _names(declared: KeyList, field: str | None) -> tuple[str, ...]:
    """Return the keys, or the values of one of several fields. Raises: QueryError."""
    if field is None:
        return declared.labels
    for one in declared.fields:
        if one.field == field:
            return one.values
    known = ", ".join(one.field for one in declared.fields)
    several = f"known are {known}" if known else "this stream has one; leave field out"
    raise QueryError(f"field: {field[:80]!r} is none of several key fields; {several}", "field")


def _containing(names: tuple[str, ...], sought: str, after: int) -> Iterator[int]:
    """Yield the places of names that contain a text, from one place on.

    Args: sought, in lower case.
    Cost: one search through the text of the names that are passed, in C.
    """
    if not sought:
        yield from range(after, len(names))
        return
    if _BETWEEN in sought:  # between any two names the text below would hold a part of it
        yield from (place for place in range(after, len(names)) if sought in names[place].lower())
        return
    text, starts = _searched(names)
    while after < len(names):
        at = text.find(sought, int(starts[after]))
        if at < 0:
            return
        after = int(np.searchsorted(starts, at, side="right"))
        yield after - 1


@lru_cache(maxsize=8)
def _searched(names: Sequence[str]) -> tuple[str, Int64Array]:
    """Return all names in one text in lower case, and where each begins; at the end, where the text ends."""
    lowered = [f"{name.lower()}{_BETWEEN}" for name in names]
    return "".join(lowered), np.fromiter(accumulate(map(len, lowered), initial=0), np.int64)
