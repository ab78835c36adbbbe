"""The parts that the loops of a stream share: the ports of its source, and how the stream is closed."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dphist.noise import NoiseSource
from stream_app.core.segments.endings import Ending
from stream_app.core.strategy import Strategy
from stream_app.loops.lease import Lease
from stream_app.ports import Clock, DeadLetters, NoiseKeys, Source, Store, Witness
from stream_app.source_ledger import SourceLedger

OnEnd = Callable[[Ending, int], None]  # gets why an epoch ended early, and how many bins are not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Everything outside that the loops of one source use.

    Args:
        clock: closes bins; ``wall`` makes results visible. They differ in a replay.
        witnesses, noise: by stream.
        make_nonce: returns a new unique name for each attempt to release.
        new_store: returns a separate store for one loop; None: all loops use ``store``.
    """

    store: Store
    source: Source
    clock: Clock
    wall: Clock
    witnesses: Mapping[str, Witness]
    dead_letters: DeadLetters
    noise: Mapping[str, NoiseSource]
    keys: NoiseKeys
    make_nonce: Callable[[], str] = lambda: secrets.token_hex(16)
    new_store: Callable[[], Store] | None = None

    def of_one_loop(self) -> Ports:
        """Return the ports with a separate store for one loop, so that the loop notices a changed server."""
        return self if self.new_store is None else replace(self, store=self.new_store())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream and how it is closed.

    Args:
        strategy: the configured declaration with a tree planned for it (see ``open_stream``).
        publish_every_us: results become visible at multiples of this on the wall clock.
        ledger: of the stream's source; None: the store's ledger, which accepts no second measurement.
        lease: needed if several workers may close the stream; None: this is the only worker.
        witness_is_public: whether readers see the witness; it is then written at public instants only.
        draws_between_closings: whether noise may be drawn while no bin closes; an audit draws in one order.
        measuring: all configured streams over the source, each with its ledger. Rows that only their
            witnesses have are put back before an epoch of this stream opens.
        begins: whether this start begins the segment; another worker may be faster, with other settings.
        until_us: where the stream ends for good, a bin's edge; None: the configuration names no end.
        keep_us: how long the store keeps the releases of an epoch after its end; None: for ever.
        on_end: called when an epoch has ended early, with the reason and the number of uncounted bins.
    """

    strategy: Strategy
    publish_every_us: int = 1_000_000
    ledger: SourceLedger | None = None
    lease: Lease | None = None
    witness_is_public: bool = False
    draws_between_closings: bool = True
    measuring: Sequence[Stream] = ()
    begins: bool = False
    until_us: int | None = None
    keep_us: int | None = None
    on_end: OnEnd = lambda ending, skipped_bins: None

    @property
    def end_in_words(self) -> str:
        """The sentence that a worker logs when the stream has ended."""
        following = self.followed_by
        follows = f"{following} goes on" if following else "it counts nothing more"
        return f"it has released its last bin; {follows}"

    @property
    def followed_by(self) -> str | None:
        """The configured stream that goes on where this one ends: its next segment, or another name."""
        others = (stream.strategy for stream in self.measuring)
        following = (one.stream for one in others if one.declared.successor_of == self.strategy.stream)
        return next(following, None)
