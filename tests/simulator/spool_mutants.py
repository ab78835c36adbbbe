"""Mutants of a spool's listener and reader. A schedule over a spool must catch each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stream_app.receiving import spool_writer
from stream_app.receiving.known_keys import KnownKeys
from stream_app.receiving.spool_writer import SpoolWriter
from stream_app.sources import spool_log
from stream_app.spool import OpenPart
from tests.simulator.pipeline import Pipeline

SOON_US = 500_000


class _Unsynced(OpenPart):
    def sync(self) -> None:
        """Make nothing durable."""


def _nothing(*_: object) -> None:
    pass


def _changed(target: Any, name: str, by: Any) -> type[Pipeline]:
    """Return a pipeline in which one attribute is wrong."""

    class Mutant(Pipeline):
        wrong = ((target, name, by),)

    return Mutant


def _remembered_for_a_moment(keys: KnownKeys, at_us: int, now_us: int) -> bool:
    return at_us >= now_us - SOON_US


def _not_found(keys: KnownKeys, sender: str | None, key: str | None) -> None:
    """Find no stored batch."""


def _answered_first(writer: SpoolWriter, last: OpenPart, new: Any) -> None:
    """Confirm a failed write."""
    try:
        _really_written(writer, last, new)
    except OSError:
        return


_really_written: Callable[[SpoolWriter, OpenPart, Any], None] = SpoolWriter._write


# A repeated batch is stored again, because its key is not looked up, is forgotten too early, or is forgotten
# when the listener dies.
BatchStoredAgain = _changed(KnownKeys, "get", _not_found)
KeysForgottenEarly = _changed(KnownKeys, "remembers", _remembered_for_a_moment)
KeysForgottenByCrash = _changed(SpoolWriter, "_remember_all", _nothing)
# A request is confirmed before its records are on the disk, or although they never get there.
AnsweredBeforeSync = _changed(spool_writer, "OpenPart", _Unsynced)
FailedWriteConfirmed = _changed(SpoolWriter, "_write", _answered_first)
DroppedPagesTrusted = _changed(spool_writer, "_write_again", _nothing)
# The worker counts what a power failure can still take back.
CountedBeforeSync = _changed(spool_log, "OpenPart", _Unsynced)
