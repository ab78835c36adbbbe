"""Mutants that open epochs beyond a total, or that the ledger lacks. The simulator must catch each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from stream_app.core.records import LedgerEntry, Reply
from stream_app.loops import opening, recovery
from stream_app.loops.stream import Ports, Stream
from stream_app.source_ledger import SourceLedger, TotalSpent
from tests.simulator.pipeline import Pipeline

_really_reserved = SourceLedger.reserve
_really_restored = recovery.restore_ledgers


async def _only_asked(ledger: SourceLedger, entry: LedgerEntry) -> Reply:
    if not await ledger.fits(entry):
        raise TotalSpent
    return Reply.DONE


class NothingReserved(Pipeline):
    """An epoch that fits is opened, and no entry is written."""

    wrong = ((SourceLedger, "reserve_within_total", _only_asked),)


async def _reserved_later(ledger: SourceLedger, entry: LedgerEntry, after: int | None = None) -> Reply:
    async def reserve() -> None:
        await asyncio.sleep(0.01)
        with suppress(OSError):
            await _really_reserved(ledger, entry)

    _LATER.append(asyncio.create_task(reserve()))
    return Reply.DONE


class ReservedAfterOpening(Pipeline):
    """The entry of an epoch is written a moment later, beside its opening."""

    wrong = ((SourceLedger, "reserve", _reserved_later),)


_LATER: list[asyncio.Task[None]] = []


async def _own_only(ports: Ports, measuring: Sequence[Stream]) -> None:
    await _really_restored(ports, measuring[-1:])


class OthersNotRestored(Pipeline):
    """After a loss of the store a stream puts back its own entries only."""

    wrong = ((opening, "restore_ledgers", _own_only),)


async def _not_compared(ledger: SourceLedger, entry: LedgerEntry, after: Any = None) -> Reply:
    return await _really_reserved(ledger, entry)


class OthersMeanwhileIgnored(Pipeline):
    """An entry is written although another stream has written one since the total was asked."""

    wrong = ((SourceLedger, "reserve", _not_compared),)
