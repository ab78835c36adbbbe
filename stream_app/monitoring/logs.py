"""Log lines: JSON for machines, prose for a terminal, and never with a value from an event.

An unexpected error's message may quote its input (``invalid literal for int(): '...'``), so only its type and
its place in the code are logged. The messages of ``OperatorError`` and ``NoRoomError`` are safe to log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

from stream_app.durable import NoRoomError
from stream_app.ports import OperatorError

LOG_FORMAT = "STREAM_APP_LOG_FORMAT"  # "json" or "console"; by default console on a terminal
LOG_LEVEL = "STREAM_APP_LOG_LEVEL"  # a number, as the logging module counts; for child processes
PAUSES_S = (10.0, 30.0, 90.0, 270.0, 600.0)  # the last one repeats
NEWS_AFTER_S = 60.0  # after this long without a line, the next one is logged at once
_KINDS = 1_000  # remembered at most
_OWN = "stream_app"
# What a library warns of although nothing failed: another worker has joined or left.
_STEPS = ("Heartbeat failed for group %s because it is rebalancing",)
_FRAMES = 12
_STANDARD = {
    *vars(logging.makeLogRecord({})),
    "message",
    "asctime",
}  # what a record has beside its extra fields
_LIBRARIES = {
    "kafka": logging.CRITICAL,  # would log every attempt as an error; we handle its exceptions
    "httpx": logging.WARNING,  # would log every URL: the password of a registry, the schema of an event
}


@dataclass(slots=True)
class _Repeated:
    last_s: float
    next_s: float
    passed: int = 1
    unsaid: int = 0


class Repeats(logging.Filter):
    """Passes a line that is new or due again; its field ``repeated`` counts the suppressed lines.

    The service's own warnings and errors are compared by text, a library's by kind: in an outage a library
    may log a thousand lines of one kind per second. A library logs every attempt, also those that soon
    succeed, as at the first start over a new cluster. So its lines pass once their kind has come for
    ``PAUSES_S[0]``, or at once if steps are logged too; the service itself reports an outage and its
    consequences at once. A line with an error's place always passes.

    Args: libraries to which this applies, by the first part of their loggers' names.
    """

    def __init__(self, *libraries: str) -> None:
        super().__init__()
        self._libraries = libraries
        self._repeated: dict[tuple[str, str], _Repeated] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write the record."""
        kind = self._kind(record)
        if kind is None:
            return True
        verbose = logging.getLogger().isEnabledFor(logging.INFO)
        if kind[1] in _STEPS and not verbose:
            return False
        now_s, known = record.created, self._repeated.get(kind)
        if known is None or now_s - known.last_s > NEWS_AFTER_S:
            if len(self._repeated) >= _KINDS:
                self._repeated.clear()
            self._repeated[kind] = new = _Repeated(now_s, now_s + PAUSES_S[0])
            if kind[0].partition(".")[0] in self._libraries and not verbose:
                new.unsaid, new.passed = 1 + (0 if known is None else known.unsaid), 0
                return False
            _count(record, known)
            return True
        known.last_s = now_s
        if now_s < known.next_s:
            known.unsaid += 1
            return False
        _count(record, known)
        known.next_s = now_s + PAUSES_S[min(known.passed, len(PAUSES_S) - 1)]
        known.passed += 1
        return True

    def _kind(self, record: logging.LogRecord) -> tuple[str, str] | None:
        place = record.name.partition(".")[0]
        if place in self._libraries:
            return record.name, str(record.msg)
        if place == _OWN and record.levelno >= logging.WARNING and not record.exc_info:
            return record.name, record.getMessage()
        return None


def _count(record: logging.LogRecord, known: _Repeated | None) -> None:
    if known is not None and known.unsaid:
        record.repeated = known.unsaid
        known.unsaid = 0


def configure(role: str, level: int = logging.WARNING, stream: TextIO | None = None) -> None:
    """Send all log lines of this process to ``stream`` (standard error), each with its role.

    A crash is logged in the same format.
    """
    root = logging.getLogger()
    root.handlers[:] = [handler(role, stream)]
    root.setLevel(level)
    logging.captureWarnings(True)
    for name, least in _LIBRARIES.items():
        logging.getLogger(name).setLevel(least)
    log_crashes()


def log_crashes() -> None:
    """Log crashes of the process or a thread as a log line, without the error's message."""
    sys.excepthook = _log_crash
    threading.excepthook = _log_thread_crash


def dict_config(role: str, level: int = logging.WARNING) -> dict[str, Any]:
    """Return the same configuration in the form of ``logging.config``, for a framework that applies it."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"stderr": {"()": handler, "role": role}},
        "root": {"level": level, "handlers": ["stderr"]},
        "loggers": {name: {"level": least} for name, least in _LIBRARIES.items()},
    }


def handler(role: str, stream: TextIO | None = None) -> logging.Handler:
    """Return a handler that writes log lines to ``stream`` (standard error), with the process's role."""
    stream = stream or sys.stderr
    lines = logging.StreamHandler(stream)
    lines.addFilter(_name_errors)
    lines.addFilter(Repeats("aiokafka", "opentelemetry"))
    lines.setFormatter(_Lines(role, _renderer(stream)))
    return lines


def _name_errors(record: logging.LogRecord) -> bool:
    """Replace errors among a message's arguments by their types, unless their text is the service's own.

    In aiokafka messages about offsets every number is replaced by its type, because an offset counts events.
    """
    named = _named
    if record.name.startswith("aiokafka.") and "offset" in str(record.msg).lower():
        named, record.msg = _typed, str(record.msg).replace("%d", "%s")
    if isinstance(record.args, tuple):
        record.args = tuple(named(argument) for argument in record.args)
    return True


def _typed(argument: object) -> object:
    return argument if isinstance(argument, str) else type(argument).__name__


def _named(argument: object) -> object:
    # An OSError's text is the system's, or was written for the operator, like an OperatorError's.
    worded = isinstance(argument, OperatorError | OSError)
    return type(argument).__name__ if isinstance(argument, BaseException) and not worded else argument


def format_for(stream: TextIO) -> str:
    """Return "console" for a terminal, else "json", unless the environment says."""
    return os.environ.get(LOG_FORMAT) or ("console" if stream.isatty() else "json")


class _Lines(logging.Formatter):
    """Formats a record as one line with its level, its logger, its extra fields, its time and the role."""

    def __init__(self, role: str, render: Callable[[Mapping[str, Any]], str]) -> None:
        super().__init__()
        self._role, self._render = role, render

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. An exception is replaced by its type and place."""
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        said = {"event": _message(record), "level": record.levelname.lower(), "logger": record.name}
        fields = {**said, **extra, "timestamp": time.replace("+00:00", "Z")}
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else record.exc_info
        if isinstance(error, BaseException):
            fields["errors"] = list(_described(error))
        return self._render({**fields, "role": self._role})


def _message(record: logging.LogRecord) -> str:
    """Return a record's message; only the first line of asyncio's, whose later lines show an error's text."""
    message = record.getMessage()
    return message.partition("\n")[0].partition("<")[0].rstrip() if record.name == "asyncio" else message


def _renderer(stream: TextIO) -> Callable[[Mapping[str, Any]], str]:
    if format_for(stream) == "json":
        return _json
    return _in_prose


def _json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, default=_type_name)


def _in_prose(event: Mapping[str, Any]) -> str:
    """Return a log line for a person: the time, the process, the level if it matters, the words, the rest."""
    fields = {name: value for name, value in event.items() if name != "logger"}
    time, role, level = (str(fields.pop(name)) for name in ("timestamp", "role", "level"))
    said = f"{time[11:19]}Z {role}: {'' if level == 'info' else f'{level}: '}{fields.pop('event')}"
    rest = (f"{name}={json.dumps(value, default=_type_name)}" for name, value in fields.items())
    return " ".join([said, *rest])


def _described(error: BaseException) -> Iterator[dict[str, Any]]:
    """Yield an error and its causes, the latest first."""
    seen: set[int] = set()
    pending: list[BaseException] = [error]
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        facts: dict[str, Any] = {"type": type(current).__name__, "at": _places(current.__traceback__)}
        if isinstance(current, OperatorError | NoRoomError):  # both were written for the operator
            facts["says"] = str(current)
        yield facts
        if isinstance(current, BaseExceptionGroup):
            pending += current.exceptions
        cause = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        if cause is not None:
            pending.append(cause)


def _places(raised_at: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(raised_at)[-_FRAMES:]
    return [f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames]


def _log_crash(kind: type[BaseException], error: BaseException, raised_at: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    logging.getLogger("stream_app").critical("crashed", exc_info=(kind, error, raised_at))


def _log_thread_crash(crash: threading.ExceptHookArgs) -> None:
    if isinstance(crash.exc_value, asyncio.CancelledError):
        return  # a library's thread that was asked to end
    name = crash.thread.name if crash.thread is not None else "unknown"
    error = crash.exc_value or crash.exc_type()
    logging.getLogger("stream_app").critical("thread %s crashed", name, exc_info=error)


def _type_name(value: object) -> str:
    """Return the type's name for a value that is not JSON, because its repr could show anything."""
    return f"<{type(value).__name__}>"
