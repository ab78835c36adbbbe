"""Decides at each closing which keys that no list names are shown, and gathers what their release needs.

The decisions follow from the exact counts that the store keeps, and from the epoch's seed. So another worker,
or a later attempt, decides the same. A worker remembers the keys from one closing to the next, and reads them
all again if a bin was released that it did not decide itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dphist.arrays import Int64Array
from dphist.discovery import KeyDiscovery
from stream_app.core.counting.bringing import BROUGHT, Slots
from stream_app.core.counting.cells import KeyList
from stream_app.core.kinds import Discovering
from stream_app.core.kinds.tables import Named
from stream_app.core.records import Reply, StreamState
from stream_app.core.releases.release import make_release
from stream_app.core.strategy import Strategy
from stream_app.core.user_keys import mark_of_users
from stream_app.loops.stream import Ports
from stream_app.vault.key_names import KeyNames


@dataclass(frozen=True, slots=True)
class Decided:
    """What the next bins release. SECRET.

    Args: last_bin, of these bins: the first one that names a key, if one does; counts, as
        ``Discovering.close_naming`` takes them; shown_cells, those of all keys that are then public.
    """

    last_bin: int
    counts: Int64Array
    named: Named
    shown_cells: Sequence[int]


class Naming:
    """The decisions of one stream. ``seed``, of the running epoch, is SECRET."""

    def __init__(self, ports: Ports, stream: str) -> None:
        self._ports, self._stream, self._store, self._vault = ports, stream, ports.store, ports.keys
        self.seed = b""
        self._keys: KeyDiscovery | None = None
        self._at: tuple[str, int] = "", 0  # the epoch's nonce and the last bin that ``_keys`` has decided
        self._names: KeyNames | None = None
        self._window = 0

    async def release(
        self,
        strategy: Strategy,
        state: StreamState,
        last_bin: int,
        tally: Callable[[int, Slots], Awaitable[bool]],
    ) -> None:
        """Store the release of sealed bins, up to the first one that names keys.

        Args: strategy, as stored; last_bin, up to which to release at most; tally, chooses users' records up
            to a bin, and returns whether this is done.
        """
        if strategy.declared.bounds is not None:
            last_bin = state.released_bin + 1  # what users bring depends on the keys that earlier bins name
            if not await tally(last_bin, await self._slots(strategy, state)):
                return
        decided = await self._decide(strategy, state, last_bin)
        noise, nonce = self._ports.noise[self._stream], self._ports.make_nonce()
        release = make_release(state, strategy, decided.counts, noise, nonce, named=decided.named)
        await self._store.release(self._stream, replace(release, shown_cells=decided.shown_cells))

    async def _slots(self, strategy: Strategy, state: StreamState) -> Slots:
        """Return what decides which keys the users of the next bin bring."""
        keys, discover = await self._known(strategy, state), _list_of(strategy).discover
        assert discover is not None  # the stream finds keys
        first = first_unlisted(strategy)
        shown = frozenset(first + number for number in keys.named)
        return Slots(discover.per_user, first, shown, state.epoch.epoch, state.seq)

    async def _decide(self, strategy: Strategy, state: StreamState, last_bin: int) -> Decided:
        """Return what the bins after the last released one release; they are sealed and tallied."""
        keys, first, start = await self._known(strategy, state), first_unlisted(strategy), state.epoch
        before, bins = tuple(keys.named), range(state.released_bin + 1, last_bin + 1)
        cells = await self._store.read_kept(self._stream, bins, ())
        by_users = strategy.declared.privacy.per_user is not None
        found: list[int] = []
        for place, of_bin in enumerate(cells):
            await self._bring(keys, of_bin, first, by_users)
            found = keys.decide(bins[place] - start.first_bin)
            self._at = state.noise, bins[place]
            if found:
                break
        last_bin = self._at[1]
        counts = self._counts(strategy, cells[: last_bin - bins[0] + 1], before)
        shown = [*range(first), *(first + number for number in keys.named)]
        return Decided(last_bin, counts, await self._named(keys, found, first, state, last_bin), shown)

    async def _known(self, strategy: Strategy, state: StreamState) -> KeyDiscovery:
        """Return the keys after the last released bin."""
        if self._keys is not None and self._at == (state.noise, state.released_bin):
            return self._keys
        kind, epoch, first = strategy.kind, state.epoch, first_unlisted(strategy)
        assert isinstance(kind, Discovering)
        windows = strategy.declared.cap_windows(epoch, strategy.time.horizon)  # the reader's, too
        self._keys, self._window = None, int(windows.of(np.array([epoch.first_bin]))[0])
        key = self._vault.user_key(self._stream, state.user_keys.of(self._window))
        self._names = KeyNames(key, self._stream, self._window)
        keys = KeyDiscovery(kind.rule, self.seed)
        if epoch.names and state.released_bin < self._window:
            sealed = list(map(self._names.sealed, epoch.names))
            given = self._stream, strategy.hash, self._window, mark_of_users(key), sealed
            numbers = await self._store.name_keys(*given)
            if isinstance(numbers, Reply):
                raise ConnectionError(f"stream {self._stream}: it changed while its keys were read")
            await self._learn(keys, max(numbers))
            keys.named = numbers
        by_users = strategy.declared.privacy.per_user is not None
        for counts in await self._store.read_kept(
            self._stream, range(epoch.first_bin, state.released_bin + 1), ()
        ):
            await self._bring(keys, counts, first, by_users)
        self._keys, self._at = keys, (state.noise, state.released_bin)
        return keys

    async def _bring(self, keys: KeyDiscovery, counts: Mapping[int, int], first: int, by_users: bool) -> None:
        """Add the users of a bin; under the unit event, each event is its own user."""
        base = first + (BROUGHT if by_users else 0)
        brought = {cell - base: users for cell, users in counts.items() if cell >= base and users}
        await self._learn(keys, max(brought, default=-1))
        keys.bring(list(brought), list(brought.values()))

    async def _learn(self, keys: KeyDiscovery, last: int) -> None:
        """Read the hashes of keys up to a number."""
        new = range(len(keys.hashes), last + 1)
        try:
            keys.add([one.hash for one in await self._store.named_keys(self._stream, self._window, new)])
        except LookupError as lost:
            raise ConnectionError(f"redis: {lost}") from lost

    def _counts(
        self, strategy: Strategy, cells: Sequence[Mapping[int, int]], named: Sequence[int]
    ) -> Int64Array:
        """Return the counts of the listed and the named keys, and of all other events: (bins, keys + 1)."""
        listed = first_unlisted(strategy) - 1
        shown = [*range(listed), *(listed + 1 + number for number in named)]
        counts = np.array([[one.get(cell, 0) for cell in shown] for one in cells], np.int64)
        totals = [sum(n for cell, n in one.items() if cell < BROUGHT) for one in cells]
        counts = counts.reshape(len(cells), len(shown))
        return np.column_stack([counts, np.array(totals, np.int64) - counts.sum(axis=1)])

    async def _named(
        self, keys: KeyDiscovery, found: Sequence[int], first: int, state: StreamState, last_bin: int
    ) -> Named:
        """Return the names and all counts of keys, in the order of names: numbers tell which came first."""
        if not found:
            return Named()
        assert self._names is not None
        sealed = await self._store.named_keys(self._stream, self._window, found)
        names = {self._names.name(key): first + number for key, number in zip(sealed, found, strict=True)}
        in_order = sorted(names)
        cells = [names[name] for name in in_order]
        keys.named[-len(found) :] = [cell - first for cell in cells]
        kept = await self._store.read_kept(self._stream, range(state.epoch.first_bin, last_bin + 1), cells)
        return Named(tuple(in_order), np.array([[one.get(cell, 0) for cell in cells] for one in kept]))


def first_unlisted(strategy: Strategy) -> int:
    """Return the cell of the first key that no list names: after the listed keys and all other events."""
    return _list_of(strategy).count


def _list_of(strategy: Strategy) -> KeyList:
    keys = (strategy.stored or strategy).declared.keys
    assert keys is not None  # the stream finds keys
    return keys
