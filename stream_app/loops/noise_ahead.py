"""Noise drawn before it is needed: of a whole epoch, stored encrypted, or of the next closing, in memory.

    key on disk -> pages in the store -> the epoch opens with their nonce (one compare-and-set)

A failure before the epoch opens leaves pages that are deleted, never used. An open epoch uses its stored
noise and no other. If this noise cannot be read, the epoch ends; its remaining nodes are never released.

Streams too wide to store noise draw vectors between two closings. These are independent of all data and are
lost with the process, so no noise is ever used twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.noise import NoiseSource, Scale
from dphist.tree.anticipating import BinsNoise
from stream_app.core.kinds.kind import Vector
from stream_app.core.kinds.pages import PageGeometry, StoredNoise, part_of_page, read_page
from stream_app.core.records import StreamState
from stream_app.core.strategy import Strategy
from stream_app.ports import NoiseKeys, Store
from stream_app.vault.cipher import decrypt_page, encrypt_page, later_chain_key

Result = TypeVar("Result")

# Separate threads for work that takes seconds. asyncio's own few threads write rows and dead letters, which
# must never wait. Drawings wait for each other in ``SHARED``, because their times do not depend on events.
# With a thread for each of a thousand streams, the event loop would get a thousandth of the processor. A
# mechanism gets a thread in ``OWN``: its time may depend on events, so no other stream waits for it.
SHARED = ThreadPoolExecutor(4, "drawing")
OWN = ThreadPoolExecutor(1_024, "mechanism")


async def in_thread(threads: ThreadPoolExecutor, work: Callable[..., Result], *arguments: object) -> Result:
    """Run slow work in a thread, and return its result. Simulations replace this by a plain call."""
    return await asyncio.get_running_loop().run_in_executor(threads, work, *arguments)


class NoiseLost(Exception):
    """The running epoch's noise is missing, damaged or without its key. The message contains no secret."""


class NoiseAhead:
    """One stream's stored noise, for the running epoch and the next. Args: as in ``Ports``."""

    def __init__(
        self, store: Store, keys: NoiseKeys, noise: NoiseSource, stream: str, make_nonce: Callable[[], str]
    ) -> None:
        self._store = store
        self._keys = keys
        self._noise = noise
        self._stream = stream
        self._make_nonce = make_nonce
        self._drawing = asyncio.Lock()
        self._kept: list[str] = []  # the nonce of the noise that is being drawn or is ready
        # An epoch's number, the hash of the strategy for which noise was drawn, and the noise.
        self._ready: tuple[int, str, StoredNoise] | None = None
        self._page: tuple[str, int, BinsNoise] | None = None
        self._seed = ("", b"")  # the nonce of the running epoch, and its seed
        self._settled: tuple[str, int] | None = None
        self._wanted = asyncio.Event()
        self._next_number = 0  # the epoch whose noise is drawn next, once the running one is half over

    def want_next(self, state: StreamState, last_bin: int | None) -> None:
        """Request the next epoch's noise once half of this epoch is over. Args: last_bin, of a replay."""
        end = state.epoch.first_bin + state.epoch.bins - 1
        is_last = last_bin is not None and last_bin <= end
        number, half = state.epoch.epoch + 1, end - state.epoch.bins // 2
        if number != self._next_number and state.released_bin >= half and not is_last:
            self._next_number = number
            self._wanted.set()
        elif state.epoch.epoch >= self._next_number:
            self._wanted.clear()

    async def draw_wanted(
        self, strategy: Callable[[], Strategy], may_open: Callable[[], Awaitable[bool]]
    ) -> None:
        """Wait until the next epoch's noise is wanted, and draw it before the epoch opens.

        Args: strategy, returns the next epoch's; may_open, says whether an epoch may follow; if not, nothing
            is drawn.
        """
        await self._wanted.wait()
        number = self._next_number
        if await may_open():
            await self.stored(strategy(), number)
        if number == self._next_number:
            self._wanted.clear()

    async def stored(self, strategy: Strategy, epoch: int) -> StoredNoise | None:
        """Return the stored noise of an epoch that is about to open; None if the strategy stores none."""
        if not strategy.kind.stores_ahead:
            return None
        async with self._drawing:
            if self._ready is None or self._ready[:2] != (epoch, strategy.hash):
                self.give_up()
                self._ready = epoch, strategy.hash, await self._draw(strategy, epoch)
            return self._ready[2]

    def no_epoch_follows(self) -> None:
        """Have ``settle`` delete noise that was drawn for an epoch that does not open."""
        if self._ready is not None:
            self.give_up()
            self._settled = None

    def give_up(self) -> None:
        """Discard the noise that is ready: the store refused it, or another epoch comes next."""
        self._ready, self._kept = None, []

    async def of_bins(self, strategy: Strategy, state: StreamState, last_bin: int) -> BinsNoise:
        """Return the noise of the next bins, up to ``last_bin`` or the end of the page. SECRET.

        Raises: NoiseLost; OperatorError if only other workers have its key; OSError from the store.
        """
        geometry = strategy.kind.page_geometry()
        first = state.released_bin + 1 - state.epoch.first_bin
        number = geometry.page_of(first)
        if self._page is None or self._page[:2] != (state.noise, number):
            self._page = state.noise, number, await self._read(geometry, state, number)
        stop = min(last_bin + 1 - state.epoch.first_bin, geometry.bins_of(number).stop)
        return part_of_page(geometry, self._page[2], range(first, stop))

    async def seed(self, state: StreamState) -> bytes:
        """Return the seed of the running epoch's decisions. SECRET. Raises: as ``of_bins``."""
        if self._seed[0] != state.noise:
            self._seed = state.noise, await self._content(state, 0)
        return self._seed[1]

    async def shares_keys(self) -> bool:
        """Return whether this worker has the keys to continue the running epoch.

        Also true for a stream that stores no noise, and if no epoch has bins left to release.
        """
        while True:
            state = await self._store.load(self._stream)
            if state is None or state.epoch.is_over:
                return True
            strategy = Strategy.from_json(state.strategy)
            first_bin = state.released_bin + 1
            if not strategy.kind.stores_ahead or first_bin >= state.epoch.first_bin + state.epoch.bins:
                return True
            try:
                if strategy.kind.seeded:
                    await self.seed(state)
                else:
                    await self.of_bins(strategy, state, first_bin)
            except NoiseLost:
                now = await self._store.load(self._stream)
                if now is None or (now.noise, now.released_bin) == (state.noise, state.released_bin):
                    return False  # the page was not used up meanwhile
            else:
                return True

    async def settle(self, strategy: Strategy, state: StreamState) -> None:
        """Destroy the keys and delete the pages that no release needs any more."""
        if not strategy.kind.stores_ahead:
            return
        geometry, epoch = strategy.kind.page_geometry(), state.epoch
        released = state.released_bin + 1 - epoch.first_bin
        spent = geometry.pages if epoch.is_over else geometry.page_of(released)
        if self._settled == (state.noise, spent):
            return
        if self._ready is not None and self._ready[0] <= epoch.epoch:
            self.give_up()
        await self._keys.spend(self._stream, epoch.epoch, state.noise, spent)
        await self._keys.discard(self._stream, epoch.epoch, state.noise)
        await self._store.discard_noise(self._stream, self._kept, state.noise, spent)
        if self._page is not None and self._page[:2] != (state.noise, spent):
            self._page = None
        if epoch.is_over:
            self._seed = "", b""
        self._settled = state.noise, spent

    async def _draw(self, strategy: Strategy, epoch: int) -> StoredNoise:
        while (drawn := await self._drawn(strategy, epoch)) is None:
            pass  # the keys were rotated meanwhile: what was drawn is never used
        return drawn

    async def _drawn(self, strategy: Strategy, epoch: int) -> StoredNoise | None:
        """Draw and store an epoch's noise; return None once the store notes another key than at the start."""
        nonce = self._make_nonce()
        self._kept = [nonce]
        mark = await self._keys.mark(self._stream, await self._store.noise_key(self._stream))
        key = await self._keys.create(self._stream, epoch, nonce, mark)
        pages, number = strategy.kind.draw_pages(self._noise), 0
        while (page := await in_thread(SHARED, next, pages, None)) is not None:
            data = encrypt_page(key, self._stream, epoch, nonce, number, page)
            if not await self._store.write_noise(self._stream, nonce, number, data, mark):
                return None
            key, number = later_chain_key(key, 1), number + 1
        return StoredNoise(nonce, number)

    async def _read(self, geometry: PageGeometry, state: StreamState, page: int) -> BinsNoise:
        content = await self._content(state, page)
        try:
            return read_page(geometry, page, content)
        except ValueError as damage:
            raise NoiseLost(f"stream {self._stream}: {damage}") from None

    async def _content(self, state: StreamState, page: int) -> bytes:
        where = f"stream {self._stream}: noise page {page} of epoch {state.epoch.epoch}"
        before: bytes | None = None
        while True:
            data = await self._store.read_noise(self._stream, state.noise, page)
            if data is None:
                raise NoiseLost(f"{where} is missing")
            chains = await self._keys.chains(self._stream, state.epoch.epoch, state.noise)
            chains = [(first, key) for first, key in chains if first <= page]
            for first, key in chains:
                place = self._stream, state.epoch.epoch, state.noise, page
                with suppress(ValueError):
                    return decrypt_page(later_chain_key(key, page - first), *place, data)
            if data == before:
                break
            before = data  # a rotation of keys may have replaced the page before the keys were read
        # Raises OperatorError if the noise is not lost, and this worker only lacks its key.
        await self._keys.mark(self._stream, await self._store.noise_key(self._stream))
        raise NoiseLost(f"{where} is damaged" if chains else f"{where} has no key")


LARGEST_POOL = 4_000_000  # numbers: the vectors of one bin with a million columns on four levels


class NoisePool:
    """A noise source that keeps some vectors ready, and draws a missing vector at once.

    Guarantee: that of ``source``, which draws every vector. Each vector is returned whole, and once.
    Args: wanted, how many vectors of each scale and shape to keep ready; none are kept if together they have
        more than ``LARGEST_POOL`` numbers.
    """

    def __init__(self, source: NoiseSource, wanted: Mapping[Vector, int]) -> None:
        self.private = source.private
        self._source = source
        self._wanted = dict(wanted)
        self._ready: dict[Vector, deque[Int64Array]] = {vector: deque() for vector in wanted}
        if sum(int(np.prod(shape)) * count for (_, shape), count in wanted.items()) > LARGEST_POOL:
            self._wanted.clear()

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Return a vector that is ready, or draw one now."""
        whole = (shape,) if isinstance(shape, int) else tuple(shape)
        ready = self._ready.get((Fraction(scale), whole))
        if ready:
            return ready.popleft()
        return self._source.discrete_laplace(scale, shape)

    def select(self, scores: NDArray[np.integer[Any]], scale: Scale) -> int:
        """Return the source's selection; nothing is drawn ahead for it."""
        return self._source.select(scores, scale)

    def draw_one(self) -> bool:
        """Draw one vector that is missing; return whether there was one."""
        for vector, count in self._wanted.items():
            if len(self._ready[vector]) < count:
                scale, shape = vector
                self._ready[vector].append(self._source.discrete_laplace(scale, shape))
                return True
        return False
