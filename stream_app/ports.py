"""What the loops need from the world: store, source, clock, witness, dead letters.

``ingest`` and ``closer`` know these protocols only; ``bootstrap`` chooses what stands behind them.
Every write is a compare-and-set that may be repeated: a lost reply, a retry, a zombie or a rebalance can
neither double nor lose, because a repeated call answers ``already`` and a stale one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dphist.arrays import Int64Array
from stream_app.core.records import (
    Apply,
    Cut,
    EpochRecord,
    LedgerEntry,
    PublicState,
    RecordBatch,
    Refusal,
    Release,
    Reply,
    StoredNoise,
    StreamState,
    WitnessRow,
)
from stream_app.core.restored import Restored
from stream_app.core.strategy import Strategy

# What an operator writes to let a store be used that may lose a release that people have seen.
ACCEPT_LOSS = "may lose acknowledged writes"


class OperatorError(ValueError):
    """Nothing can go on without the operator: one line that says what, where and the remedy (status 2)."""


class ClockDoubt(OSError):
    """Two clocks disagree, and nobody knows which is right: nothing is closed until they agree."""


class Store(Protocol):
    """The durable state of all streams, secrets included. Every method is atomic and may be repeated.

    Raises: OSError when it is not known whether a call happened (repeat it or load); ValueError for
        arguments that no state could accept. No message holds a count, a position or a cut.
    """

    async def now_us(self, latest_us: int | None = None) -> tuple[int, int]:
        """Return the store's clock, and the latest time that it noted earlier; microseconds since 1970.

        It notes the time of now, unless that is later than ``latest_us``.
        """
        ...

    async def reserve(self, entry: LedgerEntry) -> Reply:
        """Write a ledger entry once: DONE, ALREADY (equal entry), CONFLICT (another one in its place)."""
        ...

    async def ledger(self, source: str) -> tuple[LedgerEntry, ...]:
        """Return every measurement of a source, oldest first."""
        ...

    async def load(self, stream: str) -> StreamState | None:
        """Return the stream's state in one consistent read, or None for a stream never opened."""
        ...

    async def open_epoch(
        self,
        stream: str,
        strategy: bytes,
        record: EpochRecord,
        head: str,
        noise: StoredNoise | None = None,
        carried: bytes = b"",
    ) -> Reply:
        """Open ``record`` if its number and its first seq are greater than all that the stream has here.

        Usually that is the next number; it is further on when the witness knows later epochs than a
        restored or emptied store. ALREADY for the epoch that runs, if equal; CONFLICT for anything else.
        The chain goes on from ``head`` and ``record.first_seq - 1``. If the previous epoch had not reached
        its end it is ended at its released bin for ever (``record`` then starts later than its end). If the
        chain goes on from another head than its own, rows that were never visible are discarded first:
        the witness holds other ones. Cells of bins before ``record.first_bin`` and the counter are
        deleted, later cells stay; the counter begins as ``carried`` (SECRET) if the chain goes on from its
        own head, and empty otherwise. From here on ``noise`` is the epoch's, for ever; CONFLICT if a page of
        it is not stored, so noise that somebody discarded meanwhile is never begun with.
        """
        ...

    async def write_noise(self, stream: str, nonce: str, page: int, data: bytes) -> None:
        """Store an encrypted page once, before the epoch that may use it; the stream need not exist yet."""
        ...

    async def read_noise(self, stream: str, nonce: str, page: int) -> bytes | None:
        """Return an encrypted page, or None if it is not there. SECRET."""
        ...

    async def discard_noise(self, stream: str, kept: Sequence[str], nonce: str = "", spent: int = 0) -> None:
        """Delete all noise but that of the running epoch and of the ``kept`` nonces.

        Of ``nonce``, the first ``spent`` pages are deleted too.
        """
        ...

    async def end_epoch(self, stream: str, epoch: int, expected_seq: int, reason: str) -> Reply:
        """End the running epoch at its released bin, with the reason; nothing of it is released again.

        CONFLICT if the stream is not at ``expected_seq``: who saw an older state may be wrong about it.
        """
        ...

    async def apply(self, stream: str, change: Apply) -> Reply:
        """Add the deltas and move the position from expected to new, or change nothing.

        CUTS_CHANGED also when ``due_us`` has passed by the store's clock: the due cut is taken first.
        CONFLICT also for a partition that was not started. At most 5,000 cells, and as many set aside
        (``change.ahead``) until the partition's next cut.
        """
        ...

    async def take_cuts(
        self,
        stream: str,
        strategy_hash: str,
        partition: str,
        expected_last_cut_bin: int,
        cuts: Sequence[Cut],
        max_ahead_bins: int = 0,
    ) -> Reply:
        """Append cuts, rising in bin, not falling in position nor below the partition's position.

        Records that were set aside are decided: those dated at most ``max_ahead_bins`` beyond the first
        cut's ``open_bin`` count, unless their bin is sealed; the others are refused and counted for the
        operator. An unknown partition starts at position 0 with the sealed bin as its base bin.
        """
        ...

    async def refused_ahead(self, stream: str, partition: str) -> list[int]:
        """Return positions of records that were set aside and refused, until they are forgotten. SECRET."""
        ...

    async def forget_refused(self, stream: str, partition: str, positions: int) -> None:
        """Forget the first of these positions, whose dead letters are written."""
        ...

    async def start_partition(self, stream: str, strategy_hash: str, partition: str, position: int) -> Reply:
        """Create a partition's state at a start position, once; its base bin is the sealed bin."""
        ...

    async def seal(self, stream: str, strategy_hash: str, partitions: Sequence[str], up_to_bin: int) -> int:
        """Seal what every known and listed partition allows, up to ``up_to_bin``; return the sealed bin.

        A partition allows bin b when its cut of b is taken and its position has reached it.
        """
        ...

    async def tally(self, stream: str, strategy_hash: str, max_events: int, up_to_bin: int) -> Reply:
        """Add to the cells of sealed bins, up to ``up_to_bin``, what counts of the users' records.

        Of each user ``max_events`` records of a window count (``core.bounding``). A call does a bounded part
        of the work, in the order of bins, and is safe to repeat. DONE: call again; ALREADY: nothing is left.
        """
        ...

    async def read_cells(self, stream: str, first_bin: int, last_bin: int, width: int) -> Int64Array:
        """Return exact counts of sealed and tallied bins, shape (bins, width).

        SECRET: never logged or in an error.
        """
        ...

    async def release(self, stream: str, release: Release) -> Reply:
        """Append rows and tiles, set head, seq and counter, delete the released cells, or change nothing."""
        ...

    async def put_back(self, stream: str, lost: Restored) -> Reply:
        """Put rows of earlier epochs back that the witness holds, or change nothing.

        CONFLICT unless the store's last row is the one before them, and the running epoch follows them.
        """
        ...

    async def publish(self, stream: str, seq: int) -> None:
        """Make released rows up to ``seq`` visible; never goes back; a seq not released changes nothing."""
        ...

    async def forget(self) -> None:
        """Have the durable log written anew without what was deleted; returns before that is done.

        A released bin's exact counts are deleted at once, but stay in the log until then.
        """
        ...

    async def hold(self, stream: str, owner: str, for_ms: int) -> bool:
        """Take or keep the stream's lease for so long; return whether ``owner`` holds it.

        It saves work, no more: whoever closes without it is stopped by the other scripts. 0 gives it up.
        """
        ...

    async def count_for_operator(self, stream: str, name: str, by: int) -> None:
        """Add to a secret operator counter (late, before_first_bin, undecodable, future): never public."""
        ...

    async def rows(self, stream: str, after_seq: int, limit: int) -> list[tuple[int, bytes]]:
        """Return released rows with seq > after_seq in order, visible or not."""
        ...

    async def witness_rows(
        self, stream: str, strategy: Strategy, after_seq: int, limit: int
    ) -> list[WitnessRow]:
        """Return released rows with seq > after_seq in order, visible or not, with values for the witness.

        Raises: OSError also where the rows were discarded meanwhile.
        """
        ...


class PublicReader(Protocol):
    """What the API may read: visible releases and nothing else."""

    async def streams(self) -> tuple[str, ...]:
        """Return the names of all opened streams, sorted."""
        ...

    async def public_state(self, stream: str) -> PublicState | None:
        """Return strategy, epochs and the visible seq in one consistent read."""
        ...

    async def visible_seqs(self, streams: Sequence[str]) -> list[int]:
        """Return the visible seq of each stream; 0 where nothing is visible."""
        ...

    async def rows(self, stream: str, after_seq: int, limit: int) -> list[tuple[int, bytes]]:
        """Return visible rows with seq > after_seq, in order."""
        ...

    async def tile_rows(
        self, stream: str, epoch: int, table: str, first: int, count: int, width: int
    ) -> Int64Array:
        """Return ``count`` rows of a table from ``first`` on, shape (count, width)."""
        ...

    async def ledger(self, source: str) -> tuple[LedgerEntry, ...]:
        """Return every measurement of a source, oldest first."""
        ...

    async def alerts(self) -> dict[str, bytes]:
        """Return where every rule stands, by its name."""
        ...

    async def transitions(self, stream: str) -> list[bytes]:
        """Return the last transitions of the rules over a stream, oldest first, as readers see them."""
        ...

    async def ping(self) -> None:
        """Raise OSError if the store cannot be read."""
        ...


class AlertStore(Protocol):
    """Where rules stand and what was told of them. All of it follows from visible releases."""

    async def load(self) -> tuple[dict[str, bytes], dict[str, int]]:
        """Return the states by rule, and by stream the last release that was decided on."""
        ...

    async def commit(
        self,
        stream: str,
        before: int | None,
        seq: int,
        states: Mapping[str, bytes],
        transitions: Sequence[Mapping[str, Any]],
    ) -> bool:
        """Store what was decided up to ``seq``, or change nothing if ``before`` is not the last decision."""
        ...

    async def transitions(self, after: str, limit: int) -> list[tuple[str, bytes]]:
        """Return transitions after a place, in order, each with its place."""
        ...

    async def told(self, target: str) -> str:
        """Return the place up to which a target was told; for a new one, the present end."""
        ...

    async def move(self, target: str, place: str) -> None:
        """Note that a target was told everything up to a place."""
        ...


class NotDelivered(Exception):
    """A target did not take a transition: to be tried again. Its text shows no secret."""


class AlertTarget(Protocol):
    """Somebody who is told of transitions."""

    name: str

    async def tell(self, told: Mapping[str, Any]) -> None:
        """Pass one transition on. Raises: NotDelivered."""
        ...

    async def remind(self, firing: Sequence[Mapping[str, Any]]) -> None:
        """Repeat what is firing, where the target would otherwise forget. Raises: NotDelivered."""
        ...


class Source(Protocol):
    """An event log: partitions with positions that only grow."""

    async def partitions(self) -> Sequence[str]:
        """List the partitions that exist now, whoever reads them."""
        ...

    async def owned(self) -> Sequence[str]:
        """List the partitions that this worker reads and cuts now; others may own the rest."""
        ...

    async def first_position(self, partition: str, since_us: int | None) -> int:
        """Return where a partition begins: its first record, or the first written since an instant."""
        ...

    async def kept_since_us(self) -> int | None:
        """Return the instant from which on all records that were written are still here; None: all ever."""
        ...

    async def positions_at(
        self, partitions: Sequence[str], instants_us: Sequence[int]
    ) -> Mapping[str, Sequence[int]]:
        """Return where each partition's log ended at each of the instants, which rise and have passed.

        A live log knows no instants: for all of them it answers with its high watermark of a moment between
        the call and its return. It waits for no reading and no decoding.
        """
        ...

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        """Return the next batches from the positions, at most one a partition; none after the timeout."""
        ...

    async def close(self) -> None:
        """Release files and connections."""
        ...


class Clock(Protocol):
    """The one clock that closes bins. A virtual clock replays the past."""

    @property
    def virtual(self) -> bool:
        """Whether time is replayed: the store's clock then checks nothing."""
        ...

    async def now_us(self) -> int:
        """Return microseconds since 1970; it never goes back."""
        ...

    async def sleep_until_us(self, instant_us: int) -> None:
        """Return when the clock has reached the instant (a virtual clock may jump there)."""
        ...


class Witness(Protocol):
    """A second durable record of what was released, outside the store: it may never be behind readers."""

    async def claim(self, stream: str) -> None:
        """Become the one writer of a stream: nothing that an earlier one sends is ever kept after this."""
        ...

    async def resign(self, stream: str) -> None:
        """Stop being the writer: from now on somebody else may add rows."""
        ...

    async def append(self, stream: str, rows: Sequence[WitnessRow]) -> None:
        """Write rows durably, skipping those it already has; return when they are on disk."""
        ...

    async def head(self, stream: str) -> tuple[int, bytes] | None:
        """Return the last (seq, row) of a stream, or None."""
        ...

    async def rows(self, stream: str, after_seq: int) -> list[WitnessRow]:
        """Return rows with seq > after_seq, in order."""
        ...


class OutsideLedger(Protocol):
    """A copy of every ledger entry, kept where a loss of the store and of the state directory does not reach.

    Raises (every method): OSError where it does not answer; OperatorError where it is not the ledger.
    """

    name: str  # for messages

    async def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all entries of all sources, oldest first."""
        ...

    async def append(self, entries: Sequence[LedgerEntry]) -> None:
        """Write entries durably, skipping those it already has; return when they are on disk."""
        ...


class NoiseKeys(Protocol):
    """Keys outside the store: of user ids, and a chain for each epoch's noise (``vault/cipher.py``)."""

    async def user_key(self) -> bytes:
        """Return the key of the hashes of users, durable before this returns, and always the same one."""
        ...

    async def create(self, stream: str, epoch: int, nonce: str) -> bytes:
        """Return a new noise's first chain key, durable before this returns."""
        ...

    async def chain(self, stream: str, epoch: int, nonce: str) -> tuple[int, bytes] | None:
        """Return the first page that can still be read and its chain key; None where the key is lost."""
        ...

    async def spend(self, stream: str, epoch: int, nonce: str, pages: int) -> None:
        """Destroy what the first ``pages`` pages could be read with."""
        ...

    async def discard(self, stream: str, epoch: int, nonce: str) -> None:
        """Destroy the keys of all epochs up to this one, but not those of its own noise."""
        ...


class DeadLetters(Protocol):
    """Where refused records go. A letter is known by its partition, position and stream."""

    async def write(self, refusals: Sequence[Refusal], stream: str | None = None) -> int:
        """Write durably, before the apply that passes them, the letters that were not written lately.

        Args: stream, which refused them; None: the source, which could not decode them for any stream.
        Returns: how many letters were written now.
        """
        ...
