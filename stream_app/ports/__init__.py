"""ports: the interfaces through which the loops reach the world: store, source, clock, witness, dead letters.

May import: core, dphist. ``wiring`` chooses the adapters behind these protocols.
Start at: ``Store``, then ``Source``, ``Clock``, ``Witness``; ``reader.py`` and ``access.py`` are the API's.
Must stay true: every write that decides what is counted, released or shown compares first and may be
repeated. A repeated call answers ``already``, and an outdated call is refused. So a lost reply, a retry, an
outdated worker or a rebalance neither doubles nor loses a count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from stream_app.core.incoming import RecordBatch, Refusal
from stream_app.core.kinds.pages import StoredNoise
from stream_app.core.records import (
    Cut,
    EpochRecord,
    LateEvents,
    LedgerEntry,
    Reply,
    StreamState,
    WitnessRow,
)
from stream_app.core.releases.restored import Restored
from stream_app.core.store_writes import ALL_WAIT, Apply, PartitionCuts, Release, Waiting
from stream_app.core.strategy import Strategy
from stream_app.ports.errors import ClockDoubt as ClockDoubt
from stream_app.ports.errors import NothingCountedError as NothingCountedError
from stream_app.ports.errors import OperatorError as OperatorError
from stream_app.ports.exact_counts import ExactCounts

# The words with which an operator accepts a store that may lose a release that people have seen.
ACCEPT_LOSS = "may lose acknowledged writes"
ACCEPT_MANAGED = "the witness is the durable record, and deleted counts stay on the provider's disks"


class Store(ExactCounts, Protocol):
    """The durable state of all streams, secrets included.

    Guarantee: every method is atomic, and safe to repeat. No error message contains a count, a position or a
        cut.
    Raises (every method): OSError if it is unknown whether a call took effect (repeat it or load);
        ValueError for arguments that no state could accept.
    """

    @property
    def servers_met(self) -> int:
        """How many server processes have answered this client; a new one may have lost writes."""

    async def now_us(self, latest_us: int = 0) -> tuple[int, int]:
        """Return the store's clock, and the latest time it has noted before; microseconds since 1970.

        The store notes the current time, unless that is later than ``latest_us``: 0: nothing.
        """

    async def reserve(self, entry: LedgerEntry, after: int | None = None) -> Reply:
        """Write a ledger entry once: DONE, ALREADY (equal entry), CONFLICT (a different entry is there).

        Args: after, the number of entries that the ledger of this source must have; CONFLICT if it has
            another number. None: any number.
        """

    async def ledger(self, source: str) -> tuple[LedgerEntry, ...]:
        """Return every measurement of a source, oldest first."""

    async def sources(self) -> dict[str, str]:
        """Return the name of each stream's source, by stream."""

    async def load(self, stream: str) -> StreamState | None:
        """Return the stream's state, read in one step; None for a stream that was never opened."""

    async def open_epoch(
        self,
        stream: str,
        strategy: bytes,
        record: EpochRecord,
        head: str,
        noise: StoredNoise | None = None,
        carried: bytes = b"",
        replaced: bytes = b"",
    ) -> Reply:
        """Open the epoch ``record`` if its number, first seq and first bin come after all in the store.

        The number is usually the next one. It is higher if the witness knows later epochs than a restored or
        emptied store. A previous epoch that is not complete ends for good, at its released bin or at its last
        visible bin if rows were discarded. Cells of bins before ``record.first_bin`` are deleted.

        Args:
            strategy: the text of the epoch's strategy, or ``core.segments.strategies.strategies_text``.
            head: the hash of row ``record.first_seq - 1``, which the chain continues. If this is not the
                store's own head, rows that were never visible are discarded first: the witness has others.
            noise: the epoch's only noise.
            carried: the counter's first state, SECRET; unused if the head is not the store's own.
            replaced: the stored text that ``strategy`` replaces, if the settings change with this epoch.
                Calls that carry the hash of the strategy before are refused from then on.
        Returns: ALREADY if the running epoch is equal; STRATEGY if the stream has other strategies;
            CONFLICT in all other cases, also if a page of the noise is not stored.
        """

    async def noise_key(self, stream: str) -> bytes:
        """Return the mark of the shared key with which new noise is encrypted; empty if none is noted."""

    async def write_noise(self, stream: str, nonce: str, page: int, data: bytes, key: bytes = b"") -> bool:
        """Store an encrypted page once, before its epoch opens; the stream need not exist yet.

        Args: key, the mark of the shared key that encrypts the page, which the store notes; empty for none.
        Returns: False, and nothing is stored, if another key is noted by now.
        """

    async def read_noise(self, stream: str, nonce: str, page: int) -> bytes | None:
        """Return an encrypted page, or None if it is not stored. SECRET."""

    async def discard_noise(self, stream: str, kept: Sequence[str], nonce: str = "", spent: int = 0) -> None:
        """Delete all noise but the running epoch's and ``kept``, and ``nonce``'s first ``spent`` pages."""

    async def end_epoch(self, stream: str, epoch: int, expected_seq: int, reason: str) -> Reply:
        """End the running epoch at its released bin, for good; CONFLICT if the stream has another seq."""

    async def stop(self, stream: str, epoch: int, expected_seq: int) -> Reply:
        """Count no more records until an epoch opens, and delete the counts of later bins.

        The running epoch must have ended, and no epoch may follow it now. Repeating the call does no harm.
        Returns: CONFLICT if the stream has another epoch or seq, or the epoch goes on.
        """

    async def end_at(self, stream: str, until_bin: int, late_to_next: bool = False) -> Reply:
        """Seal no bin from ``until_bin`` on, for good: another stream counts them, or none does.

        Args: late_to_next, whether the next segment counts events late at the end. The store then keeps
            where each partition's last bin is cut, unless such a cut is taken already.
        Returns: SEALED if such a bin is sealed already; CONFLICT if the stream has another end, or was never
            opened; ALREADY if it has this end.
        """

    async def mark_halted(self, stream: str, halted: bool) -> Reply:
        """Mark, for readers, whether a fault of its log or its own stops a stream.

        The mark changes nothing that is counted, released or shown. Returns: CONFLICT if it was never
        opened, or is history that nobody counts any more.
        """

    async def apply(self, stream: str, change: Apply) -> Reply:
        """Add deltas and operator's counts, and move the position from expected to new; all or nothing.

        Returns: CUTS_CHANGED also if ``due_us`` has passed by the store's clock: take the due cut first;
        CONFLICT also for a partition that was not started, and for a change by the rules of another epoch:
        after a lost store, an epoch refuses records that an earlier one may have measured; SEALED also for
        deltas of a stopped stream. At most 5,000 cells, and at most 5,000 more that are set aside
        (``change.ahead``) until the partition's next cut.
        """

    async def apply_together(
        self, stream: str, strategy_hash: str, epoch: int, changes: Sequence[Apply]
    ) -> Sequence[Reply]:
        """Apply changes of several partitions in one short call, in their order; each is decided by itself.

        Their own ``strategy_hash`` and ``epoch`` do not matter: streams that count alike share changes.
        Returns: a reply for each change, as ``apply`` does. At most 5,000 cells in all.
        """

    async def take_cuts(
        self,
        stream: str,
        strategy_hash: str,
        partition: str,
        expected_last_cut_bin: int,
        cuts: Sequence[Cut],
        max_ahead_bins: int = 0,
        waiting: Waiting = ALL_WAIT,
    ) -> Reply:
        """Append cuts. Bins rise; positions do not fall and are not below the partition's position.

        Records that were set aside count if they are dated at most ``max_ahead_bins`` beyond the first cut's
        ``open_bin`` and their bin is not sealed. The others are refused, and counted for the operator. An
        unknown partition starts at position 0 with the sealed bin as its base bin. ``waiting``, as in
        ``Apply``: records of a user in more places of a bin cannot count, and need not be kept.
        """

    async def take_cuts_together(
        self, stream: str, strategy_hash: str, taken: Sequence[PartitionCuts]
    ) -> list[Reply]:
        """Append cuts to several partitions in one short call; each is decided as ``take_cuts`` does.

        Returns: a reply for each partition; SET_ASIDE where records that were set aside may count: nothing is
            decided there, and ``take_cuts`` takes these cuts.
        """

    async def refused_ahead(self, stream: str, partition: str, limit: int) -> list[int]:
        """Return the first positions of records refused after they were set aside. SECRET."""

    async def forget_refused(self, stream: str, partition: str, positions: Sequence[int]) -> None:
        """Forget these positions, whose dead letters are written; a repeated call forgets nothing else."""

    async def start_partition(
        self,
        stream: str,
        strategy_hash: str,
        partition: str,
        position: int,
        late_before: LateEvents | None = None,
    ) -> Reply:
        """Create a partition's state at a start position, once; its base bin is the sealed bin."""

    async def seal(self, stream: str, strategy_hash: str, partitions: Sequence[str], up_to_bin: int) -> int:
        """Seal the bins that all known and listed partitions allow, up to ``up_to_bin``; return the last.

        A partition allows bin b once its cut of b is taken and its position has reached that cut.
        """

    async def release(self, stream: str, release: Release) -> Reply:
        """Append rows and tiles, set head, seq and counter, delete the released cells; all or nothing."""

    async def put_back(self, stream: str, lost: Restored) -> Reply:
        """Put back rows of earlier epochs from the witness; all or nothing.

        CONFLICT unless the store's last row directly precedes them and the running epoch follows them.
        """

    async def publish(self, stream: str, seq: int) -> None:
        """Make rows up to ``seq`` visible. Never goes back; a seq that is not released changes nothing."""

    async def visible_seq(self, stream: str) -> int:
        """Return the last row that readers may see; 0 if there is none."""

    async def oldest_epoch(self, stream: str) -> EpochRecord | None:
        """Return the oldest epoch that the store keeps; None if it has none, or it leaves just now."""

    async def trim(self, stream: str, before_us: int) -> int:
        """Remove rows, values and records of epochs that ended before an instant; return how many.

        The oldest epoch leaves first, each in one step with all it has. Rows after it stay, and a row
        after it must be visible (``core.segments.retention.removable``). The place and the hash of the last
        removed row stay. Witness, ledger and the stream's state do not change.
        """

    async def forget(self) -> None:
        """Rewrite the durable log without the exact counts that were deleted before this call."""

    async def hold(
        self, streams: Sequence[str], owner: str, for_ms: int, lost: Sequence[int] = ()
    ) -> list[Reply]:
        """Take or keep the leases of streams for ``for_ms``, or give them up (0): DONE, CONFLICT or BEHIND.

        Args: lost, for each stream the last row of the owner's witness if the store lacks it, else 0. A lease
            is taken from an owner that stated an earlier row. BEHIND: another owner that stated one holds it.
        Cost: one round trip for all. Each lease is decided atomically, all of them together are not.
        """

    async def attend(self, source: str, alike: str, worker: str, for_ms: int) -> list[str]:
        """Note that a worker lives for ``for_ms`` from now, or leaves (0); return the workers that live.

        Args: alike, the same for all workers that run the same streams over the source; they see each other.
        """

    async def operator_counts(self, stream: str) -> Mapping[str, int]:
        """Return the operator's counters of a stream (``core/counting/outcomes.py``, ``Reason``). SECRET.

        They are exact: each record is in them once. No decision depends on them.
        """

    async def rows(self, stream: str, after_seq: int, limit: int) -> list[tuple[int, bytes]]:
        """Return released rows with seq > after_seq in order, visible or not."""

    async def witness_rows(
        self, stream: str, strategy: Strategy, after_seq: int, limit: int
    ) -> list[WitnessRow]:
        """Return released rows with their values. Raises: OSError also if rows were discarded meanwhile."""


class Source(Protocol):
    """An event log: partitions with positions that only grow."""

    async def partitions(self) -> Sequence[str]:
        """Return the partitions that exist now, read by this worker or not."""

    async def owned(self) -> Sequence[str]:
        """Return the partitions that this worker reads and cuts now; other workers may own the rest."""

    async def first_position(self, partition: str, since_us: int | None) -> int:
        """Return the position of a partition's first record, or of the first record since an instant."""

    async def kept_since_us(self) -> int | None:
        """Return the instant since which the log still has every written record; None: it has all."""

    async def positions_at(
        self, partitions: Sequence[str], instants_us: Sequence[int]
    ) -> Mapping[str, Sequence[int]]:
        """Return the end of each partition's log at each of the instants, which rise and have passed.

        A live log has no history: for all instants it returns its high watermark at one moment between the
        call and its return. It waits for no reading and no decoding.
        """

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        """Return the next batches from the positions, at most one per partition; none after the timeout."""

    async def close(self) -> None:
        """Release files and connections."""


class Clock(Protocol):
    """The clock that closes bins. A virtual clock replays the past."""

    @property
    def virtual(self) -> bool:
        """Whether time is replayed: the store's clock then checks nothing."""

    async def now_us(self) -> int:
        """Return microseconds since 1970; it never goes back."""

    async def sleep_until_us(self, instant_us: int) -> None:
        """Return when the clock has reached the instant (a virtual clock may jump there)."""


class Witness(Protocol):
    """A second durable record of all releases, outside the store. It has every row that readers see."""

    async def claim(self, stream: str) -> None:
        """Become the only writer of a stream: rows that an earlier writer sends from now on are refused."""

    async def resign(self, stream: str) -> None:
        """Stop being the writer: from now on another worker may add rows."""

    async def append(self, stream: str, rows: Sequence[WitnessRow]) -> None:
        """Write rows durably, except rows that are there already; return when they are on disk."""

    async def head(self, stream: str) -> tuple[int, bytes] | None:
        """Return the last (seq, row) of a stream, or None."""

    async def rows(self, stream: str, after_seq: int) -> list[WitnessRow]:
        """Return rows with seq > after_seq, in order."""


class OutsideLedger(Protocol):
    """A copy of every ledger entry, kept apart from the store and the state directory, so it survives both.

    Raises (every method): OSError if it does not answer; OperatorError if it is not the right ledger.
    """

    name: str  # for messages

    async def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all entries of all sources, oldest first."""

    async def append(self, entries: Sequence[LedgerEntry]) -> None:
        """Write entries durably, except entries that are there already; return when they are on disk."""


class NoiseKeys(Protocol):
    """Keys outside the store: to hash users, and chains of keys for epochs' noise (``vault/cipher.py``)."""

    def user_key(self, stream: str, mark: bytes = b"") -> bytes:
        """Return a key with which users' ids are hashed, durable before this returns.

        Args: mark, of the key (``mark_of_users``); empty: the key for streams that note none.
        Raises: OperatorError if this worker does not have the key.
        """

    async def mark(self, stream: str, stored: bytes) -> bytes:
        """Return the mark of the key for a stream's next noise; empty if no other worker shares the key.

        Args: stored, the mark that the store notes, or empty.
        Raises: OperatorError if this worker does not have the key that is noted.
        """

    async def create(self, stream: str, epoch: int, nonce: str, mark: bytes = b"") -> bytes:
        """Make the first chain key for an epoch's noise; return it when it is durable."""

    async def chains(self, stream: str, epoch: int, nonce: str) -> Sequence[tuple[int, bytes]]:
        """Return the chain keys that may open an epoch's noise, each with the number of its first page."""

    async def spend(self, stream: str, epoch: int, nonce: str, pages: int) -> None:
        """Destroy the keys of the first ``pages`` pages."""

    async def discard(self, stream: str, epoch: int, nonce: str) -> None:
        """Destroy the noise keys of all epochs up to ``epoch``, except the keys of noise ``nonce``."""

    async def forget(self, stream: str) -> None:
        """Destroy all noise keys of a stream that is retired."""


class DeadLetters(Protocol):
    """Where refused records go. A letter names the streams that no earlier letter about its record names."""

    async def write(
        self, refusals: Sequence[Refusal], streams: tuple[str | None, ...] = (None,)
    ) -> Sequence[int]:
        """Write durably one letter for each refusal; return how many of them name each stream.

        Args: streams, which refused all of them; ``(None,)`` if the source could not decode them.
        """
