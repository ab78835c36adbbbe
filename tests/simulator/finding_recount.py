"""A plain recount of what streams that find keys count, bring and name, from the log of a simulation."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dphist.arrays import Int64Array
from dphist.discovery import DiscoveryRule
from dphist.noise.derived import DerivedNoise
from stream_app.core.epochs import stays
from stream_app.core.kinds import Discovering
from stream_app.core.records import EpochRecord
from stream_app.vault.cipher import KeyNames
from tests.models.choosing import ids_of
from tests.simulator.given_noise import node_sums
from tests.simulator.log import PAGES, Kind

if TYPE_CHECKING:
    from tests.simulator.finding import FindingObserver

ByPage = Counter[str]


class Recount:
    """What a stream that finds keys counts in the bins of a window, from the log. Args: up to which bin."""

    def __init__(self, observer: FindingObserver, epoch: EpochRecord, last_bin: int) -> None:
        self._observer, self._epoch, self._last_bin = observer, epoch, last_bin
        self._rules = rules = observer._rules()
        self.window = window_of(epoch.first_bin, rules)
        kind = observer.strategies[epoch.strategy_hash].kind
        assert isinstance(kind, Discovering)
        self._rule: DiscoveryRule = kind.rule
        self._tree = kind.tree_design
        names = KeyNames(bytes(32), observer.stream, self.window)
        self.sealed = {page: names.sealed(page) for page in PAGES}
        self.width = kind.over_keys.values.buckets
        self._records = self._chosen()

    def _chosen(self) -> Counter[tuple[int, str | None, str, int]]:
        """Return the records that count by bin, user, page and amount; an empty page: without a key."""
        log, records = self._observer.world.log, Counter[tuple[int, str | None, str, int]]()
        for (partition, position), bin in self._observer._placed().items():
            entry = log.partitions[partition][position]
            assert entry.kind is Kind.EVENT
            page = "" if (partition, position) in self._observer.nameless else entry.page
            if window_of(bin, self._rules) == self.window and bin <= self._last_bin:
                units, user = self._rules.place(entry) or 0, entry.user if self._rules.is_capped else None
                records[bin, user, page, units] += 1
        if not self._rules.is_capped:
            return records
        used = Counter[str | None]()
        for bin, user, page, units in sorted(records, key=lambda one: (one[0], self._rank(*one[1:]))):
            taken = min(records[bin, user, page, units], self._rules.max_events - used[user])
            used[user] += taken
            records[bin, user, page, units] = taken
        return +records

    def _rank(self, user: str | None, page: str, units: int = 0) -> bytes:
        """Return the place of a page and an amount in the order of a user's records of a bin."""
        ids, _ = ids_of([str(user)], np.array([self.window]))
        own = self.sealed[page].hash if page else bytes(16)
        return hashlib.sha1(ids.tobytes() + own + units.to_bytes(4)).digest()

    def counts(self, bin: int) -> ByPage:
        """Return the counted records of a bin by page; an empty one is every page that has no cell."""
        found = ByPage()
        for (at, _, page, _), number in self._records.items():
            if at == bin:
                found[self.with_cell(page, self._last_bin)] += number
        return found

    def ends(self, bin: int) -> Counter[tuple[str, int]]:
        """Return what a bin's records add to the cells of each page."""
        found = Counter[tuple[str, int]]()
        for (at, _, page, units), number in self._records.items():
            if at == bin:
                for end, weight in self._rules.added(units).items():
                    found[self.with_cell(page, self._last_bin), end] += number * weight
        return found

    def with_cell(self, page: str, bin: int) -> str:
        """Return a page; empty if it was dropped before a bin, because there was no room for hidden keys."""
        found = [one for one in self._observer._running().found if one.bin < bin]
        is_shown = any(page in one.names for one in found)
        thinned = max((one.thinned for one in found), default=0)
        return page if page and (is_shown or stays(self.sealed[page].hash, thinned)) else ""

    def sums(self, pages: Sequence[str]) -> Mapping[tuple[int, int], Int64Array]:
        """Return the sums of all complete nodes of the epoch. Args: as of ``columns``."""
        assert self._tree is not None
        return node_sums(self._tree.shape, self.columns(pages))

    def columns(self, pages: Sequence[str]) -> Int64Array:
        """Return the exact counts of all bins of the epoch. Args: pages; an empty one is the total."""
        bins = [self.ends(bin) for bin in range(self._epoch.first_bin, self._last_bin + 1)]
        cells = [(page, end) for page in pages for end in range(self.width)]
        counts = [
            [
                one[cell] if cell[0] else sum(n for (_, end), n in one.items() if end == cell[1])
                for cell in cells
            ]
            for one in bins
        ]
        return np.array(counts, np.int64).reshape(len(bins), len(cells))

    def shown(self, bin: int) -> set[str]:
        """Return the keys that are public before a bin closes."""
        return {name for one in self._observer._running().found if one.bin < bin for name in one.names}

    def brought(self, bin: int) -> ByPage:
        """Return how many users bring each page in a bin; without users, events do."""
        if not self._rules.is_capped:
            counts = self.counts(bin)
            return ByPage({page: number for page, number in counts.items() if page})
        slots, found = dict[str | None, set[str]](), ByPage()
        for at in range(self.window - self._rules.window_bins + 1, bin + 1):
            found = ByPage()
            shown, thinned = self._observer.history.shown.get(at, (frozenset[str](), 0))
            stay = {page for page, name in self.sealed.items() if stays(name.hash, thinned)}
            for user in {user for when, user, *_ in self._records if when == at}:
                own = slots.setdefault(user, set())
                visited = [page for when, who, page, _ in self._records if (when, who) == (at, user) and page]
                new = sorted((set(visited) & stay) - shown - own, key=lambda page: self._rank(user, page))
                chosen = new[: self._rule.per_user - len(own)]
                own.update(chosen)
                found.update(chosen)
        return found

    def named(self, bin: int, seed: bytes) -> set[str]:
        """Return the keys that a bin names if its epoch has this seed."""
        users = ByPage()
        for at in range(self._epoch.first_bin, bin + 1):
            users.update(self.brought(at))
        noise, position = DerivedNoise(seed, self._rule.step), bin - self._epoch.first_bin
        pages = sorted(page for page in users.keys() - self.shown(bin) if self.with_cell(page, bin))
        hashes = [self.sealed[page].hash for page in pages]
        r, z = noise.geometric(b"bar", hashes), noise.geometric(b"bin %d" % position, hashes)
        bars = zip(pages, r.tolist(), z.tolist(), strict=True)
        return {page for page, bar, own in bars if users[page] + own > self._rule.threshold + bar}


def window_of(bin: int, rules: Any) -> int:
    """Return the last bin of the window that holds a bin."""
    return int(bin + (rules.window_end - bin) % rules.window_bins)
