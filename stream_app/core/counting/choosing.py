"""Which of a user's records count, where caps bound the keys of a user and the events in each key.

*The rule.* A user's records of a cap window are taken bin by bin, earlier bins first. In a bin the keys are
taken one after the other: first the keys in which the user already counts, then new ones, each group in the
order of a hash. A new key is taken only while fewer than ``max_keys`` keys count. Of each key at most
``max_per_key`` records count over the window, and at most ``max_events`` over all keys. Within a key the
places (buckets, amounts) come in the order of a hash. Where keys are found, only the first ``max_keys`` keys
of a bin in the order of the hash may count, so that a store need not keep more of them.

*Why no other person moves the choice.* It reads three things: the user's own numbers of records by place in
this bin, the user's own numbers of earlier bins of the window, and hashes of the user's id. The numbers of a
bin are a sum over all partitions and batches (``apply.lua``), so neither their order nor the other records in
them play a part. The records' bins do not depend on other records (``core.counting.bins``). The id is a keyed
hash of the user and the window. The earlier numbers are none at the start of the window, and after each bin
the result of this rule. So by induction over the bins the choice is a function of the user's own records, by
bin and place, and of the key of the hashes.

*Why the caps hold in every window.* By induction over the bins the numbers so far obey the caps. A bin adds a
key only while fewer than ``max_keys`` count, at most ``max_per_key`` less the key's number, and at most
``max_events`` less the sum of all numbers.

The scripts of the store choose (``tally.lua``); ``tests/models/choosing.py`` is the rule as plain functions.
"""

from __future__ import annotations

from dataclasses import dataclass

from dphist.caps import Caps
from stream_app.core.counting.bounding import MOST_AMOUNTS
from stream_app.core.records import Waiting

LARGEST_TRIMMED_CAP = 8_192


@dataclass(frozen=True, slots=True)
class Bounds:
    """The facts that decide which of a user's records count: caps, and the key and cells of a place.

    Args:
        caps: of each user and cap window.
        key_places: consecutive places that belong to one key: its buckets, or its amounts.
        weight: of an event of a sum, which it adds to the two cells of its key; None without a sum.
        places: of a bin; 0 if there are few.
        keyed: whether places are keyed (``bounding.keyed_places``), because keys are found.
        users_at: the first of the bin's cells for users by their numbers of events (``kinds/measuring.py``),
            all that were tallied, also those that do not count; None if nobody counts them.
    """

    caps: Caps
    key_places: int = 1
    weight: int | None = None
    places: int = 0
    keyed: bool = False
    users_at: int | None = None

    @property
    def waiting(self) -> Waiting:
        """How many of a user's places in a bin may count, the first ones by hash; no bound if none is needed.

        Only a user of a stream with many places has so many records that leaving out the others saves time.
        With a larger cap than ``LARGEST_TRIMMED_CAP`` too few would be left out.
        """
        caps = self.caps
        if self.keyed:
            return Waiting(caps.max_keys or caps.l1, caps.max_per_key or 0, keyed=True)
        few = self.places <= MOST_AMOUNTS or caps.max_keys is not None
        return Waiting(0 if few or caps.l1 > LARGEST_TRIMMED_CAP else caps.l1)
