"""Logs beside the topic: a spool and a list of files, which one more worker counts; their own faults.

Senders repeat each request until it is confirmed. A program writes files, begins new ones and compresses the
old ones.
"""

from __future__ import annotations

import gzip
import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import httpx

from tests.chaos.collector import released_bins
from tests.chaos.processes import GRACE_S, POSTED, ROTATED, Deployment
from tests.chaos.traffic import BIN_MS
from tests.patience import PATIENCE_S
from tests.simulator.checks import Broken

EVERY_STEPS = 4  # every fourth fault is followed by one of these
FROZEN_S = 3.0  # at most: what is sent meanwhile must arrive within the grace
_SENDERS = 2
_PAUSE_S = 0.2


class LogFault(StrEnum):
    """What the run does to the processes of these logs."""

    KILL_LISTENER = "kill -9 listener"
    FREEZE_LISTENER = "freeze listener"
    KILL_LOG_WORKER = "kill -9 log worker"
    FREEZE_LOG_WORKER = "freeze log worker"


@dataclass(frozen=True, slots=True)
class LogStep:
    """One of these faults. Args: down_s, how long the process is gone or frozen."""

    fault: LogFault
    down_s: float

    def strike(self, deployment: Deployment) -> None:
        """Let it happen."""
        is_listener = self.fault in (LogFault.KILL_LISTENER, LogFault.FREEZE_LISTENER)
        process = deployment.listener if is_listener else deployment.log_worker
        assert process is not None
        if self.fault in (LogFault.FREEZE_LISTENER, LogFault.FREEZE_LOG_WORKER):
            process.freeze(self.down_s)
        else:
            process.await_waking()
            process.start_again(signal.SIGKILL, self.down_s / 3)


def draw_log_steps(seed: int) -> Iterator[LogStep | None]:
    """Yield what follows each fault: mostly nothing. Every kind comes once early."""
    rng = random.Random(f"logs {seed}")
    first = list(LogFault)
    rng.shuffle(first)
    while True:
        yield from [None] * (EVERY_STEPS - 1)
        yield LogStep(first.pop() if first else rng.choice(list(LogFault)), rng.uniform(0.1, FROZEN_S))


class LogTraffic:
    """Writes events dated now to both logs, and keeps in which bins they must count.

    Args: folder, of the list of files; port, of the listener.
    """

    def __init__(self, folder: Path, port: int, seed: int) -> None:
        self.posted, self.late, self.rotated = Counter[int](), Counter[int](), Counter[int]()
        self._folder, self._url = folder, f"http://127.0.0.1:{port}/v1/ingest/{POSTED}"
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        works: list[Callable[[random.Random], None]] = [*[self._send] * _SENDERS, self._write]
        self._threads = [
            threading.Thread(target=self._until_ended, args=(work, random.Random(f"{seed} {n}")), daemon=True)
            for n, work in enumerate(works)
        ]

    def start(self) -> None:
        """Begin to write."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """End each request and file that was begun."""
        self._ended.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self.check()

    def check(self) -> None:
        """Check that everything could be written. Raises: what went wrong."""
        if self._failure is not None:
            raise self._failure

    def compare(self, rows: Mapping[str, Mapping[int, bytes]]) -> dict[str, int]:
        """Compare released bins with what was written; return how much each stream counted. Raises: Broken.

        A request that was confirmed only after its bin may have closed may be late, or not: a late event is
        dropped.
        """
        posted, rotated = (released_bins(dict(rows[stream])) for stream in (POSTED, ROTATED))
        self._compare(POSTED, posted, self.posted, self.late)
        self._compare(ROTATED, rotated, self.rotated, Counter())
        if 10 * self.late.total() > self.posted.total():
            raise Broken(f"{self.late.total()} of {self.posted.total()} posted events may be late")
        return {POSTED: posted.total(), ROTATED: rotated.total()}

    def _compare(
        self, stream: str, released: Counter[int], on_time: Counter[int], late: Counter[int]
    ) -> None:
        wrong = {
            bin: (found, on_time[bin], late[bin])
            for bin, found in released.items()
            if not on_time[bin] <= found <= on_time[bin] + late[bin]
        }
        if wrong:
            raise Broken(f"{stream}: bins (released, written on time, perhaps late) differ: {wrong}")
        if missing := [bin for bin in on_time if bin > min(released) and bin not in released]:
            raise Broken(f"{stream}: bins {missing} hold events and were never released")
        if not released.total():
            raise Broken(f"{stream} has counted nothing")

    def _until_ended(self, work: Callable[[random.Random], None], rng: random.Random) -> None:
        try:
            work(rng)
        except BaseException as failure:  # raised in ``check``
            self._failure = failure

    def _send(self, rng: random.Random) -> None:
        sender, number = f"{rng.random()}", 0
        with httpx.Client(timeout=5) as client:
            while not self._ended.is_set():
                number += 1
                times_ms = [int(time.time() * 1000)] * rng.randint(1, 8)
                body = b"".join(_line(at_ms, f"{sender} {number} {n}") for n, at_ms in enumerate(times_ms))
                self._until_confirmed(client, body, f"{sender}-{number}")
                is_late = time.time() > _closes_s(times_ms[0] // BIN_MS) - 1.0
                (self.late if is_late else self.posted).update(at_ms // BIN_MS for at_ms in times_ms)
                if rng.random() < 0.1:  # as if the answer had been lost
                    self._until_confirmed(client, body, f"{sender}-{number}")
                time.sleep(rng.random() * _PAUSE_S)

    def _until_confirmed(self, client: httpx.Client, body: bytes, key: str) -> None:
        while True:
            try:
                answer = client.post(self._url, content=body, headers={"Idempotency-Key": key})
            except httpx.HTTPError:
                time.sleep(0.05)
                continue
            if answer.status_code == 200:
                return
            assert answer.status_code in (408, 429, 503), answer.text
            time.sleep(0.05)

    def _write(self, rng: random.Random) -> None:
        """Write files one after the other, and compress the one before some of them."""
        number = 0
        while not self._ended.is_set():
            number += 1
            path = self._folder / f"log-{number:05}.ndjson"
            with path.open("ab", buffering=0) as file:
                for n in range(rng.randint(0, 60)):
                    at_ms = int(time.time() * 1000)
                    file.write(_line(at_ms, f"{number} {n}"))
                    self.rotated[at_ms // BIN_MS] += 1
                    time.sleep(rng.random() * _PAUSE_S)
            before = self._folder / f"log-{number - 1:05}.ndjson"
            if rng.random() < 0.5 and before.exists():
                packed = before.with_suffix(".part")
                packed.write_bytes(gzip.compress(before.read_bytes()))
                packed.rename(before.with_suffix(".ndjson.gz"))
                before.unlink()


def _line(at_ms: int, name: str) -> bytes:
    return json.dumps({"at": at_ms, "name": name}).encode() + b"\n"


def _closes_s(bin: int) -> float:
    """Return when a bin closes, in seconds since 1970."""
    return (bin + 1) * BIN_MS / 1000 + GRACE_S
