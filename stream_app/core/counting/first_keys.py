"""Which hidden keys of a user may count in a bin. A reader asks the store for the numbers of these only.

Otherwise one user, of whose records ``most`` count, would cause a name in the store with each invented key.

*The rule.* A record cannot count if ``most`` other places of the same user in the same bin have smaller
ranks. A rank is a hash of user and place: it is the order in which the tally takes a user's places of a bin
(``choosing``). With caps on keys a place is here the first one of its key.

*Why it changes no count.* The rule decides only for which keys the store gets a name. All records wait under
their keys' hashes, and a key that may count has its name. So no count depends on the knowledge of a
reader; one that has forgotten records lets more names through.

*The bound.* Ranks are as if drawn: of n new keys of a user in a bin the rule lets about
``most`` * (1 + ln(n / ``most``)) through, in each partition. Other users' records play no part.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from stream_app.core.counting.bounding import rank_of


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
