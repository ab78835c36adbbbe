"""Delays a worker's announcements: readers see each from the next whole minute on.

A worker opens a generation, or marks a stream as halted, at an instant that depends on how busy it is.
Readers see it at the next whole minute, so nobody sees the instant exactly.
"""

from __future__ import annotations

import time
from collections.abc import Container, Sequence

from stream_app.core.records import LedgerEntry
from stream_app.core.segments.names import number_of
from stream_app.ports.reader import PublicReader

SHOWN_EVERY_S = 60


def _next_s() -> float:
    return (time.time() // SHOWN_EVERY_S + 1) * SHOWN_EVERY_S


class Announced:
    """A worker's announcement about a stream: readers see it from the next whole minute on."""

    def __init__(self, first: bool) -> None:
        self._known = self._shown = first
        self._from_s = 0.0

    def shown(self, known: bool) -> bool:
        """Return the announcement that readers see now. Args: known, the one in the store now."""
        if known != self._known:
            self._known, self._from_s = known, _next_s()
        if time.time() >= self._from_s:
            self._shown = known
        return self._shown


class Coming:
    """The streams and ledgers of a store, without generations that a worker has just opened.

    A generation is shown from the next whole minute on, or with its first visible row.
    Args: shown, the names of the streams that readers know.
    """

    def __init__(self, reader: PublicReader, shown: Container[str]) -> None:
        self._reader, self._shown = reader, shown
        self._from_s: dict[str, float] = {}
        self._ledgers: dict[str, _Ledger] = {}  # by source

    async def streams(self) -> list[str]:
        """Return the names of all streams that readers may know. Raises: as the reader."""
        names = await self._reader.streams()
        hidden = [name for name in names if self._is_hidden(name)]
        if hidden:
            visible = zip(hidden, await self._reader.visible_seqs(hidden), strict=True)
            hidden = [name for name, seq in visible if not seq]
        return [name for name in names if name not in hidden]

    async def ledger(self, source: str) -> tuple[LedgerEntry, ...]:
        """Return a source's ledger, without entries that only hidden generations have. Raises: as the reader.

        Guarantee: it has every epoch that has begun. It is the same object while nothing has changed.
        """
        ledger = await self._reader.ledger(source)
        if (known := self._ledgers.get(source)) is None or known.whole is not ledger:
            known = self._ledgers[source] = _Ledger(ledger)
        now_us = time.time() * 1e6
        hidden = [at for at in known.of_generations if ledger[at].start_us > now_us]
        return known.without({at for at in hidden if self._is_hidden(ledger[at].stream)})

    def _is_hidden(self, stream: str) -> bool:
        if number_of(stream) == 1 or stream in self._shown:
            return False
        return time.time() < self._from_s.setdefault(stream, _next_s())


class _Ledger:
    """A ledger, and the last part of it that was shown."""

    def __init__(self, whole: tuple[LedgerEntry, ...]) -> None:
        self.whole = self._part = whole
        self._left_out = set[int]()
        self.of_generations: Sequence[int] = [
            at for at, entry in enumerate(whole) if not entry.lost and number_of(entry.stream) > 1
        ]

    def without(self, places: set[int]) -> tuple[LedgerEntry, ...]:
        if places != self._left_out:
            self._left_out = places
            kept = (entry for at, entry in enumerate(self.whole) if at not in places)
            self._part = tuple(kept) if places else self.whole
        return self._part
