"""Which hidden keys of a user may count in a bin. A reader asks the store for the numbers of these only.

Otherwise one user, of whose records ``most`` count, would cause a name in the store with each invented key.

*The rule.* A record's key cannot count if ``most`` other keys of the same user in the same bin have smaller
ranks. A rank is a keyed hash of user and key: it is the order in which the tally takes a user's keys of a
bin (``bringing.rank``). The tally takes at least one record of each key. So the keys with smaller ranks use
up the cap, also where some of them counted in earlier bins and come first.

*Why it changes no count.* The rule compares a record only with records at earlier positions of the same
partition, which count in the same bin. A reader that has forgotten some of them lets more keys through, and
the tally then leaves out what cannot count. So nothing that counts depends on what a reader knows.

*The bound.* Ranks are as if drawn: of n new keys of a user in a bin the rule lets about
``most`` * (1 + ln(n / ``most``)) through, in each partition. Other users' records play no part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from stream_app.core.counting.bounding import CELL_BYTES, rank_of


class KeysOfBin(NamedTuple):
    """Records of which all or none count in a bin.

    Args: after_cut, the last cut before records that the next cut decides about; None for all others.
    """

    partition: str
    bin: int
    after_cut: int | None


@dataclass(slots=True)
class KeysOfUser:
    """What is known of a user's keys in a bin. SECRET.

    Args: ranks, the smallest ones, in rising order; spare, the place of the first key that cannot count.
    """

    ranks: list[bytes]
    spare: int | None = None


Known = dict[KeysOfBin, dict[bytes, KeysOfUser]]  # by the user's id


class FirstKeys:
    """The first keys of each user and bin. SECRET. Args: most, that may count; known, of earlier records."""

    def __init__(self, most: int, known: Mapping[KeysOfBin, Mapping[bytes, KeysOfUser]]) -> None:
        self._most, self._known = most, known
        self.seen: Known = {}

    def take(self, group: KeysOfBin, user: bytes, place: int) -> int | None:
        """Note that a user has a key in this bin. Args: place, of the key by its hash.

        Returns: None if the key may count; else the place under which its records wait, one for all such keys
            of the user and bin, so that a script that reads them all stays short.

        >>> first = FirstKeys(most=1, known={})
        >>> [first.take(KeysOfBin("0", 5, None), bytes(16), place) for place in (7, 8, 9, 7)]
        [None, 8, None, 8]
        """
        users = self.seen.setdefault(group, {})
        if (own := users.get(user)) is None:
            before = self._known.get(group, {}).get(user)
            own = KeysOfUser([]) if before is None else replace(before, ranks=list(before.ranks))
            users[user] = own
        rank = rank_of(user + place.to_bytes(CELL_BYTES))
        at = bisect_left(own.ranks, rank)
        if at >= self._most:
            own.spare = place if own.spare is None else own.spare
            return own.spare
        if own.ranks[at : at + 1] != [rank]:
            own.ranks.insert(at, rank)
            del own.ranks[self._most :]
        return None
