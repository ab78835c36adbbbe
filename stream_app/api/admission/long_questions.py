"""A separate process for long computations, which in a thread would slow down the event loop.

The process runs at low priority. It computes pure functions of released values and public arguments. It keeps
a copy of each view, and each question contains the rows that the copy lacks. The server starts it, before its
first question, and it ends with the service, even if the service is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
import queue
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from dphist.arrays import Int64Array
from stream_app.core.answers.answered import Missing
from stream_app.core.answers.labels import Labels
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.visible import visible_bins
from stream_app.core.budget import Left
from stream_app.core.promise import Statement
from stream_app.core.records import PublicState

Answer = TypeVar("Answer")
Key = tuple[Any, ...]
_MODULE = "stream_app.api.admission.long_questions_process"


@dataclass(frozen=True, slots=True)
class Growth:
    """The rows and facts that a copy needs to equal its view.

    Args:
        whole: whether the copy begins empty.
        state: the view's state.
        statement: the privacy statement of the view's source; None if it is not known.
        labels: the words that the view's stream is shown with.
        left: the epochs that the stream's total still allows; None: it has no total.
        blocks: the rows that the copy lacks. They share the view's memory.
    """

    whole: bool
    state: PublicState
    statement: Statement | None
    labels: Labels
    left: Left | None
    blocks: tuple[tuple[Missing, Int64Array], ...]


def growth(view: StreamView, known: PublicState | None) -> Growth:
    """Return the state and rows that a copy lacks. Args: known, the copy's state; None: there is no copy.

    Cost: O(epochs), and nothing is copied.
    """
    held = {} if known is None else {one.epoch: one for one in known.epochs}
    blocks = list[tuple[Missing, Int64Array]]()
    for epoch in view.epochs:
        number, kind = epoch.record.epoch, view.kind_of(epoch.record)
        was = held.get(number)
        # An epoch that has found keys begins anew, with columns for them.
        same = known is not None and was is not None and was.found == epoch.record.found
        bins = visible_bins(was, known.visible_seq) if same and known and was else 0
        if epoch.bins == bins and same:
            continue
        for table in kind.tables:
            first = kind.rows_after(table, bins)
            rows = epoch.rows(table)[first:]
            if len(rows):
                blocks.append((Missing(number, table, first, len(rows)), rows))
    return Growth(known is None, view.shown, view.statement, view.labels, view.left, tuple(blocks))


def grown(copy: StreamView | None, growth: Growth) -> StreamView:
    """Add the growth to a copy and return it: it now equals its view. Args: copy, None if there is none."""
    if growth.whole or copy is None:
        copy = StreamView(growth.state.strategy, growth.state.earlier)
    if copy.shown != growth.state:
        copy.extend(growth.state, growth.blocks)
    copy.statement, copy.labels, copy.left = growth.statement, growth.labels, growth.left
    return copy


class ProcessEndedError(Exception):
    """The process ended before it had answered: one line with the remedy."""


class Apart:
    """Calls functions in one separate process, which ``begun`` starts, or the first call."""

    def __init__(self) -> None:
        self._process: _Process | None = None
        self._filling: dict[Key, asyncio.Task[None]] = {}

    async def fill(self, answers: dict[Key, Answer], function: Callable[..., Answer], key: Key) -> None:
        """Compute ``function(*key)`` once and put it into ``answers``, even if all readers leave meanwhile.

        Raises: what the function raises; ProcessEndedError.
        """
        if key in answers:
            return
        if key not in self._filling:
            self._filling[key] = asyncio.create_task(self._fill(answers, function, key))
        await asyncio.shield(self._filling[key])

    async def _fill(self, answers: dict[Key, Answer], function: Callable[..., Answer], key: Key) -> None:
        try:
            answers[key] = await self.of(function, *key)
        finally:
            del self._filling[key]

    async def of(self, function: Callable[..., Answer], *arguments: object) -> Answer:
        """Call a module's function in the process. Raises: what the function raises; ProcessEndedError."""
        return await _to_its_end(self.begun().ask(None, function, arguments))

    async def of_view(self, view: StreamView, function: Callable[..., Answer], *arguments: object) -> Answer:
        """Call a module's function in the process, with a copy of the view as it is now.

        Only one question about a view, or about a stream before it, may be under way.
        Raises: as ``of``.
        """
        return await _to_its_end(self.begun().ask(view, function, arguments))

    def begun(self) -> _Process:
        """Return the running process; start one if there is none."""
        if self._process is None or self._process.has_ended:
            self._process = _Process()
        return self._process

    def close(self) -> None:
        """End the process at once; open questions fail."""
        process, self._process = self._process, None
        if process is not None:
            process.end()


async def _to_its_end(computed: Future[Answer]) -> Answer:
    """Return the result. A cancelled caller waits too, so it keeps its turn while the process computes."""
    result = asyncio.wrap_future(computed)
    try:
        return await asyncio.shield(result)
    except asyncio.CancelledError:
        await asyncio.wait([result])
        raise


class _Process:
    """The process, and the state of each copy that it keeps. One thread sends, another one receives."""

    def __init__(self) -> None:
        ours, its = socket.socketpair()
        with its:
            self._child = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(its.fileno())],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._connection = Connection(ours.detach())
        self._copies: dict[str, tuple[weakref.ref[StreamView], PublicState]] = {}  # by stream
        self._numbers = itertools.count()
        self.asked: dict[int, Future[Any]] = {}
        self._outgoing: queue.SimpleQueue[tuple[object, ...] | None] = queue.SimpleQueue()
        self._is_over = False
        for work in (self._send_all, self._receive_all):
            threading.Thread(target=work, name="apart", daemon=True).start()

    @property
    def has_ended(self) -> bool:
        return self._is_over or self._child.poll() is not None

    def ask(
        self, view: StreamView | None, function: Callable[..., Answer], arguments: tuple[object, ...]
    ) -> Future[Answer]:
        """Send a question, with the rows that the copy of its view lacks."""
        number, answer = next(self._numbers), Future[Answer]()
        answer.set_running_or_notify_cancel()  # nobody can cancel it: it is computed in any case
        self.asked[number] = answer
        if self._is_over:
            self._fail_all()
        views = () if view is None else (*view.before, view.own)
        lacking = [(one.strategy.stream, self._grow(one)) for one in views]
        self._outgoing.put((number, lacking, function, arguments))
        return answer

    def _grow(self, view: StreamView) -> Growth:
        stream = view.strategy.stream
        copied, state = self._copies.get(stream, (None, None))
        found = growth(view, state if copied is not None and copied() is view else None)
        self._copies[stream] = weakref.ref(view), found.state
        return found

    def end(self) -> None:
        """End the process; questions that wait for it fail."""
        self._child.kill()
        self._outgoing.put(None)
        self._child.wait()

    def _send_all(self) -> None:
        with suppress(OSError):  # it has ended, and the other thread knows
            while (message := self._outgoing.get()) is not None:
                buffers: list[pickle.PickleBuffer] = []  # rows, which are sent without a copy
                said = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
                self._connection.send_bytes(len(buffers).to_bytes(4, "little"))
                self._connection.send_bytes(said)
                for one in buffers:
                    self._connection.send_bytes(one.raw())

    def _receive_all(self) -> None:
        with suppress(OSError, EOFError):
            while True:
                number, is_answer, result = self._connection.recv()
                answer = self.asked.pop(number)
                if is_answer:
                    answer.set_result(result)
                else:
                    answer.set_exception(result)
        self._is_over = True
        self.end()
        self._fail_all()
        self._connection.close()

    def _fail_all(self) -> None:
        with suppress(KeyError):  # both threads may be here
            while True:
                _, answer = self.asked.popitem()
                answer.set_exception(ProcessEndedError("the computing process has ended; ask again"))
