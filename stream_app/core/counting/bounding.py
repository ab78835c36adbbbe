"""The caps on each user's events: cap windows, ids that reveal no user, and which records count.

Without a cap one person's events could change a count by any number, and no noise would hide them. So at most
``max_events`` records of each user count per cap window. Caps on keys bound in how many keys they count, and
how many in each.

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

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.caps import Caps
from stream_app.core.coded import Coded, pairs
from stream_app.core.store_writes import Users, Waiting
from stream_app.core.user_keys import mark_of_users

ID_BYTES = 16  # 128 bits: the probability that two users of a window get one id is negligible
CELL_BYTES = 4
HASH_BYTES = 16  # of a key
STEPS = 1 << 8 * CELL_BYTES  # the places of a key where places are keyed
# Places of a bin, above which one script does not tally all that one user has in a bin: 0.2 s for this many.
MOST_AMOUNTS = 1 << 14
KEY_BYTES = 32
# Shards of a bin's users. With more shards, one shard is tallied faster, but adding to all takes longer.
SHARDS = 64
ByteArray = NDArray[np.uint8]
Period = Literal["1h", "1d", "7d"]

LARGEST_TRIMMED_CAP = 8_192

Owner = tuple[Hashable, Hashable]  # a cap window, and a user


@dataclass(frozen=True, slots=True)
class CapWindows:
    """The cap windows: runs of bins, as long as an epoch or a period, that each cap a user's events.

    Every epoch is planned to end where a cap window ends. If it ends early, the next epoch fills the rest of
    that window. So no epoch ever counts more events of a user than the caps allow. If the privacy unit is a
    user's day, the windows are days, and several of them fit into an epoch.
    Args: end_bin, the last bin of any epoch of the stream; bins, per window; last_bin, of a replay.
    """

    end_bin: int
    bins: int
    last_bin: int | None = None

    def of(self, bins: Int64Array) -> Int64Array:
        """Return the cap window of each bin, named by the window's last bin.

        >>> CapWindows(end_bin=9, bins=5).of(np.array([0, 4, 5, 9, 10])).tolist()
        [4, 4, 9, 9, 14]
        >>> CapWindows(end_bin=9, bins=5, last_bin=12).of(np.array([9, 10, 12])).tolist()
        [9, 12, 12]
        """
        ends = self.end_bin - np.floor_divide(self.end_bin - bins, self.bins) * self.bins
        return ends if self.last_bin is None else np.minimum(ends, self.last_bin)

    def left(self, first_bin: int) -> int:
        """Return the length in bins of an epoch that begins at ``first_bin``: to the end of its window.

        >>> CapWindows(end_bin=9, bins=5).left(10), CapWindows(end_bin=9, bins=5).left(7)
        (5, 3)
        """
        return (self.end_bin - first_bin) % self.bins + 1


class PerUser(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename={"field": "user"}
):
    """The declared caps: the field that names the user, and how many events of a user count per window.

    Args: max_events, over all keys; max_keys, the keys in which a user's events count, and max_per_key, the
        events in each of them. None for a cap that is not declared; ``dphist.caps.Caps`` says which may be.
        per, of ``PERIODS``, if the privacy unit is a user's hour, day or week: the caps then hold in each of
        them; None if the unit is the user, and the caps hold in each epoch.
    """

    field: str
    max_events: int | None = None
    max_keys: int | None = None
    max_per_key: int | None = None
    per: Period | None = None

    @property
    def caps(self) -> Caps:
        """The caps of each user and cap window."""
        return Caps(self.max_events, self.max_keys, self.max_per_key)


class UserHashes:
    """The ids of some users in one cap window: keyed hashes, each made when it is needed first.

    Guarantee: without the key an id reveals nothing about the user. A user has the same id throughout a
        window, in every partition, and a different id in each window.
    Args: users, by their codes; key, of 32 bytes, kept outside the store.
    """

    def __init__(self, users: Sequence[str], window: int, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key of user ids has {len(key)} bytes; it needs {KEY_BYTES}")
        self.mark = mark_of_users(key)
        self._users = users
        self._begun = hashlib.blake2b(f"{window}:".encode(), digest_size=ID_BYTES, key=key)
        self._made: dict[int, bytes] = {}

    def of(self, codes: Int64Array) -> ByteArray:
        """Return the ids of these users, shape (n, 16)."""
        made, users, wanted, begin = self._made, self._users, codes.tolist(), self._begun.copy
        for code in wanted if not made else [code for code in wanted if code not in made]:
            hashed = begin()
            hashed.update(users[code].encode("utf-8", "surrogatepass"))
            made[code] = hashed.digest()
        return np.frombuffer(b"".join(map(made.__getitem__, wanted)), np.uint8).reshape(-1, ID_BYTES)


HashesOf = Callable[[int], UserHashes]  # of a window


def user_ids(users: Coded, windows: Int64Array, hashes: HashesOf) -> tuple[ByteArray, Int64Array]:
    """Return the id of each different pair of window and user, and for each record the row of its pair.

    Args: users and windows of the records; hashes, of the same users.
    Returns: ids, shape (different pairs, 16); rows, shape (n,).

    >>> users = Coded.of(["ann", "ann", "ann", "bob"])
    >>> hashes = lambda window: UserHashes(users.values, window, bytes(32))
    >>> ids, rows = user_ids(users, np.array([9, 9, 14, 9]), hashes)
    >>> ids.shape, rows.tolist()
    ((3, 16), [0, 0, 2, 1])
    """
    of_window, codes, rows = pairs(windows, users)
    named, starts = np.unique(of_window, return_index=True)
    of_windows = zip(named.tolist(), np.split(codes, starts[1:]), strict=False)  # one empty part of no codes
    ids = [hashes(window).of(own) for window, own in of_windows]
    return np.concatenate([np.empty((0, ID_BYTES), np.uint8), *ids]), rows


@dataclass(frozen=True, slots=True)
class UserRecords:
    """The user of each record of a slice. SECRET.

    Args: ids and rows, as ``user_ids`` returns them; windows of the records, shape (n,); key_marks, of the
        key of each window (``mark_of_users``).
    """

    ids: ByteArray
    rows: Int64Array
    windows: Int64Array
    key_marks: Mapping[int, bytes]

    @classmethod
    def of(cls, users: Coded, windows: Int64Array, hashes: HashesOf) -> UserRecords:
        """Return the records' users, hashed. Args: as for ``user_ids``."""
        marks = {window: hashes(window).mark for window in np.unique(windows).tolist()}
        return cls(*user_ids(users, windows, hashes), windows, marks)

    def keys(self, cells: Int64Array) -> Int64Array:
        """Return a number for each record: two numbers are equal if and only if user and cell are equal.

        Args: cells, a number for each record, shape (n,), that identifies its bin and cell.
        """
        _, places = np.unique(cells, return_inverse=True)
        return places * len(self.ids) + self.rows

    def users(self, records: Int64Array) -> Users:
        """Return the users of the given records."""
        return Users(self.ids[self.rows[records]], self.windows[records], self.key_marks)


class UserShard(NamedTuple):
    """A part of a bin's users, chosen by their ids: small enough to tally in one step."""

    bin: int
    window: int
    number: int

    @property
    def name(self) -> str:
        """Return the shard's name in the store, "bin:window:number"."""
        return f"{self.bin}:{self.window}:{self.number}"


def shard_numbers(ids: ByteArray) -> Int64Array:
    """Return the number of each user's shard. Args: ids, shape (n, 16)."""
    return ids[:, 0].astype(np.int64) % SHARDS


@dataclass(frozen=True, slots=True)
class KeyedPlaces:
    """Writes each place as a key and a cell there, in bytes that do not depend on how keys are numbered.

    A key that no list names gets its number when its first event comes, so all users' events decide it.
    Args: key_places, of a key; listed, how many keys have numbers; hashes, of the keys after these.

    >>> keyed = KeyedPlaces(key_places=100, listed=3, hashes=[bytes(range(16))])
    >>> [place.hex() for place in keyed.of(np.array([258, 300])).tolist()]
    ['000000000000000000000000000000020000003a', '000102030405060708090a0b0c0d0e0f00000000']
    """

    key_places: int
    listed: int
    hashes: Sequence[bytes]

    def of(self, places: Int64Array) -> NDArray[np.void]:
        """Return 20 bytes for each place: the key's number or its hash in 16 bytes, then 4 bytes."""
        found = np.zeros(len(places), [("zeros", "V12"), ("key", ">u4"), ("step", ">u4")])
        keys, found["step"] = np.divmod(places, self.key_places)
        found["key"] = keys
        hidden = np.flatnonzero(keys >= self.listed)
        if len(hidden):
            hashes = np.frombuffer(b"".join(self.hashes), f"V{HASH_BYTES}")
            hashed = found.view([("key", f"V{HASH_BYTES}"), ("step", ">u4")])
            hashed["key"][hidden] = hashes[keys[hidden] - self.listed]
        return found.view(f"V{found.itemsize}")


def user_fields(ids: ByteArray, cells: NDArray[Any]) -> list[bytes]:
    """Return the field names under which stores count a user's records per cell: the id, then the cell.

    Args: ids, shape (n, 16); cells, shape (n,), below 2^32, or keyed places.

    >>> [field] = user_fields(np.full((1, 16), 7, np.uint8), np.array([258]))
    >>> field == bytes([7] * 16 + [0, 0, 1, 2])
    True
    """
    fields = np.empty(len(cells), [("id", ids.dtype, ID_BYTES), ("cell", _stored(cells))])
    fields["id"], fields["cell"] = ids, cells
    return fields.view(f"V{fields.itemsize}").tolist()


def user_entries(ids: ByteArray, cells: NDArray[Any], numbers: Int64Array) -> bytes:
    """Return users' records as stores keep them until a bin is sealed: each an id, a cell and a number.

    Args: ids and cells, as of ``user_fields``; numbers, shape (n,), below 2^32.

    >>> user_entries(np.full((1, 16), 7, np.uint8), np.array([258]), np.array([3])).hex()[32:]
    '0000010200000003'
    """
    entries = np.empty(len(cells), [("id", ids.dtype, ID_BYTES), ("cell", _stored(cells)), ("number", ">u4")])
    entries["id"], entries["cell"], entries["number"] = ids, cells, numbers
    return entries.tobytes()


def _stored(cells: NDArray[Any]) -> np.dtype[Any]:
    return cells.dtype if cells.dtype.kind == "V" else np.dtype(">u4")


def rank_of(field: bytes) -> bytes:
    """Return the place of a user's cell in the order of choosing. Args: field, as of ``user_fields``."""
    return hashlib.sha1(field, usedforsecurity=False).digest()


@dataclass(frozen=True, slots=True)
class Bounds:
    """The facts that decide which of a user's records count: caps, and the key and cells of a place.

    Args:
        caps: of each user and cap window.
        key_places: consecutive places that belong to one key: its buckets, or its amounts.
        weight: of an event of a sum, which it adds to the two cells of its key; None without a sum.
        places: of a bin; 0 if there are few.
        keyed: whether places are keyed (``KeyedPlaces``), because keys are found.
        users_at: the first of the bin's cells for users by their numbers of events (``kinds/wrappers.py``),
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
