"""Decides at each closing which unlisted keys are shown, and gathers the data for their release.

The decisions follow from the exact counts that the store keeps, and from the epoch's seed. So another worker,
or a later attempt, decides the same. A worker remembers the keys from one closing to the next, and reads them
all again if a bin was released that it did not decide itself. What takes time for each key runs in a thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from dphist.arrays import Int64Array
from dphist.discovery import KeyDiscovery
from stream_app.core.counting.unlisted import BROUGHT, Discover, Slots
from stream_app.core.epochs import MOST_FOUND, SealedKey, stays
from stream_app.core.kinds import Discovering
from stream_app.core.kinds.tables import Named
from stream_app.core.records import Reply, StreamState
from stream_app.core.releases.release import make_release
from stream_app.core.store_writes import Release
from stream_app.core.strategy import Strategy
from stream_app.core.user_keys import mark_of_users
from stream_app.loops import noise_ahead
from stream_app.loops.noise_ahead import NoiseAhead
from stream_app.loops.stream import Ports
from stream_app.vault.cipher import KeyNames

Result = TypeVar("Result")


class Naming:
    """The decisions of one stream. Args: ahead, which knows the seeds of its epochs."""

    def __init__(self, ports: Ports, stream: str, ahead: NoiseAhead) -> None:
        self._ports, self._stream, self._store, self._vault = ports, stream, ports.store, ports.keys
        self._ahead = ahead
        self._keys: KeyDiscovery | None = None
        self._at: tuple[str, int] = "", 0  # the epoch's nonce and the last bin that ``_keys`` has decided
        self._names: KeyNames | None = None
        self._window = 0
        self._thinned = 0  # how often the hidden keys among ``_keys`` have been halved

    async def release(
        self,
        strategy: Strategy,
        state: StreamState,
        tally: Callable[[int, Slots], Awaitable[bool]],
    ) -> None:
        """Store the release of the next sealed bin: names and released counts decide about the bin after it.

        Args: strategy, as stored; tally, chooses users' records up to a bin, and returns whether this is
            done.
        Raises: NoiseLost.
        """
        if strategy.declared.bounds is not None and not await tally(
            state.released_bin + 1, await self._slots(strategy, state)
        ):
            return
        release, keys = await self._decide(strategy, state)
        if await self._store.release(self._stream, release) is Reply.DONE:
            self._keys, self._at = keys, (state.noise, release.last_bin)

    async def _slots(self, strategy: Strategy, state: StreamState) -> Slots:
        """Return the facts that decide which keys the users of the next bin bring."""
        keys, first, epoch = await self._known(strategy, state), CellsOfKeys.of(strategy).first, state.epoch
        named = frozenset(keys.named)
        return Slots(_rule_of(strategy).per_user, first, named, epoch.epoch, state.seq, epoch.thinned)

    async def _decide(self, strategy: Strategy, state: StreamState) -> tuple[Release, KeyDiscovery]:
        """Return the release of the bin after the last released one, and the keys after it. SECRET.

        The bin is sealed and tallied. No release needs any more the counts of keys that are then public, nor
        those of keys that do not stay.
        """
        keys, layout, epoch = await self._known(strategy, state), CellsOfKeys.of(strategy), state.epoch
        self._keys = None  # until the store has released the bin, they may be wrong or half done
        bin, before = state.released_bin + 1, len(keys.named)
        [cells] = await self._store.read_kept(self._stream, [bin], ())
        await self._learn(keys, layout, cells)
        room = MOST_FOUND - before
        found = await _apart(keys.decide, bin - epoch.first_bin) if room else []
        named = await self._named(keys, found, layout, state, room)
        named = replace(named, room=_rule_of(strategy).room)
        noise, nonce = self._ports.noise[self._stream], self._ports.make_nonce()

        def made() -> Release:
            counts = _counts(cells, keys.named[:before], layout)
            release = make_release(state, strategy, counts, noise, nonce, None, named)
            needless, past = self._needless(keys, before, cells, layout)
            past_bins = range(epoch.first_bin, bin) if past else ()
            return replace(release, shown_cells=needless, past_bins=past_bins, past_cells=past)

        return await _apart(made), keys

    def _needless(
        self, keys: KeyDiscovery, before: int, counts: Mapping[int, int], layout: CellsOfKeys
    ) -> tuple[list[int], list[int]]:
        """Return the cells of a bin that no later release needs, and those of earlier bins. SECRET.

        Args: before, how many keys were public before the bin; counts, of the bin.
        """
        public, new = keys.named[:before], keys.named[before:]
        past = [cell for number in new for cell in layout.all(number)]
        needless = [*layout.listed, *(cell for number in public for cell in layout.key(number)), *past]
        if self._thinned:
            hidden = layout.numbers(counts).difference(keys.named)
            gone = (number for number in hidden if not self._stays(keys, number))
            needless += [cell for number in gone for cell in layout.all(number)]
        return needless, past

    async def _known(self, strategy: Strategy, state: StreamState) -> KeyDiscovery:
        """Return the hidden and named keys as they are after the last released bin."""
        if self._keys is None or self._at != (state.noise, state.released_bin):
            self._keys, self._thinned = None, 0  # if reading fails, the next call begins anew
            self._keys = await self._read(strategy, state)
        if self._thinned < state.epoch.thinned:
            keys, self._keys = self._keys, None  # if deleting fails, the next call begins anew
            await self._thin(keys, state, CellsOfKeys.of(strategy))
            self._keys = keys
        return self._keys

    async def _thin(self, keys: KeyDiscovery, state: StreamState, layout: CellsOfKeys) -> None:
        """Delete the keys that do not stay. Another worker, or this one, may do it again."""
        self._thinned, named = state.epoch.thinned, set(keys.named)

        def thinned() -> dict[int, list[int]]:
            gone = [n for n in range(len(keys.hashes)) if n not in named and not self._stays(keys, n)]
            keys.users[gone] = 0
            return {number: layout.all(number) for number in gone}

        cells = await _apart(thinned)
        reply = await self._store.thin_keys(self._stream, state, self._window, cells)
        if reply is not Reply.DONE:
            raise ConnectionError(f"stream {self._stream}: it changed while its keys were thinned")

    def _stays(self, keys: KeyDiscovery, number: int) -> bool:
        return stays(keys.hashes[number], self._thinned)

    async def _read(self, strategy: Strategy, state: StreamState) -> KeyDiscovery:
        kind, epoch, layout = strategy.kind, state.epoch, CellsOfKeys.of(strategy)
        assert isinstance(kind, Discovering)
        windows = strategy.declared.cap_windows(epoch, strategy.time.horizon)  # as the reader has them
        self._window = int(windows.of(np.array([epoch.first_bin]))[0])
        key = self._vault.user_key(self._stream, state.user_keys.of(self._window))
        self._names = KeyNames(key, self._stream, self._window)
        keys = KeyDiscovery(kind.rule, await self._ahead.seed(state))
        if epoch.names and state.released_bin < self._window:
            sealed = [*map(self._names.sealed, epoch.names)]
            given = self._stream, strategy.hash, self._window, mark_of_users(key), sealed
            numbers = await self._store.name_keys(*given)
            if isinstance(numbers, Reply):
                raise ConnectionError(f"stream {self._stream}: it changed while its keys were read")
            keys.named += numbers
            await self._add(keys, max(keys.named))
        bins = range(epoch.first_bin, state.released_bin + 1)
        for counts in await self._store.read_kept(self._stream, bins, ()):
            await self._learn(keys, layout, counts)
        self._at = state.noise, state.released_bin
        return keys

    async def _learn(self, keys: KeyDiscovery, layout: CellsOfKeys, counts: Mapping[int, int]) -> None:
        """Read the hashes of a bin's new keys, and add up the users who bring keys."""
        counted, brought = await _apart(lambda: (layout.numbers(counts), layout.users(counts)))
        await self._add(keys, max(counted | brought.keys(), default=-1))

        def bring() -> None:
            some = {n: users for n, users in brought.items() if not self._thinned or self._stays(keys, n)}
            keys.bring(list(some), list(some.values()))

        await _apart(bring)

    async def _add(self, keys: KeyDiscovery, last: int) -> None:
        """Read the hashes of keys up to a number."""
        if new := range(len(keys.hashes), last + 1):
            await _apart(keys.add, [one.hash for one in await self._sealed(new)])

    async def _sealed(self, numbers: Sequence[int]) -> list[SealedKey]:
        """Read keys by their numbers. Raises: ConnectionError if the epoch has ended and they are gone."""
        try:
            return await self._store.named_keys(self._stream, self._window, numbers)
        except LookupError as lost:
            raise ConnectionError(f"redis: {lost}") from lost

    async def _named(
        self, keys: KeyDiscovery, found: Sequence[int], layout: CellsOfKeys, state: StreamState, most: int
    ) -> Named:
        """Return the names and all counts of keys, in the order of names: numbers tell which came first.

        Args: most, the number of keys that may still be shown.
        """
        if not found:
            return Named()
        names = self._names
        assert names is not None
        sealed = await self._sealed(found)
        bins = range(state.epoch.first_bin, state.released_bin + 2)
        asked = [cell for number in found for cell in layout.key(number)]
        kept = await self._store.read_kept(self._stream, bins, asked)

        def named() -> Named:
            by_name = {names.name(key): number for key, number in zip(sealed, found, strict=True)}
            in_order = sorted(by_name)[:most]
            keys.named[-len(found) :] = numbers = [by_name[name] for name in in_order]
            cells = [cell for number in numbers for cell in layout.key(number)]
            counts = np.zeros((len(kept), len(cells)), np.int64)
            for row, one in zip(counts, kept, strict=True):
                row[:] = [one.get(cell, 0) for cell in cells]
            return Named(tuple(in_order), counts)

        return await _apart(named)


@dataclass(frozen=True, slots=True)
class CellsOfKeys:
    """The cells of keys that no list names: after those of the listed keys and of all other events.

    Args: first, the place of the first such key; width, the cells of a key; weight, what an event adds to
        these together; by_users, whether further cells have the users who bring keys.
    """

    first: int
    width: int
    weight: int
    by_users: bool

    @classmethod
    def of(cls, strategy: Strategy) -> CellsOfKeys:
        """Return the cells of keys of a stream. Args: strategy, as stored."""
        cells, by_users = strategy.declared.cells, strategy.declared.privacy.per_user is not None
        assert cells.keys is not None  # the stream finds keys
        return cls(cells.keys.count, cells.width // cells.keys.count, cells.weight, by_users)

    @property
    def listed(self) -> range:
        """The cells of the listed keys and of all other events."""
        return range(self.width * self.first)

    def key(self, number: int) -> range:
        """Return the cells of a key's counts."""
        return range(self.width * (self.first + number), self.width * (self.first + number + 1))

    def all(self, number: int) -> list[int]:
        """Return all cells of a key."""
        return [*self.key(number), BROUGHT + self.first + number]

    def numbers(self, counts: Mapping[int, int]) -> set[int]:
        """Return the numbers of the keys that have counts in a bin."""
        start = self.width * self.first
        return {cell // self.width - self.first for cell in counts if start <= cell < BROUGHT}

    def users(self, counts: Mapping[int, int]) -> dict[int, int]:
        """Return how many users bring each key in a bin; under the unit event, each event is its own user."""
        if self.by_users:
            return {cell - BROUGHT - self.first: n for cell, n in counts.items() if cell >= BROUGHT and n}
        events = {one: sum(counts.get(cell, 0) for cell in self.key(one)) for one in self.numbers(counts)}
        return {one: added // self.weight for one, added in events.items() if added}


async def _apart(work: Callable[..., Result], *arguments: object) -> Result:
    """Run work over many keys in a thread: other streams must not wait for it."""
    return await noise_ahead.in_thread(noise_ahead.OWN, work, *arguments)


def _counts(cells: Mapping[int, int], named: Sequence[int], layout: CellsOfKeys) -> Int64Array:
    """Return a bin's counts of the listed and the named keys, and of all other events: (1, cells)."""
    shown = [*layout.listed[: -layout.width], *(cell for number in named for cell in layout.key(number))]
    total = np.zeros(layout.width, np.int64)
    for cell, number in cells.items():
        if cell < BROUGHT:
            total[cell % layout.width] += number
    counts = np.array([cells.get(cell, 0) for cell in shown], np.int64)
    return np.concatenate([counts, total - counts.reshape(-1, layout.width).sum(axis=0)])[np.newaxis]


def _rule_of(strategy: Strategy) -> Discover:
    keys = strategy.declared.keys
    assert keys is not None
    assert keys.discover is not None  # the stream finds keys
    return keys.discover
