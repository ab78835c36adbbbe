"""Errors that a person must mend, by the streams that they stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stream_app.core.segments.names import base_of


class OperatorError(ValueError):
    """An error that only the operator can mend: one line with what, where and the remedy (status 2).

    From the loops of a log it is about this log, unless it is one of the two classes below
    (docs/decisions/0056-what-a-fault-stops.md).
    """


class WorkerError(OperatorError):
    """An error about the store, the ledger or the state directory: nothing may be counted or released."""


class OvertakenError(WorkerError):
    """Another worker began a segment elsewhere or otherwise. The worker starts again, and goes on with it."""


class StreamError(OperatorError):
    """An error about one stream; the others over its log can go on without it."""

    def __init__(self, text: str, stream: str) -> None:
        super().__init__(text)
        self.stream, self.base = stream, base_of(stream)


@contextmanager
def about(stream: str) -> Iterator[None]:
    """Raise each OperatorError of the calls inside as a ``StreamError``, unless it is about the worker."""
    try:
        yield
    except (WorkerError, StreamError):
        raise
    except OperatorError as failure:
        raise StreamError(str(failure), stream) from failure


class NothingCountedError(OperatorError):
    """A replay is complete and has counted no record. Another start would not count one either."""


class ClockDoubt(OSError):
    """Two clocks disagree and it is unknown which is right: no bin is closed until they agree."""
