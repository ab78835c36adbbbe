"""How much of one privacy unit can count: caps on its events, its keys, and its events in one key.

These functions see no data. All numbers are exact integers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Caps:
    """The most that one privacy unit can add to the counts of an epoch, over all bins and columns.

    A column is a key after mapping; ``other`` is one of them. Let a be the unit's number of counted events in
    each column. The caps say: at most ``max_keys`` entries of a are above zero, each entry is at most
    ``max_per_key``, and the sum of the entries is at most ``max_events``.

    Args: None for a cap that is not there. ``max_keys`` and ``max_per_key`` are given together or not at all.
    Raises: ValueError for no cap, for only one of ``max_keys`` and ``max_per_key``, and for a cap below 1.

    >>> caps = Caps(max_events=12, max_keys=5, max_per_key=5)
    >>> caps.l1, caps.l2_squared
    (12, 54)
    """

    max_events: int | None = None
    max_keys: int | None = None
    max_per_key: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            most = getattr(self, field.name)
            if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
                raise ValueError(f"{field.name}: {most!r} is not a whole number of at least 1")
        if (self.max_keys is None) != (self.max_per_key is None):
            raise ValueError("max_keys and max_per_key: give both or neither")
        if self.max_events is None and self.max_keys is None:
            raise ValueError("caps: give max_events, or max_keys and max_per_key, or all three")

    @property
    def l1(self) -> int:
        """The most events of a unit that count: the largest sum of a.

        The unit's events in one bin attain it, so it is also the largest sum of a in one bin.

        >>> Caps(max_keys=5, max_per_key=2).l1, Caps(7, 5, 2).l1, Caps(max_events=4).l1
        (10, 7, 4)
        """
        if self.max_keys is None or self.max_per_key is None:
            assert self.max_events is not None
            return self.max_events
        in_keys = self.max_keys * self.max_per_key
        return in_keys if self.max_events is None else min(in_keys, self.max_events)

    @property
    def l2_squared(self) -> int:
        """The largest sum of squares of a.

        A sum of squares grows when an event moves from a column to one that has at least as many events. So
        the largest has full columns and at most one column that is partly full.

        For neighbours by substitution a unit's events are replaced by others: the caller doubles ``l1``. The
        squared norm then doubles too, as long as the strategy has no negative entries.

        >>> Caps(max_keys=5, max_per_key=2).l2_squared, Caps(7, 5, 2).l2_squared, Caps(4).l2_squared
        (20, 13, 16)
        """
        full = self.l1 if self.max_per_key is None else self.max_per_key
        columns, rest = divmod(self.l1, full)
        return columns * full**2 + rest**2
