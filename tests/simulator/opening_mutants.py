"""Mutants that open a wrong epoch after the store was set back. The simulator must catch each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stream_app.core.records import EpochRecord, LedgerEntry, Reply
from stream_app.loops import next_epoch, opening
from tests.models.memory import MemoryStore
from tests.simulator.pipeline import Pipeline


def _as_if_none_was_lost(
    strategy: Any, start: Any, ledger: Sequence[LedgerEntry], outside: Sequence[LedgerEntry], found: Any
) -> EpochRecord:
    return _as_reserved(strategy, start, [replace(entry, lost=False) for entry in ledger], outside, found)


class LostEpochOpenedAgain(Pipeline):
    """The next epoch takes the number of an epoch that the store has lost."""

    wrong = ((opening, "as_reserved", _as_if_none_was_lost),)


def _is_late_enough(start: Any, bin: int) -> bool:
    return bool(start.is_first or start.earliest_bin <= bin)


class LateReservationTakenUp(Pipeline):
    """The next epoch begins where one was reserved that the store has lost, and leaves out bins before."""

    class store(MemoryStore):
        """A store that keeps no marks of loss."""

        async def reserve(self, entry: LedgerEntry, after: int | None = None) -> Reply:
            """Keep a lost epoch like one that is still to be opened."""
            return await super().reserve(replace(entry, lost=False), after)

    wrong = ((next_epoch.Start, "may_begin_at", _is_late_enough),)


_as_reserved = next_epoch.as_reserved
