"""Keys that no list names: what is a name, by which rule names are found, and which keys a user brings.

*Which keys a user brings* (docs/decisions/0055-names-of-keys.md). A user brings her first keys that are not
public, in the order of bins, and within a bin in the order of a hash of her id and the key. Which keys are
public follows from the decisions before the bin. So the keys that she brings are a function of her own
records and of public facts: neither other users nor the numbers of keys play a part.

*Which hidden keys of a user may count in a bin.* A reader asks the store for the numbers of these only.
Otherwise one user, of whose records ``most`` count, would cause a name in the store with each invented key. A
record cannot count if ``most`` other places of the same user in the same bin have smaller ranks. A rank is a
hash of user and place: it is the order in which the tally takes a user's places of a bin (``bounding``). With
caps on keys a place is here the first one of its key.

*Why that changes no count.* The rule decides only for which keys the store gets a name. All records wait
under their keys' hashes, and a key that may count has its name. So no count depends on the knowledge of a
reader; one that has forgotten records lets more names through. Ranks are as if drawn: of n new keys of a user
in a bin the rule lets about ``most`` * (1 + ln(n / ``most``)) through, in each partition. Other users'
records play no part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import msgspec

from dphist.discovery import DiscoveryRule
from stream_app.core.counting.bounding import rank_of
from stream_app.core.counting.read_values import comparable, each_once
from stream_app.core.epochs import ROOM

OTHER = "other"  # the key for all events that have no key of their own
LONGEST_NAME = 200  # characters; an event with a longer value has no key
EPOCHS = 4  # for which a found key is listed, unless the configuration says another number

_LARGEST = 2**53  # below it a double says which whole number was written

BROUGHT = 1 << 40  # added to the place of a key: the cell of the same bin with the users who bring the key


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
        return DiscoveryRule(self.epsilon, self.delta, decisions, self.per_user, self.least_users)


def key_names(column: Sequence[object]) -> list[str]:
    """Return the name of the key that each value is; empty if it names none.

    A key has one name, whether a producer writes "7", 7 or 7.0. A text that is empty, longer than
    ``LONGEST_NAME`` characters, or not printable names no key, because people must be able to read it. Nor
    does "other".

    >>> key_names(["/a", 7, 7.0, True, "", "a\\nb", 1.5, None])
    ['/a', '7', '7', 'true', '', '', '', '']
    """
    return each_once(_name, column)


def _name(written: object) -> str:
    value = comparable(written)
    if isinstance(value, float):
        value = int(value) if value.is_integer() and abs(value) < _LARGEST else None
    if isinstance(value, int):
        return str(value) if abs(value) < _LARGEST else ""
    readable = value is not None and 0 < len(value) <= LONGEST_NAME and value.isprintable()
    return value if value is not None and readable and value != OTHER else ""


@dataclass(frozen=True, slots=True)
class Slots:
    """The facts that decide which keys the users of a bin bring, and the state that the stream must have.

    Args: per_user, the keys that a user brings in a cap window, also if an epoch ends early in it;
        first_unlisted, the place in the list of the first key that no list names; shown, the numbers of
        public keys; epoch, and seq of the last released row: the bin follows; thinned, how often the hidden
        keys have been halved (``epochs.thinned_for``).
    """

    per_user: int
    first_unlisted: int
    shown: Collection[int]
    epoch: int
    seq: int
    thinned: int = 0


class KeysOfBin(NamedTuple):
    """Records of which all or none count in a bin.

    Args: after_cut, the last cut before records that the next cut decides about; None for all others.
    """

    partition: str
    bin: int
    after_cut: int | None


Known = dict[KeysOfBin, dict[bytes, list[bytes]]]  # by the user's id: the smallest ranks, rising. SECRET


def may_count(known: Known, group: KeysOfBin, user: bytes, place: bytes, most: int) -> bool:
    """Note that a user has a record in a place of this bin; return whether it may count.

    >>> known, bin, user = {}, KeysOfBin("0", 5, None), bytes(16)
    >>> [may_count(known, bin, user, bytes(19) + place, 1) for place in (b"7", b"8", b"7")]
    [True, False, True]
    """
    ranks, rank = known.setdefault(group, {}).setdefault(user, []), rank_of(user + place)
    at = bisect_left(ranks, rank)
    if at < most and ranks[at : at + 1] != [rank]:
        ranks.insert(at, rank)
        del ranks[most:]
    return at < most
