"""The records of a sample that caps leave out: a share for each cap alone, and for all of them. SECRET."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from dphist.caps import Caps

Owner = tuple[Hashable, Hashable]  # a cap window, and a user


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Shares of a sample's records, from 0 to 1. SECRET.

    Args: together, the share that all caps leave out; alone, the share that each declared cap would leave out
        without the others, by the cap's name.
    """

    together: float
    alone: dict[str, float]


def left_out(owners: Sequence[Owner], keys: Sequence[Hashable], caps: Caps) -> LeftOut:
    """Return the shares that the caps leave out of a sample, whose records count in their order here.

    The service takes the records of a bin in another order, so its shares differ a little.
    Args: owners and keys of the records, in the order of their bins.

    >>> left_out([(0, "ann")] * 5, ["a", "a", "a", "b", "c"], Caps(4, 2, 2))
    LeftOut(together=0.4, alone={'max_events': 0.2, 'max_keys': 0.2, 'max_per_key': 0.2})
    """
    declared = {name: most for name in _CAPS if (most := getattr(caps, name)) is not None}
    if not owners:
        return LeftOut(0.0, dict.fromkeys(declared, 0.0))
    alone = {name: _share(owners, keys, {name: most}) for name, most in declared.items()}
    return LeftOut(_share(owners, keys, declared), alone)


_CAPS = ("max_events", "max_keys", "max_per_key")


def _share(owners: Sequence[Owner], keys: Sequence[Hashable], most: dict[str, int]) -> float:
    """Return the share of records beyond any of these caps; a cap that is not named has no limit."""
    events, in_keys, counted_keys = Counter[Owner](), Counter[tuple[Owner, Hashable]](), Counter[Owner]()
    over = 0
    for owner, key in zip(owners, keys, strict=True):
        is_new = not in_keys[owner, key]
        if (
            events[owner] >= most.get("max_events", len(owners))
            or in_keys[owner, key] >= most.get("max_per_key", len(owners))
            or (is_new and counted_keys[owner] >= most.get("max_keys", len(owners)))
        ):
            over += 1
            continue
        events[owner] += 1
        in_keys[owner, key] += 1
        counted_keys[owner] += is_new
    return over / len(owners)
