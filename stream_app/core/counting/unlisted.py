"""Keys that no list names: what is a name, and the rule by which names are found."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

import msgspec

from dphist.discovery import DiscoveryRule
from stream_app.core.counting.read_values import comparable
from stream_app.core.found_keys import ROOM

OTHER = "other"  # the key for all events that have no key of their own
LONGEST_NAME = 200  # characters; an event with a longer value has no key
EPOCHS = 4  # for which a found key is listed, unless the configuration says another number

_LARGEST = 2**53  # below it a double says which whole number was written


class Discover(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How keys that no list names are found.

    Args: epsilon and delta, of all names of an epoch; per_user, how many keys a user brings; least_users, a
        public least number (``dphist.discovery.DiscoveryRule``); epochs, for how many epochs after the one
        that found it a key is listed; room, for how many events of hidden keys there are cells.
    """

    epsilon: Fraction
    delta: Fraction
    per_user: int = 1
    least_users: int = 1
    epochs: int = EPOCHS
    room: int = ROOM

    def __post_init__(self) -> None:
        """Set a default to the default object: the text omits a field only if it holds that object."""
        if self.room == ROOM:
            msgspec.structs.force_setattr(self, "room", ROOM)

    def rule(self, decisions: int) -> DiscoveryRule:
        """Return the rule of an epoch. Args: decisions, one for each bin."""
        return _rule(self, decisions)


@lru_cache(maxsize=64)
def _rule(discover: Discover, decisions: int) -> DiscoveryRule:
    given = discover.epsilon, discover.delta, decisions, discover.per_user, discover.least_users
    return DiscoveryRule(*given)


def key_names(column: Iterable[object]) -> list[str]:
    """Return the name of the key that each value is; empty if it names none.

    A key has one name, whether a producer writes "7", 7 or 7.0. A text that is empty, longer than
    ``LONGEST_NAME`` characters, or not printable names no key, because people must be able to read it. Nor
    does "other".

    >>> key_names(["/a", 7, 7.0, True, "", "a\\nb", 1.5, None])
    ['/a', '7', '7', 'true', '', '', '', '']
    """
    return [_name(comparable(value)) for value in column]


def _name(value: str | int | float | None) -> str:
    if isinstance(value, float):
        value = int(value) if value.is_integer() and abs(value) < _LARGEST else None
    if isinstance(value, int):
        return str(value) if abs(value) < _LARGEST else ""
    readable = value is not None and 0 < len(value) <= LONGEST_NAME and value.isprintable()
    return value if value is not None and readable and value != OTHER else ""
