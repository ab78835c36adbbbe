"""The exact counts of a store, of keys that no list names, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dphist.arrays import Int64Array
from stream_app.core.counting.bounding import Bounds
from stream_app.core.counting.unlisted import Slots
from stream_app.core.epochs import SealedKey
from stream_app.core.records import Reply, StreamState


class ExactCounts(Protocol):
    """The part of ``Store`` about sealed counts and their keys. All of it is SECRET.

    Guarantee, Raises: those of ``Store``.
    """

    async def tally(
        self, stream: str, strategy_hash: str, bounds: Bounds, up_to_bin: int, slots: Slots | None = None
    ) -> Reply:
        """Choose the users' records that count in sealed bins up to ``up_to_bin``; add them to the cells.

        The records of each user that count in a window obey the caps (``core.counting.bounding``). With
        ``slots``, users bring keys (``core.counting.unlisted``); CONFLICT if the stream has another seq.
        Returns: DONE after a bounded part of the work (call again); ALREADY if nothing is left.
        """

    async def read_cells(self, stream: str, first_bin: int, last_bin: int, width: int) -> Int64Array:
        """Return exact counts of sealed and tallied bins, shape (bins, width). SECRET."""

    async def name_keys(
        self, stream: str, strategy_hash: str, window: int, mark: bytes, names: Sequence[SealedKey]
    ) -> list[int] | Reply:
        """Return the number of each key in a window, from 0; a new key gets the next one.

        Args: window, named by its last bin; mark, of the hashing secret.
        Returns: SEALED if a key has no number and no epoch will count the window; USER_KEY if the window has
            another hashing secret. -1 for a key that does not stay (``epochs.stays``) and has no number.
        """

    async def thin_keys(
        self, stream: str, seen: StreamState, window: int, gone: Mapping[int, Sequence[int]]
    ) -> Reply:
        """Note how often the hidden keys of a window have been halved, and delete keys that do not stay.

        Their counts in released bins and their names go; their hashes stay until the window ends.
        Args: seen, the stream as last loaded; gone, the cells of each such key, by its number.
        Returns: CONFLICT if the stream has released more than the caller saw.
        """

    async def named_keys(self, stream: str, window: int, numbers: Sequence[int]) -> list[SealedKey]:
        """Return keys by their numbers. Raises: LookupError for a number that no key has."""

    async def read_kept(
        self, stream: str, bins: Sequence[int], cells: Sequence[int]
    ) -> Sequence[Mapping[int, int]]:
        """Return, for each of these bins, the exact counts of these cells; of all cells if none is named.

        The bins are sealed and tallied. A release that names ``shown_cells`` keeps the counts of all others.
        """

    async def forget_kept(self, stream: str, epoch: int, finished: bool = False) -> Reply:
        """Delete the exact counts of released bins that are kept; CONFLICT if the epoch has not ended.

        Args: finished, whether the stream releases nothing more: then all counts, users and keys are deleted.
        """
