"""The operator's metrics, for Prometheus. SECRET: lag and refused records depend on exact events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Protocol

from prometheus_client import generate_latest

from stream_app.core.counting.bins import Closing
from stream_app.core.segments.endings import Ending
from stream_app.monitoring.registry import CLOCK, KAFKA, OWN_START, REDIS, Registered
from stream_app.monitoring.shares import LateShare, RefusedShare
from stream_app.monitoring.stored_counts import StoredCounts

_ASK_MEMORY_EVERY_S = 15.0
_CELLS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000)


class Metrics(Registered):
    """All metrics of one worker.

    They count since this process began, except ``stored``, which the store holds for the stream.

    Cost: 39 series for each stream, none for its keys. A histogram would add 15 for each stream, so
        histograms are of all streams together.
    Args: wall_s, the clock in seconds since 1970 to which closings are compared.
    """

    def __init__(self, wall_s: Callable[[], float] = time.time) -> None:
        super().__init__((OWN_START, REDIS, KAFKA, CLOCK))
        self._wall_s = wall_s
        gauge, counter, histogram = self.gauge, self.counter, self.histogram
        stream, partition = ["stream"], ["source", "partition"]
        self.lag = gauge("lag", "Log that is not counted yet: records (a file: bytes)", partition)
        self.batch_seconds = histogram("batch_seconds", "From a batch read to the next read", ["source"])
        self.apply_cells = histogram("apply_cells", "Cells that one apply adds to", [], buckets=_CELLS)
        self.stopped = gauge("stopped", "1 while the stream's total allows no more epochs", stream)
        self.halted = gauge("halted", "1 while a fault of its log or its own stops the stream here", stream)
        self.generation_refused = gauge(
            "generation_refused", "1 while settings cannot begin as the stream's next generation", stream
        )
        self.closing_overdue = gauge(
            "closing_overdue_seconds", "How long the next bin could have been released by now", stream
        )
        self.release_delay = histogram(
            "release_delay_seconds", "From a release's last closing instant until it is durable", []
        )
        self.closes = gauge(
            "streams_closed_here", "Streams over a topic whose bins this worker closes now", ["source"]
        )
        self.releases = counter("releases", "Releases that the store accepted", stream)
        self.epochs_ended = counter(
            "epochs_ended", "Epochs that ended before their last bin", ["stream", "reason"]
        )
        self.bins_skipped = counter("bins_skipped", "Bins that will never be counted", stream)
        self.stored = StoredCounts()
        self.registry.register(self.stored)
        about = "Share of late records among those counted in the last 10 minutes"
        self.late_share = LateShare(gauge("late_share", about, stream))
        self.refused_share = RefusedShare()
        self.dead_letters = counter(
            "dead_letters",
            "Records that each stream refused to the dead letters; without a stream: not decodable for any",
            ["source", "stream"],
        )
        self.letters_unsent = counter(
            "dead_letters_unsent", "Letters that dead_letters.topic did not get; their files have them", []
        )
        self.clock_ahead = gauge(
            "clock_ahead_seconds", "How far the clock of Redis is ahead of this worker's", []
        )
        self.clock_doubt = gauge(
            "clock_doubt", "1 while the clocks differ so much that nothing is closed", []
        )
        server = ["server"]
        self.redis_memory = gauge("redis_memory_bytes", "Memory that Redis uses for its data", server)
        self.redis_memory_limit = gauge(
            "redis_memory_limit_bytes", "Memory that Redis may use: maxmemory, or its machine's", server
        )
        self.redis_seconds = histogram("redis_seconds", "Time of a call to the store", ["call"])
        self.redis_failures = counter("redis_failures", "Calls to the store without an answer", ["call"])
        self.redis_replies = counter("redis_replies", "What the store answered", ["call", "reply"])

    def exposition(self) -> bytes:
        """Return the text that Prometheus scrapes. SECRET."""
        return generate_latest(self.registry)

    def next_bin(self, stream: str, closing: Closing, bin: int | None) -> None:
        """Record the next bin to be released; None: there is none, so none can be overdue."""
        gauge = self.closing_overdue.labels(stream)
        if bin is None:
            gauge.set_function(lambda: 0.0)
        else:
            gauge.set_function(lambda: max(0.0, self._since(closing, bin)))

    def halt(self, streams: Iterable[str]) -> None:
        """Record exactly the streams that this worker has stopped because of a fault."""
        self.halted.clear()
        for stream in streams:
            self.halted.labels(stream).set(1)

    def start_again(self) -> None:
        """Forget the lateness that an earlier start of the loops has noted.

        The worker updates it for the streams that it runs only. A segment that has left the loops, and whose
        last bins another worker closed, would seem to be later and later.
        """
        self.closing_overdue.clear()
        self.stopped.clear()

    def clock_skew(self, ahead_s: float, in_doubt: bool) -> None:
        """Record how far the store's clock is ahead of this worker's, and whether that is too far."""
        self.clock_ahead.set(ahead_s)
        self.clock_doubt.set(in_doubt)

    def refuse_generations(self, streams: Iterable[str]) -> None:
        """Record exactly the streams, by their configured names, whose settings cannot begin."""
        self.generation_refused.clear()
        for stream in streams:
            self.generation_refused.labels(stream).set(1)

    def know(self, stream: str, bin_s: float, *, of_engine: bool = False) -> None:
        """Start a stream's counters at 0; Prometheus sees no growth in a counter that first appears as 1.

        Args: bin_s, the length of its bins in seconds; of_engine, whether its records are rows of an engine.
        """
        self.stored.know(stream, bin_s, of_engine=of_engine)
        self.late_share.know(stream)
        for ending in Ending:
            self.epochs_ended.labels(stream, ending)
        self.bins_skipped.labels(stream)

    def epoch_ended(self, stream: str, ending: Ending, skipped_bins: int) -> None:
        """Record an epoch that ended early."""
        self.epochs_ended.labels(stream, ending).inc()
        self.bins_skipped.labels(stream).inc(skipped_bins)

    def released(self, stream: str, closing: Closing, last_bin: int) -> None:
        """Record a release and its delay by the wall clock."""
        self.releases.labels(stream).inc()
        self.release_delay.observe(max(0.0, self._since(closing, last_bin)))

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Time one call to the store, and count it as failed if it raises OSError."""
        began_s = time.perf_counter()
        try:
            yield
        except OSError:
            self.redis_failures.labels(name).inc()
            raise
        finally:
            self.redis_seconds.labels(name).observe(time.perf_counter() - began_s)

    def _since(self, closing: Closing, bin: int) -> float:
        return self._wall_s() - closing.instant_us(bin) / 1e6


class Memory(Protocol):
    """The memory of one server, in bytes."""

    @property
    def used(self) -> int:
        """The memory that the data of Redis take."""

    @property
    def limit(self) -> int | None:
        """The most memory that Redis may use, if that is known."""


async def follow_memory(ask: Callable[[], Awaitable[Mapping[str, Memory]]], metrics: Metrics) -> None:
    """Ask Redis for its memory until cancelled. While it is down, the last answer is shown.

    Args: ask, for the memory of each server by its address; it may raise OSError.
    """
    while True:
        with suppress(OSError):
            found = await ask()
            for gauge in (metrics.redis_memory, metrics.redis_memory_limit):
                gauge.clear()  # of servers that take no more writes
            for server, memory in found.items():
                metrics.redis_memory.labels(server).set(memory.used)
                if memory.limit is not None:
                    metrics.redis_memory_limit.labels(server).set(memory.limit)
        await asyncio.sleep(_ASK_MEMORY_EVERY_S)
