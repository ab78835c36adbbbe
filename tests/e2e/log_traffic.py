"""Programs that write into a spool and into a list of files while faults hit the service.

Senders repeat each request until it is confirmed, and some requests once more. Pipes write into the same
spool. A program writes files, begins new ones and compresses the old ones.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.patience import PATIENCE_S

_SENDERS = 2
_SENT_AGAIN = 0.1  # of the requests, as if the answer had been lost
_LINES_OF_A_PIPE = 200


class Confirmed(NamedTuple):
    """An event that a reply has confirmed. Attributes: confirmed_s, when the reply came."""

    name: str
    at_ms: int
    confirmed_s: float


class LogTraffic:
    """Writes events dated now, and keeps what the logs must then hold.

    Args: folder, of the list of files; url, of the spool; key, of the listener; pipe, the command that stores
        lines of standard input; pause_s, the longest pause of a program between two requests or lines.
    """

    def __init__(
        self, folder: Path, url: str, seed: int, pause_s: float, key: str = "", pipe: Sequence[str] = ()
    ) -> None:
        self.confirmed: list[Confirmed] = []
        self.written_ms: list[int] = []  # the times of the events in files
        self.duplicates = 0  # replies that say that the request was stored before
        self.pipe: subprocess.Popen[bytes] | None = None
        self.folder, self.url, self.key = folder, url, key
        self.pause_s, self.pipe_command = pause_s, pipe
        self.ended = threading.Event()
        self.failure: BaseException | None = None
        works: list[Callable[[random.Random], None]] = [self._send] * _SENDERS
        works += [self._write_files, *([self._write_pipes] if pipe else [])]
        self.threads = [
            threading.Thread(target=self._noting_failures, args=(work, random.Random(f"{seed} {n}")))
            for n, work in enumerate(works)
        ]

    def start(self) -> None:
        """Begin to write."""
        for thread in self.threads:
            thread.daemon = True
            thread.start()

    def end(self) -> None:
        """End each request and file that was begun. Raises: what went wrong."""
        self.ended.set()
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        self.check()

    def check(self) -> None:
        """Check that everything could be written. Raises: what went wrong."""
        if self.failure is not None:
            raise self.failure

    def _noting_failures(self, work: Callable[[random.Random], None], rng: random.Random) -> None:
        try:
            work(rng)
        except BaseException as failure:  # raised in ``check``
            self.failure = failure

    def _send(self, rng: random.Random) -> None:
        sender, number = f"{rng.random()}", 0
        with httpx.Client(timeout=5, verify=False) as client:
            while not self.ended.is_set():
                number += 1
                request, at_ms = f"{sender}-{number}", int(time.time() * 1000)
                names = [f"{request}-{n}" for n in range(rng.randint(1, 20))]
                body = b"".join(_line(at_ms, name) for name in names)
                self._until_confirmed(client, body, request)
                self.confirmed += [Confirmed(name, at_ms, time.time()) for name in names]
                if rng.random() < _SENT_AGAIN:
                    self._until_confirmed(client, body, request)
                time.sleep(rng.random() * self.pause_s)

    def _until_confirmed(self, client: httpx.Client, body: bytes, request: str) -> None:
        headers = {"Idempotency-Key": request} | ({"Authorization": f"Bearer {self.key}"} if self.key else {})
        while True:
            try:
                answer = client.post(self.url, content=body, headers=headers)
            except httpx.HTTPError:
                time.sleep(0.05)
                continue
            if answer.status_code == 200:
                assert answer.json()["records"] == body.count(b"\n")
                self.duplicates += answer.json()["duplicate"]
                return
            assert answer.status_code in (408, 429, 503), answer.text
            time.sleep(0.05)

    def _write_pipes(self, rng: random.Random) -> None:
        number = 0
        while not self.ended.is_set():
            number += 1
            names = [f"pipe-{number}-{n}" for n in range(_LINES_OF_A_PIPE)]
            self.pipe = subprocess.Popen(
                self.pipe_command, cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
            )
            assert self.pipe.stdin is not None
            with suppress(BrokenPipeError):
                for first in range(0, _LINES_OF_A_PIPE, 20):
                    at_ms = int(time.time() * 1000)
                    self.pipe.stdin.write(b"".join(_line(at_ms, name) for name in names[first : first + 20]))
                    self.pipe.stdin.flush()
                    time.sleep(rng.random() * 0.1)
            with suppress(BrokenPipeError):
                self.pipe.stdin.close()
            if self.pipe.wait(PATIENCE_S) == 0:
                self.confirmed += [Confirmed(name, at_ms, time.time()) for name in names]

    def _write_files(self, rng: random.Random) -> None:
        number = 0
        while not self.ended.is_set():
            number += 1
            path = self.folder / f"log-{number:05}.ndjson"
            with path.open("ab", buffering=0) as file:
                for n in range(rng.randint(0, 60)):
                    at_ms = int(time.time() * 1000)
                    file.write(_line(at_ms, f"{number} {n}"))
                    self.written_ms.append(at_ms)
                    time.sleep(rng.random() * self.pause_s)
            before = self.folder / f"log-{number - 1:05}.ndjson"
            if rng.random() < 0.5 and before.exists():
                packed = before.with_suffix(".part")
                packed.write_bytes(gzip.compress(before.read_bytes()))
                packed.rename(before.with_suffix(".ndjson.gz"))
                before.unlink()


def _line(at_ms: int, name: str) -> bytes:
    return json.dumps({"at": at_ms, "name": name}).encode() + b"\n"
