"""Grey box of names: how neighbouring logs differ in the users who bring keys, and the exact cost.

A rehearsal names no key, so the keys that users bring follow from their records alone. The law of the
decision at which a key is named is integrated for both logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dphist.arrays import Int64Array
from dphist.discovery import DiscoveryRule
from stream_app.core.epochs import SealedKey
from stream_app.core.strategy import Strategy
from stream_app.loops.naming import CellsOfKeys
from stream_app.state.redis_store import RedisStore

Paths = Mapping[bytes, Sequence[int]]  # by a key's hash: how many users have brought it, by bin
_RARE = 1e-12  # outcomes that are less likely are not compared: doubles do not hold their ratio


class NamesLoss(NamedTuple):
    """The loss by names of a pair of logs. Args: loss, of keys that others bring, too; delta, the probability
    that a key is named which only the differing user brings; keys, whose numbers of users differ."""

    loss: float
    delta: float
    keys: int


@dataclass
class BroughtKeys:
    """Collects the users who bring keys, from a store's replies. SECRET: for made-up records only.

    Args: first_bin and bins, of the epoch; strategy, of the stream.
    """

    first_bin: int
    bins: int
    strategy: Strategy

    def __post_init__(self) -> None:
        self._by_bin: dict[int, Mapping[int, int]] = {}
        self._hashes: dict[int, bytes] = {}

    def see_counts(self, bins: Sequence[int], counts: Sequence[Mapping[int, int]]) -> None:
        """Note the exact counts of bins."""
        self._by_bin.update(zip(bins, counts, strict=True))

    def see_keys(self, numbers: Sequence[int], keys: Sequence[SealedKey]) -> None:
        """Note the hashes of keys."""
        self._hashes.update(zip(numbers, (key.hash for key in keys), strict=True))

    def paths(self) -> Paths:
        """Return the number of users of each key by each bin."""
        new = np.zeros((self.bins, len(self._hashes)), np.int64)
        for bin, counts in self._by_bin.items():
            for number, users in CellsOfKeys.of(self.strategy).users(counts).items():
                new[bin - self.first_bin, number] += users
        grown = new.cumsum(axis=0)
        return {key: grown[:, number].tolist() for number, key in self._hashes.items()}


class RecordingStore(RedisStore):
    """A store that shows its replies to the part of the worker that names keys."""

    brought: BroughtKeys

    async def read_kept(self, stream: str, bins: Sequence[int], cells: Sequence[int]) -> list[dict[int, int]]:
        reply = await super().read_kept(stream, bins, cells)
        if not cells:
            self.brought.see_counts(bins, reply)
        return reply

    async def named_keys(self, stream: str, window: int, numbers: Sequence[int]) -> list[SealedKey]:
        reply = await super().named_keys(stream, window, numbers)
        self.brought.see_keys(numbers, reply)
        return reply


def names_loss(rule: DiscoveryRule, one: Paths, other: Paths) -> NamesLoss:
    """Return the loss by names of a difference of users, summed over keys. Args: one, other, of two logs."""
    silent = [0] * max(map(len, (*one.values(), *other.values())), default=0)
    loss, delta, keys = 0.0, 0.0, 0
    for key in one.keys() | other.keys():
        users = [np.array(paths.get(key, silent), np.int64) for paths in (one, other)]
        if np.array_equal(users[0], users[1]):
            continue
        keys += 1
        if any(not path.any() for path in users):  # only the differing user brings it
            delta += max(float(rule.chances(path.tolist()).sum()) for path in users)
        else:
            loss += _largest_ratio(rule, users[0], users[1])
    return NamesLoss(loss, delta, keys)


def _largest_ratio(rule: DiscoveryRule, one: Int64Array, other: Int64Array) -> float:
    laws = [np.append(law, 1 - law.sum()) for law in (rule.chances(path.tolist()) for path in (one, other))]
    kept = (laws[0] > _RARE) & (laws[1] > _RARE)
    return float(np.abs(np.log(laws[0][kept] / laws[1][kept])).max(initial=0.0))
