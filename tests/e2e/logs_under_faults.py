"""A spool and a list of files are counted exactly, whichever process is killed or frozen, and whenever.

    python -m tests.e2e.logs_under_faults --faults 60 --seed 1

One ``stream-app run`` counts two logs at epsilon 1e9. Senders repeat each request until it is confirmed.
Pipes write into the same spool. A program writes files, begins new ones and compresses the old ones.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click
import httpx

from deploy.ports import free_port
from stream_app.spool import segments
from tests.e2e.service import Service, command_line, descendants, get
from tests.ending import end_all_with_this_run
from tests.patience import PATIENCE_S

CONFIGURATION = """
redis: {{url: "embedded:./redis"}}
state: {{dir: ./state}}
api: {{port: {port}}}
ingest: {{port: {ingest_port}}}
publish_every: 250ms
streams:
  pages:
    source: {{http: pages}}
    time: {{field: at, format: ms, bin: 1s, grace: 1s, epoch: 1h, max_ahead: 60s}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
  files:
    source: {{file: log-*.ndjson}}
    time: {{field: at, format: ms, bin: 1s, grace: 1s, epoch: 1h, max_ahead: 60s}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
"""
FAULTS = (
    "kill ingest",
    "kill worker",
    "kill redis",
    "freeze ingest",
    "freeze worker",
    "kill pipe",
    "kill all",
)
_WORDS = {"ingest": "stream_app.shell.child ingest", "worker": "shell.child worker", "redis": "redis-server"}


def line(name: str) -> str:
    """Return one event, now, with a name."""
    return json.dumps({"at": int(time.time() * 1000), "name": name}) + "\n"


class Traffic:
    """Everything that is written, in threads, until ``stop``; and what the logs must then hold."""

    def __init__(self, folder: Path, ingest_port: int, seed: int) -> None:
        self.confirmed: list[str] = []  # names of events that must be in the spool, once each
        self.files_written = 0
        self.pipe: subprocess.Popen[str] | None = None
        self._folder, self._seed = folder, seed
        self._url = f"http://127.0.0.1:{ingest_port}/v1/ingest/pages"
        self._over = threading.Event()
        works: list[Callable[[random.Random], None]] = [
            self._send,
            self._send,
            self._write_pipes,
            self._write_files,
        ]
        self._threads = [
            threading.Thread(target=work, args=(random.Random(f"{seed} {number}"),), daemon=True)
            for number, work in enumerate(works)
        ]

    def start(self) -> None:
        """Begin to write."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End each request and each file that was begun."""
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def _send(self, random_: random.Random) -> None:
        sender, number = f"{random_.random()}", 0
        with httpx.Client(timeout=5) as client:
            while not self._over.is_set():
                names = [f"{sender}-{number}-{one}" for one in range(random_.randint(1, 20))]
                body = "".join(map(line, names))
                self._until_confirmed(client, body, f"{sender}-{number}")
                self.confirmed += names
                number += 1
                time.sleep(random_.random() * 0.05)

    def _until_confirmed(self, client: httpx.Client, body: str, key: str) -> None:
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

    def _write_pipes(self, random_: random.Random) -> None:
        number = 0
        command = [sys.executable, "-m", "stream_app", "ingest", "--config", "app.yaml", "--stdin", "pages"]
        while not self._over.is_set():
            names = [f"pipe-{number}-{one}" for one in range(200)]
            self.pipe = subprocess.Popen(
                command, cwd=self._folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
            )
            assert self.pipe.stdin is not None
            try:
                for first in range(0, 200, 20):
                    self.pipe.stdin.writelines(map(line, names[first : first + 20]))
                    self.pipe.stdin.flush()
                    time.sleep(random_.random() * 0.1)
            except BrokenPipeError:
                pass
            with suppress(BrokenPipeError):
                self.pipe.stdin.close()
            if self.pipe.wait(PATIENCE_S) == 0:
                self.confirmed += names
            number += 1

    def _write_files(self, random_: random.Random) -> None:
        number = 1
        while not self._over.is_set():
            path = self._folder / f"log-{number:05}.ndjson"
            with path.open("a", buffering=1) as file:
                for _ in range(random_.randint(0, 60)):
                    file.write(line("file"))
                    self.files_written += 1
                    time.sleep(random_.random() * 0.03)
            before = self._folder / f"log-{number - 1:05}.ndjson"
            if random_.random() < 0.5 and before.exists():
                before.with_suffix(".ndjson.gz").write_bytes(gzip.compress(before.read_bytes()))
                before.unlink()
            number += 1


class Faults:
    """Kills and freezes processes of a running service. Args: start, starts the service again."""

    def __init__(self, service: Service, traffic: Traffic, start: Callable[[], Service]) -> None:
        self.service, self._traffic, self._start = service, traffic, start

    def happen(self, fault: str, random_: random.Random) -> None:
        """Let one fault happen."""
        what, _, whom = fault.partition(" ")
        if whom == "all":
            self.service.kill_everything()
            self.service.close()
            self.service = self._start()
        elif whom == "pipe":
            if self._traffic.pipe is not None:
                self._traffic.pipe.kill()
        elif what == "kill":
            self.service.kill_child(_WORDS[whom])
        else:
            for pid in descendants(self.service.process.pid):
                if _WORDS[whom] in command_line(pid):
                    with suppress(ProcessLookupError):  # it has just ended
                        os.kill(pid, signal.SIGSTOP)
                        time.sleep(random_.uniform(0.2, 2.5))
                        os.kill(pid, signal.SIGCONT)
                    break


def run(folder: Path, faults: int, seed: int, tell: Callable[[str], None] = lambda _: None) -> str:
    """Run a schedule of faults, recount both logs and compare; return a summary."""
    port, ingest_port, random_ = free_port(), free_port(), random.Random(seed)
    (folder / "app.yaml").write_text(CONFIGURATION.format(port=port, ingest_port=ingest_port))
    (folder / "log-00000.ndjson").touch()

    def start() -> Service:
        return Service(["run", "--config", "app.yaml"], folder)

    traffic = Traffic(folder, ingest_port, seed)
    happening = Faults(start(), traffic, start)
    happening.service.until("bins closed")
    traffic.start()
    order = [*random_.sample(FAULTS, len(FAULTS)), *random_.choices(FAULTS, k=faults)][:faults]
    for number, fault in enumerate(order):
        tell(f"fault {number + 1}: {fault}")
        happening.happen(fault, random_)
        time.sleep(random_.uniform(0.3, 1.5))
    traffic.stop()
    with happening.service as service:
        stored = [json.loads(text)["name"] for text in spooled(folder / "spool/pages")]
        twice = [name for name, count in Counter(stored).items() if count > 1]
        assert not twice, f"seed {seed}: stored twice: {twice[:5]}"
        lost = set(traffic.confirmed) - set(stored)
        assert not lost, f"seed {seed}: confirmed and not stored: {sorted(lost)[:5]}"
        expected = {"pages": len(stored), "files": traffic.files_written}
        service.until_true(lambda: counted(port) == expected, f"{expected} are counted")
        time.sleep(1.5)
        assert counted(port) == expected
        assert service.interrupt() == 0
    arrived, written = expected.values()
    return f"seed {seed}: {faults} faults, {arrived:,} events over HTTP and pipes, {written:,} in files"


def spooled(directory: Path) -> list[bytes]:
    """Return all records of a spool."""
    return b"".join(segment.records.read_bytes() for segment in segments(directory)).splitlines()


def counted(port: int) -> dict[str, int]:
    """Return the released count of each stream; nothing while the API starts."""
    found = {}
    with contextlib.suppress(httpx.TransportError, AssertionError):  # no answer yet, or 404
        for name in ("pages", "files"):
            stream = get(port, f"/v1/streams/{name}")
            has_rows = stream["released_until"] is not None
            found[name] = round(get(port, f"/v1/streams/{name}/count")["value"]) if has_rows else 0
    return found


@click.command()
@click.option("--faults", default=60, show_default=True, help="How many faults.")
@click.option("--seed", type=int, default=None, help="Which schedule; drawn and printed if not given.")
def main(faults: int, seed: int | None) -> None:
    """Run a schedule of faults on real processes."""
    seed = secrets.randbelow(10**6) if seed is None else seed
    with tempfile.TemporaryDirectory(prefix="logs-") as name:
        click.echo(f"seed {seed}")
        click.echo(run(Path(name), faults, seed, click.echo))


if __name__ == "__main__":
    end_all_with_this_run()
    main()
