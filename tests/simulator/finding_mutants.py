"""Mutants of streams that find keys. The simulator must catch each of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np

from dphist.arrays import Int64Array
from dphist.discovery import KeyDiscovery
from dphist.noise import NoiseSource
from dphist.toeplitz import ToeplitzDesign
from stream_app.core.counting.bounding import Bounds
from stream_app.core.counting.unlisted import Slots
from stream_app.core.epochs import stays, thinned_for
from stream_app.core.kinds import approximate_discovering, toeplitz
from stream_app.core.kinds.discovering import DiscoveringTree
from stream_app.core.kinds.tables import Closed, Named
from stream_app.core.records import Reply, StreamState
from stream_app.core.store_writes import Release
from stream_app.core.strategy import Strategy
from stream_app.loops import numbering_keys
from stream_app.loops.finding_keys import Naming
from stream_app.loops.noise_ahead import NoiseAhead
from tests.dphist.found_shares import DECISION, halved
from tests.models import memory_stream
from tests.models.memory import MemoryStore
from tests.simulator.mutants import Halved
from tests.simulator.pipeline import Pipeline

_real_most_keys = numbering_keys._most_keys


class NamesTooFew(Pipeline):
    """The reader asks for one key less of each user and bin than may count."""

    wrong = ((numbering_keys, "_most_keys", lambda stream: _real_most_keys(stream) - 1),)


def _without_bar(keys: KeyDiscovery, hashes: Sequence[bytes]) -> None:
    _real_add(keys, hashes)
    keys._bars = np.full(len(keys.hashes), keys.rule.threshold)


class WithoutBar(Pipeline):
    """A key is named at theta, without the noise that it has for all decisions."""

    wrong = ((KeyDiscovery, "add", _without_bar),)


_real_add = KeyDiscovery.add


class HalfDecisions(Pipeline):
    """The noise of each decision is half as large as it must be."""

    def patched(self) -> AbstractContextManager[object]:
        """Halve z."""
        return halved(DECISION)


class DecidedAgain(Pipeline):
    """A worker that takes an epoch over draws the noise of its decisions again."""

    def patched(self) -> AbstractContextManager[object]:
        """Change the seed for every worker but the first one that reads it."""
        first = dict[str, NoiseAhead]()

        async def seed(ahead: NoiseAhead, state: StreamState) -> bytes:
            real = await _real_seed(ahead, state)
            is_first = first.setdefault(state.noise, ahead) is ahead
            return real if is_first else hashlib.sha256(real).digest()

        return patch.object(NoiseAhead, "seed", seed)


_real_seed = NoiseAhead.seed


class OneKeyTooMany(Pipeline):
    """A user brings one key more than the rule allows."""

    class store(MemoryStore):
        """A store with one more slot for each user."""

        async def tally(
            self,
            stream: str,
            strategy_hash: str,
            bounds: Bounds,
            up_to_bin: int,
            slots: Slots | None = None,
        ) -> Reply:
            """Give one more slot."""
            more = None if slots is None else replace(slots, per_user=slots.per_user + 1)
            return await super().tally(stream, strategy_hash, bounds, up_to_bin, more)


class EverybodyCloses(Pipeline):
    """Each worker closes bins, as if it had the lease: not a mutant, as the lease only saves work."""

    class store(MemoryStore):
        """A store that gives every worker the lease."""

        def _hold(self, stream: str, owner: str, for_ms: int, lost: int) -> Reply:
            """Grant every lease."""
            return Reply.DONE


_real_decide, _real_named = Naming._decide, Naming._named


async def _kept(naming: Naming, strategy: Strategy, state: StreamState) -> tuple[Release, KeyDiscovery]:
    release, keys = await _real_decide(naming, strategy, state)
    naming._keys, naming._at = keys, (state.noise, release.last_bin)
    return release, keys


class RemembersTooEarly(EverybodyCloses):
    """A worker takes what it has decided for what was released, although another worker came first."""

    wrong = ((Naming, "_decide", _kept),)


async def _by_number(naming: Naming, *given: Any) -> Any:
    found = await _real_named(naming, *given)
    return replace(found, names=found.names[::-1], counts=found.counts[:, ::-1])


class NamedInOrderOfNumbers(Pipeline):
    """The names of a row come in the order in which their keys came."""

    wrong = ((Naming, "_named", _by_number),)


class HalvesByExactCounts(Pipeline):
    """The exact number of events of hidden keys decides how often these are halved."""

    def patched(self) -> AbstractContextManager[object]:
        """Count them beside the released ones."""
        real, hidden = DiscoveringTree.close_naming, dict[bytes, int]()

        def close_naming(
            kind: DiscoveringTree, held: bytes, counts: Int64Array, noise: NoiseSource, named: Named
        ) -> Closed:
            closed = real(kind, held, counts, noise, named)
            events = hidden.get(held, 0) + int(counts[:, -1].sum()) - int(named.counts.sum())
            hidden[closed.state] = events
            return replace(closed, thinned=thinned_for(events, named.room))

        return patch.object(DiscoveringTree, "close_naming", close_naming)


class NoKeyGoes(Pipeline):
    """A worker keeps the hidden keys for which there is no room."""

    wrong = ((Naming, "_stays", lambda naming, keys, number: True),)


class GoneKeysCount(Pipeline):
    """A user's records of a key that has gone count in a cell of their own."""

    wrong = ((memory_stream, "stays", lambda key, thinned: True),)


async def _exchanged(naming: Naming, *given: Any) -> Any:
    found = await _real_named(naming, *given)
    pairs = found.counts.reshape(len(found.counts), -1, 2)
    return replace(found, counts=pairs[..., ::-1].reshape(found.counts.shape))


class HalfPasts(Pipeline):
    """The past of a new key has noise of half the standard deviation."""

    def patched(self) -> AbstractContextManager[object]:
        """Halve the noise of counters that begin with several bins."""

        def released(design: ToeplitzDesign, held: bytes, counts: Int64Array, noise: Any) -> Any:
            return toeplitz.released(
                design, held, counts, noise if held or len(counts) == 1 else Halved(noise)
            )

        return patch.object(approximate_discovering, "released", released)


class PastsWithOneNoise(Pipeline):
    """All keys of a row have the same noise in their past."""

    def patched(self) -> AbstractContextManager[object]:
        """Draw the noise of one key, and copy it."""

        def released(design: ToeplitzDesign, held: bytes, counts: Int64Array, noise: Any) -> Any:
            is_past = not held and len(counts) > 1
            source: Any = _Copied(noise) if is_past else noise
            return toeplitz.released(design, held, counts, source)

        return patch.object(approximate_discovering, "released", released)


class _Copied:
    private = True

    def __init__(self, noise: Any) -> None:
        self._noise = noise

    def discrete_gaussian(self, variance: Fraction, shape: tuple[int, ...]) -> Int64Array:
        """Draw the first column only."""
        one: Int64Array = self._noise.discrete_gaussian(variance, (shape[0], 1))
        return np.repeat(one, shape[1], axis=1)


class AmountsChangePlaces(Pipeline):
    """What an event adds to the two ends of the range changes places in the past of a new key."""

    wrong = ((Naming, "_named", _exchanged),)


class SlotsComeBack(Pipeline):
    """A user may bring another key once the one that she has brought is gone."""

    class store(MemoryStore):
        """A store that frees slots."""

        async def tally(
            self,
            stream: str,
            strategy_hash: str,
            bounds: Bounds,
            up_to_bin: int,
            slots: Slots | None = None,
        ) -> Reply:
            """Forget which of the gone keys users have brought."""
            if slots is not None and slots.thinned:
                self._free(stream, slots)
            return await super().tally(stream, strategy_hash, bounds, up_to_bin, slots)

        def _free(self, stream: str, slots: Slots) -> None:
            state = self.streams[stream]
            for window, of_users in state.slots.items():
                hashes = [one.hash for one in state.unlisted[window]]
                for cells in of_users.values():
                    cells[:] = [
                        cell
                        for cell in cells
                        if cell - slots.first_unlisted in slots.shown
                        or stays(hashes[cell - slots.first_unlisted], slots.thinned)
                    ]
