"""The ledger of one stream's source: it allows a stream's first measurement and records every epoch.

A log in a group also has a ledger under its own name, with the same entries: a stream that names the log
without its group, now or years later, finds them. Entries of a group name its logs, so the group's total
includes the costs of other groups over the same logs.

A log may have other names: those of a list and of a file in it, for example. Each entry is in the ledgers of
all of them, where it names its own log, so a reader of one of these ledgers reads the others, too. The
caller decides once what one log is (``config/one_log.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from stream_app.core.budget import Total
from stream_app.core.instants import format_instant
from stream_app.core.ledger import ACCEPTED, certainly_small, check_measurement, composed, place_of
from stream_app.core.records import LedgerEntry, Reply
from stream_app.core.segments.names import key_of
from stream_app.ports import OperatorError, OutsideLedger, Store
from stream_app.ports.errors import WorkerError
from stream_app.ports.reader import PublicReader

NAMES = "logs:"  # a ledger with the first entry of each stream, which names its log; no source has this name

log = logging.getLogger(__name__)


class Ledgers(Protocol):
    """Holds ledgers by the name of a source."""

    async def ledger(self, source: str) -> tuple[LedgerEntry, ...]:
        """Return the ledger of a source."""
        ...


async def ledgers_of_all_names(
    store: Ledgers, source: str, logs: Iterable[str] = ()
) -> list[tuple[LedgerEntry, ...]]:
    """Return the ledger of a source, then the ledgers of the logs named by ``logs`` or by its entries."""
    own = await store.ledger(source)
    names = dict.fromkeys([*logs, *(entry.log for entry in own if entry.log is not None)])
    return [own, *[await store.ledger(name) for name in names if name != source]]


async def measured(
    store: Store | PublicReader, source: str, logs: Iterable[str] = ()
) -> tuple[LedgerEntry, ...]:
    """Return every measurement of a source, under all its names. Readers may know only a part of them."""
    return composed(source, await ledgers_of_all_names(store, source, logs))


class TotalSpent(Exception):
    """One more epoch would exceed the total of its stream."""


class SourceLedger:
    """The measurements of a stream's source, in the store and, if configured, in a ledger outside it.

    Args:
        accept: the operator's words that accept a second measurement of the same events.
        logs: other names under which the source has a ledger: the log's own name if it is in a group.
        outside: a copy of every entry that survives a loss of the store; None: there is none.
        total: the largest cost of the epochs together; None: no limit.
        configured: the streams whose witnesses could put back lost entries; None: all that there are.
        others: other names of the log that are known.
        find_others: returns all other names that the log has now; its argument are names that may be new.
    """

    def __init__(
        self,
        store: Store,
        accept: str | None = None,
        logs: Sequence[str] = (),
        outside: OutsideLedger | None = None,
        total: Total | None = None,
        configured: Collection[str] | None = None,
        others: Sequence[str] = (),
        find_others: Callable[[Iterable[str]], Awaitable[Sequence[str]]] | None = None,
    ) -> None:
        self._store = store
        self._accept = accept
        self._logs = tuple(logs)
        self._outside = outside
        self._total = total
        self._configured = configured
        self._others, self._find_others = others, find_others

    @property
    def counts_others(self) -> bool:
        """Whether a total limits the cost of all streams over the source together."""
        return self._total is not None and self._total.per == "source"

    def names(self, source: str) -> tuple[str, ...]:
        """Return the names of all ledgers that get an entry of this source."""
        return source, *self._logs, *self._others

    @property
    def begins_in_turn(self) -> bool:
        """Whether it matters which streams of the source began before this one.

        A stream whose measurement was accepted may begin beside others; any other may find itself refused.
        """
        return self._accept != ACCEPTED or self._total is not None

    async def outside(self, source: str) -> tuple[LedgerEntry, ...]:
        """Return a source's entries in the ledger outside the store; none if there is no such ledger."""
        if self._outside is None:
            return ()
        return tuple(entry for entry in await self._outside.entries() if entry.source == source)

    async def recall(self, source: str) -> None:
        """Put back entries that only the ledger outside the store has, of streams of other configurations.

        The streams of this configuration put back their own: their witnesses have all releases.
        Raises: OperatorError, as ``put_back``; OSError.
        """
        if self._outside is None or self._configured is None:
            return
        kept = [one for one in await self._outside.entries() if one.stream not in self._configured]
        for name in self.names(source):
            await put_back(self._store, self._outside, name, [one for one in kept if one.source == name])

    async def begin(self, new: LedgerEntry) -> Reply:
        """Reserve the first epoch of a stream, unless it would measure events again without consent.

        Guarantee: if two streams begin at the same moment, at least one finds the other.
        Raises: OperatorError, with the remedy; TotalSpent.
        """
        await self._check_not_begun(new)
        await self._has_new_names()  # its files may have come long after the start compared all logs
        await self._ask(new)
        reply = await self.reserve_within_total(new)
        if self._find_others is not None:
            await self._store.reserve(replace(new, source=NAMES, log=self._own(new.source)))
            if await self._has_new_names():
                await self.reserve(new)
        await self._ask(new)  # another worker may have begun in between: the second one is refused
        return reply

    async def _has_new_names(self) -> bool:
        """Look for other names of the log; return whether they are others than before."""
        before = self._others
        if self._find_others is not None:
            begun = [one.log or one.source for one in await self._store.ledger(NAMES)]
            self._others = await self._find_others(begun)
        return self._others != before

    async def reserve(self, entry: LedgerEntry, after: int | None = None) -> Reply:
        """Write an entry once to every ledger that it belongs to. Raises: OSError.

        Args: after, as for ``Store.reserve``.
        """
        entry = await self._as_known(entry)
        reply = await self._store.reserve(entry, after)
        if reply is not Reply.CONFLICT:
            _, *copies = self.names(entry.source)
            own = self._own(entry.source)
            await self._write([entry, *(replace(entry, source=name, log=own) for name in copies)])
        return reply

    def _own(self, source: str) -> str:
        """Return the name of the log itself."""
        return self._logs[0] if self._logs else source

    async def reserve_within_total(self, entry: LedgerEntry) -> Reply:
        """Write the entry of an epoch that is about to open, unless it would exceed the stream's total.

        Guarantee: the ledger alone decides, so a crash before or after this call opens no epoch twice. If
            streams of one source ask at the same moment, each knows the entries of those before it. Streams
            that know the log by different names may then both find the total spent; their entries stay.
        Raises: TotalSpent; OperatorError, as ``check_remembered``; OSError.
        """
        await self.check_remembered(entry.stream, entry.source)
        if self._total is None:
            return await self.reserve(entry)
        while True:
            seen = len(await self._store.ledger(entry.source))
            if not await self.fits(entry):
                raise TotalSpent
            reply = await self.reserve(entry, seen)
            if reply is not Reply.CONFLICT or len(await self._store.ledger(entry.source)) == seen:
                break
        # A stream that knows the log by another name writes another ledger first: both are there by now.
        if reply is not Reply.CONFLICT and not await self.fits(entry):
            raise TotalSpent
        return reply

    async def fits(self, entry: LedgerEntry) -> bool:
        """Return whether everything that was measured and this epoch are within the total together."""
        if self._total is None:
            return True
        known = await self._everything(entry.source)
        known.setdefault(place_of(entry), entry)
        return self._total.allows(entry.stream, known.values())

    async def check_remembered(self, stream: str, source: str) -> None:
        """Refuse a total per source that would forget streams of other configurations if the store is lost.

        Raises: OperatorError, one line.
        """
        if not self.counts_others or self._outside is not None or self._configured is None:
            return
        for entry in (await self._everything(source)).values():
            if entry.stream not in self._configured:
                raise OperatorError(
                    f"{key_of(stream, 'privacy.total')}: {source} is measured by stream "
                    f"{entry.stream}, too, which this configuration does not name, so a loss of Redis would "
                    "make the total forget its cost; write ledger: {file: ...} or {topic: ...}, or per: "
                    "stream in the total"
                )

    async def _everything(self, source: str) -> dict[tuple[str, int, str, int], LedgerEntry]:
        """Return each measurement of a source once, under all its names, and in the ledger outside."""
        _, *names = self.names(source)
        ledgers = await ledgers_of_all_names(self._store, source, names)
        known = {place_of(one): replace(one, source=source) for ledger in ledgers for one in ledger}
        if self._outside is not None:
            names = [source, *names, *(one.log for one in known.values() if one.log is not None)]
            for one in await self._outside.entries():
                if one.source in names:
                    known.setdefault(place_of(one), replace(one, source=source))
        return known

    async def _check_not_begun(self, new: LedgerEntry) -> None:
        """Refuse a stream that the ledger outside knows: the store and the witness have lost it."""
        begun = await self.outside(new.source)
        known = {(entry.stream, entry.epoch) for entry in await self._store.ledger(new.source)}
        for entry in begun:
            if entry.stream == new.stream and (entry.stream, entry.epoch) not in known:
                raise lost(entry, self._outside)

    async def _as_known(self, entry: LedgerEntry) -> LedgerEntry:
        """Return the store's entry if it differs in newer fields only; otherwise this one, with its log."""
        entry = replace(entry, log=next(iter(self._logs), None))
        for known in await self._store.ledger(entry.source):
            if (known.stream, known.epoch) != (entry.stream, entry.epoch):
                continue
            if replace(known, user=entry.user, log=entry.log, time=entry.time) == entry:
                return known
        return entry

    async def _write(self, entries: Sequence[LedgerEntry]) -> None:
        """Write entries to the store and to the ledger outside it, each once."""
        for entry in entries:
            await self._store.reserve(entry)
        if self._outside is not None:
            await self._outside.append(entries)

    async def _ask(self, new: LedgerEntry) -> None:
        if self._accept == ACCEPTED and not self._logs and not self._others:
            ledger = await self._store.ledger(new.source)
            # If all entries together cost little, the earlier ones alone cost little.
            place = place_of(new)
            if _small(ledger) and any(place_of(entry) == place for entry in ledger):
                return
        before = await self._before(new)
        try:
            check_measurement(before, new, self._accept)
        except ValueError as refusal:
            raise OperatorError(str(refusal)) from None
        if self._logs or self._others:
            # Measurements from before the log joined the group, or got another name, are part of the sum.
            await self._write(before)

    async def _before(self, new: LedgerEntry) -> tuple[LedgerEntry, ...]:
        """Return the entries that all ledgers of the source got before the stream's first entry."""
        found: dict[tuple[str, int], LedgerEntry] = {}
        _, *names = self.names(new.source)
        for ledger in await ledgers_of_all_names(self._store, new.source, names):
            for entry in ledger:
                if entry.stream == new.stream:
                    break
                if (entry.stream, entry.epoch) not in found:
                    found[entry.stream, entry.epoch] = _copy(entry, new.source)
        return tuple(found.values())


def _copy(entry: LedgerEntry, source: str) -> LedgerEntry:
    """Return an entry for the ledger of another name of its log."""
    return entry if entry.source == source else replace(entry, source=source, log=entry.log or entry.source)


async def link(store: Store, names: Sequence[str], others: Sequence[str]) -> None:
    """Copy entries between the ledgers of several names of one log, each only once.

    Args: names, of a source, the log's own name last; others, of the log. Entries that other logs share with
        these names are not copied further.
    """
    own = names[-1]
    for origin, targets in [(own, others), *((other, names) for other in others)]:
        entries = [one for one in await store.ledger(origin) if one.log in (None, origin)]
        for target in targets:
            known = set(map(place_of, await store.ledger(target)))
            for entry in entries:
                if place_of(entry) not in known:
                    await store.reserve(_copy(entry, target))


class _Small:
    """Whether the entries of a ledger certainly cost little, under one name of their log.

    Streams that begin together get the same ledger from the store, so the result is computed once.
    """

    def __init__(self) -> None:
        self._last: Sequence[LedgerEntry] = ()
        self._is_small = False

    def __call__(self, ledger: Sequence[LedgerEntry]) -> bool:
        if ledger is not self._last:
            self._is_small = all(entry.log is None for entry in ledger) and certainly_small(ledger)
            self._last = ledger
        return self._is_small


_small = _Small()


async def put_back(store: Store, outside: OutsideLedger, source: str, kept: Sequence[LedgerEntry]) -> None:
    """Copy entries that the store lacks from ``kept``, marked as lost.

    Raises: WorkerError if the store has another entry for one of these epochs.
    """
    known = set(map(place_of, await store.ledger(source)))
    for entry in kept:
        if place_of(entry) in known:
            continue
        if await store.reserve(replace(entry, lost=True)) is Reply.CONFLICT:
            raise WorkerError(
                f"{outside.name} knows another epoch {entry.epoch} of stream {entry.stream} than the store; "
                "restore the store that it belongs to, or give the stream another name"
            )
        log.warning(
            "%s knows a measurement of %s by stream %s that the store had lost; the sum keeps it",
            *(outside.name, source, entry.stream),
        )


def lost(entry: LedgerEntry, outside: OutsideLedger | None) -> OperatorError:
    """Return the error for a stream whose releases both the store and the witness have lost."""
    name = "the ledger outside the store" if outside is None else outside.name
    return OperatorError(
        f"stream {entry.stream}: {name} knows that it measured {entry.source} (epoch {entry.epoch}, from "
        f"{format_instant(entry.start_us)}), and neither the store nor the witness does; restore a "
        "copy of the store from after this epoch began, or give stream "
        f"{entry.base} another name, whose privacy.accept then says that it measures again"
    )
