"""Mutants that handle noise drawn ahead wrongly. The simulator must fail for each of them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from dphist.tree.anticipating import BinsNoise
from stream_app.core.kinds.pages import PageGeometry, StoredNoise, part_of_page, read_page
from stream_app.core.kinds.tree import AnticipatingTree
from stream_app.core.kinds.wrappers import EpochsState
from stream_app.core.records import Reply, StreamState
from stream_app.core.strategy import Strategy
from stream_app.loops import next_epoch, noise_ahead
from stream_app.loops.noise_ahead import NoiseAhead
from stream_app.vault.cipher import decrypt_page
from tests.models.memory import MemoryStore
from tests.simulator.pipeline import Pipeline


class RedrawnAtStart(Pipeline):
    """A worker that starts draws the running epoch's noise again, instead of reading the stored noise."""

    def patched(self) -> AbstractContextManager[object]:
        """Draw once per worker and epoch."""
        drawn: dict[tuple[int, str], list[bytes]] = {}

        async def of_bins(
            ahead: NoiseAhead, strategy: Strategy, state: StreamState, last_bin: int
        ) -> BinsNoise:
            place = id(ahead), state.noise
            if place not in drawn:
                drawn[place] = list(strategy.kind.draw_pages(ahead._noise))
            geometry = strategy.kind.page_geometry()
            first = state.released_bin + 1 - state.epoch.first_bin
            page = geometry.page_of(first)
            content = read_page(geometry, page, drawn[place][page])
            stop = min(last_bin + 1 - state.epoch.first_bin, geometry.bins_of(page).stop)
            return part_of_page(geometry, content, range(first, stop))

        return patch.object(NoiseAhead, "of_bins", of_bins)


async def _of_the_next(ahead: NoiseAhead, geometry: PageGeometry, state: StreamState, page: int) -> BinsNoise:
    if ahead._ready is not None:
        number, _, stored = ahead._ready
        state = replace(state, noise=stored.nonce, epoch=replace(state.epoch, epoch=number))
    return await _read(ahead, geometry, state, page)


class NeverOpenedWith(Pipeline):
    """A worker reads the stored noise of the next epoch, although that epoch is not open yet."""

    wrong = ((NoiseAhead, "_read", _of_the_next),)


def _lenient(key: bytes, stream: str, epoch: int, nonce: str, page: int, data: bytes) -> bytes:
    try:
        return decrypt_page(key, stream, epoch, nonce, page, data)
    except ValueError:
        return bytes(len(data) - 28)


class DamageIgnored(Pipeline):
    """A page of noise that fails its check is read as zeros."""

    wrong = ((noise_ahead, "decrypt_page", _lenient),)


class OpensWithoutNoise(Pipeline):
    """The script that opens an epoch does not check that the epoch's noise is still stored."""

    class store(MemoryStore):
        """A store that opens an epoch without checking its noise."""

        def _hold(self, stream: str, owner: str, for_ms: int, lost: int) -> Reply:
            """Let every worker close: the lease only saves work."""
            return Reply.DONE

        def _is_stored(self, stream: str, noise: StoredNoise | None) -> bool:
            return True


def _always_carried(strategy: Strategy, state: StreamState) -> bytes:
    if strategy.kind.levels is None:
        return b""
    return replace(EpochsState.from_bytes(state.counter), total=0, tree=b"").to_bytes()


class CountsOverAnEarlyEnd(Pipeline):
    """Nodes over epochs continue after an epoch that ended early."""

    wrong = ((next_epoch, "_carried", _always_carried),)


class SameNoiseTwice(Pipeline):
    """An epoch opens with the noise of the previous epoch."""

    def patched(self) -> AbstractContextManager[object]:
        """Draw the same values for every epoch."""
        drawn: dict[int, list[bytes]] = {}
        real = AnticipatingTree.draw_pages

        def again(kind: AnticipatingTree, noise: Any) -> Any:
            return iter(drawn.setdefault(id(noise), list(real(kind, noise))))

        return patch.object(AnticipatingTree, "draw_pages", again)


_read = NoiseAhead._read
