"""The interface of the API to the store: a reader of visible releases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dphist.arrays import Int64Array
from stream_app.core.answers.answered import Missing
from stream_app.core.records import LedgerEntry, PublicState


class News(NamedTuple):
    """Rows of a stream that a reader lacked.

    Args: rows, of the chain, with their seqs; tables, the wanted rows of each table.
    """

    rows: list[tuple[int, bytes]]
    tables: list[Int64Array]


class PublicReader(Protocol):
    """Reads the data that the API may have: visible releases only."""

    async def streams(self) -> tuple[str, ...]:
        """Return the names of all opened streams, sorted."""

    async def public_state(self, stream: str) -> PublicState | None:
        """Return strategy, epochs and the visible seq, read in one step; None for an unknown stream."""

    async def visible_seqs(self, streams: Sequence[str]) -> list[int]:
        """Return the visible seq of each stream; 0 if nothing is visible."""

    async def rows(self, stream: str, after_seq: int, limit: int) -> list[tuple[int, bytes]]:
        """Return visible rows with seq > after_seq, in order."""

    async def tile_rows(
        self, stream: str, epoch: int, table: str, first: int, count: int, width: int
    ) -> Int64Array:
        """Return ``count`` visible rows of a table, starting at row ``first``, shape (count, width).

        Raises: LookupError for a stream never opened; ValueError for rows that are not visible; OSError if
            retention has removed their epoch.
        """

    async def news(
        self, stream: str, state: PublicState, after_seq: int, wanted: Sequence[Missing]
    ) -> News | None:
        """Return rows after ``after_seq`` and rows of tables, up to what a state shows, read in one step.

        Returns: None if the stream has another strategy or other epochs by now, or shows less.
        Raises: ValueError for rows of tables that the state does not show.
        """

    async def ledger(self, source: str) -> tuple[LedgerEntry, ...]:
        """Return every measurement of a source, oldest first."""

    async def alerts(self) -> tuple[dict[str, bytes], dict[str, list[str]]]:
        """Return the state of every rule, and how targets refused its last notification; both by rule."""

    async def transitions(self, stream: str) -> list[bytes]:
        """Return the public part of the last transitions of a stream's rules, oldest first."""

    async def ping(self) -> None:
        """Raise OSError if the store cannot be read."""
