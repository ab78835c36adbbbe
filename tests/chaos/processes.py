"""The deployment as processes: a broker, a Redis, workers and an API. A fault can hit each of them."""

from __future__ import annotations

import base64
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
from redis import Redis

from deploy.kafka import broker
from deploy.ports import free_port
from stream_app.ports import OperatorError
from stream_app.state.embedded import EmbeddedRedis, find_server
from tests.chaos.found_terms import FOUND
from tests.chaos.found_terms import configuration as found_terms
from tests.chaos.side_streams import CHOSEN, PEOPLE, SALES
from tests.chaos.side_streams import CONFIGURATION as SIDE_STREAMS
from tests.formats.dumps import dump
from tests.host_clock import HostClock
from tests.patience import PATIENCE_S, eventually
from tests.simulator.checks import Broken

STREAM, TOPIC, RELEASES, LETTERS = "visits", "visits", "releases", "letters"
GRACE_S = 15  # an event that takes longer from its sender to the broker fails the run
CONFIGURATION = """
redis: {{url: "{url}", api_url: "{api_url}"}}
state: {{dir: "{state}"}}
secrets: {{key_file: "{key_file}"}}
api: {{port: {port}}}
operator: {{port: {operator_port}}}
dead_letters: {{topic: {letters}}}
{ingest}
publish_every: 500ms
kafka: {{bootstrap_servers: "{servers}", group: chaos}}
outputs: [{outputs}]
streams:
"""
TOPIC_STREAM = """
  {stream}:
    source: {{topic: {topic}, format: json}}
    time: {{field: at, format: ms, bin: 1s, grace: {grace_s}s, epoch: 60s}}
    privacy: {{epsilon: 1000000000, not_private: true}}
    late: next_bin
"""
AGAIN = 'not_private: true, accept: "measured again"'
POSTED, ROTATED = "posted", "rotated"  # a spool and a list of files, which one more worker counts
_LOG_TIME = "{{field: at, format: ms, bin: 1s, grace: {grace_s}s, epoch: 60s}}"
LOGS = f"""
  {POSTED}:
    source: {{{{http: {POSTED}}}}}
    time: {_LOG_TIME}
    privacy: {{{{epsilon: 1000000000, not_private: true}}}}
    late: drop
  {ROTATED}:
    source: {{{{file: log-*.ndjson}}}}
    time: {_LOG_TIME}
    privacy: {{{{epsilon: 1000000000, not_private: true}}}}
    late: drop
"""
APART = "apart"  # counts as the first stream; without an output topic each worker has its own witness of it
OVER_TOPIC = (STREAM, CHOSEN, SALES, PEOPLE, FOUND)
STREAMS = (*OVER_TOPIC, POSTED, ROTATED)


class Process:
    """One ``stream-app`` command."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        self.command = [sys.executable, "-m", "stream_app", *command]
        self.log = folder / f"{name}.log"
        self.folder = folder
        self.process = self._start()
        self.lock = threading.Lock()
        self.waking: threading.Timer | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.folder)

    def hit(self, signal_number: int) -> None:
        """Send a signal to the process."""
        with self.lock:
            self.process.send_signal(signal_number)

    def freeze(self, seconds: float) -> None:
        """Freeze the process (SIGSTOP), and wake it after some seconds."""
        self.hit(signal.SIGSTOP)
        self.waking = threading.Timer(seconds, self.hit, [signal.SIGCONT])
        self.waking.start()

    def await_waking(self) -> None:
        """Wait until the process is no longer frozen."""
        if self.waking is not None:
            self.waking.join()

    def start_again(self, signal_number: int, down_s: float) -> None:
        """End the process with a signal; start a new one after ``down_s`` seconds."""
        self.end(signal_number)
        time.sleep(down_s)
        self.start()

    def end(self, signal_number: int) -> None:
        """End the process with a signal."""
        with self.lock:
            # A frozen process does not react to SIGTERM, so wake it too.
            self.process.send_signal(signal_number)
            self.process.send_signal(signal.SIGCONT)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise Broken(f"{self.name} goes on {PATIENCE_S:.0f} s after signal {signal_number}") from None

    def start(self) -> None:
        """Start a new process after the old one has ended."""
        with self.lock:
            self.process = self._start()

    @property
    def status(self) -> int | None:
        """The exit status, or None while the process runs. It is read between faults."""
        return self.process.poll()

    def close(self) -> None:
        """End the process for good."""
        if self.waking is not None:
            self.waking.cancel()
        with self.lock:
            self.process.kill()
            self.process.wait(PATIENCE_S)

    def said(self) -> str:
        """Return everything that the command has printed so far, also before it was restarted."""
        return self.log.read_text(errors="replace")

    def last_words(self) -> str:
        """Return the end of what the command has printed."""
        return self.said()[-1_500:]


class Deployment:
    """All processes of a deployment, in one folder. Args: approximate, as of the stream that finds terms."""

    def __init__(self, folder: Path, workers: int, approximate: bool) -> None:
        self._found_terms = found_terms(approximate)
        self.folder = folder
        self.port, self.ingest_port = free_port(), free_port()
        self.broker = broker.start(folder / "kafka")
        self.clock = HostClock(folder)
        self.redis = EmbeddedRedis(folder / "redis", self.clock.program(find_server()))
        self.redis.start()
        self._workers = workers
        self.operator_ports: list[int] = []  # of the workers
        self.workers: list[Process] = []
        self.api: Process | None = None
        self.listener: Process | None = None
        self.log_worker: Process | None = None  # counts the spool and the list of files
        self.backups: list[Path] = []
        self.backups_made = 0

    @property
    def servers(self) -> str:
        """The broker's address."""
        return self.broker.bootstrap_servers

    def start(self) -> None:
        """Start the workers, each as if on a separate machine, the listener, and the API."""
        key_file = self.folder / "noise.key"
        key_file.touch(0o600)
        key_file.write_bytes(base64.b64encode(bytes(range(32))))
        for number in range(self._workers):
            self.workers.append(self._command(f"worker{number}", "worker", OVER_TOPIC))
        (self.folder / "log-00000.ndjson").touch()
        self.listener = self._command("listener", "ingest", (POSTED, ROTATED))
        self.log_worker = self._command("log-worker", "worker", (POSTED, ROTATED))
        self.api = self._command("api", "api", STREAMS)

    @property
    def processes(self) -> list[Process]:
        """All processes of the service that have been started."""
        others = (self.listener, self.log_worker, self.api)
        return [*self.workers, *(process for process in others if process is not None)]

    def end_logs(self) -> None:
        """End the processes of the spool and the list of files for good."""
        for process in (self.listener, self.log_worker):
            if process is not None:
                process.await_waking()
                process.end(signal.SIGTERM)
        self.listener = self.log_worker = None

    def _command(self, name: str, command: str, streams: Sequence[str]) -> Process:
        configuration = self.folder / f"{name}.yaml"
        operator_port = free_port()
        if command == "worker":
            self.operator_ports.append(operator_port)
        apart = TOPIC_STREAM.replace("{stream}", APART).replace("not_private: true", AGAIN)
        topic_streams = TOPIC_STREAM + apart + SIDE_STREAMS + self._found_terms if STREAM in streams else ""
        configuration.write_text(
            (CONFIGURATION + topic_streams + (LOGS if POSTED in streams else "")).format(
                url=self.redis.worker_url,
                api_url=self.redis.api_url,
                state=self.folder / f"state-{name}",
                key_file=self.folder / "noise.key",
                port=self.port,
                operator_port=operator_port,
                letters=LETTERS,
                ingest=f"ingest: {{port: {self.ingest_port}}}" if POSTED in streams else "",
                servers=self.servers,
                stream=STREAM,
                topic=TOPIC,
                outputs=", ".join(f"{{stream: {name}, topic: {RELEASES}}}" for name in streams),
                grace_s=GRACE_S,
            )
        )
        return Process(name, [command, "--config", str(configuration)], self.folder)

    def await_workers(self) -> None:
        """Wait until every worker runs.

        Without an output topic, the own witness of one of them has the last rows that readers saw.
        """
        for worker in self.workers:
            worker.await_waking()
        for port in self.operator_ports:
            eventually(partial(_is_ready, port), "all workers are ready")

    def empty_redis(self, down_s: float) -> None:
        """kill -9 Redis and start it again without its data."""
        for file in self._kill_redis():
            _remove(file)
        self._start_redis(down_s)

    def _start_redis(self, down_s: float) -> None:
        """Start Redis again, as often as the service does: until no child of the dead one writes its file."""
        time.sleep(down_s)

        def starts() -> bool:
            with suppress(OperatorError):
                self.redis.restart()
            return self.redis.running

        eventually(starts, "redis starts again")

    def _kill_redis(self) -> list[Path]:
        """kill -9 Redis; return the files that it wrote."""
        assert self.redis.process is not None
        self.redis.process.kill()
        eventually(lambda: not self.redis.running, "redis is gone")
        return [*(self.folder / "redis").glob("appendonly*")]

    def restart_redis(self, down_s: float, restore: float | None = None) -> None:
        """kill -9 Redis and start it again.

        Args: restore, in [0, 1), picks one of its older files to start from; None starts from its newest
            file.
        """
        files = self._kill_redis()
        if restore is not None and self.backups:
            # Never the newest of several backups: restoring it would only be a restart.
            backup = self.backups[int(restore * max(1, len(self.backups) - 1))]
            for file in files:
                _remove(file)
            for file in backup.iterdir():
                _copy(file, self.folder / "redis" / file.name)
        else:
            self._back_up()
        self._start_redis(down_s)

    def renew_backups(self) -> None:
        """Replace all backups by a new one.

        After retention, the log no longer holds the records that follow the older backups.
        """
        self.backups.clear()
        self._back_up()

    def _back_up(self) -> None:
        # While the server runs, its last command may be half written; at a start the server ignores that
        # half.
        backup = self.folder / f"backup{self.backups_made}"
        self.backups_made += 1
        backup.mkdir()
        for file in (self.folder / "redis").glob("appendonly*"):
            _copy(file, backup / file.name)
        self.backups.append(backup)

    def in_redis(self) -> list[bytes]:
        """Return a text of each key with its value."""
        with self._operator() as client:
            return [line.encode() for line in dump(client)]

    def _operator(self) -> Redis:
        return Redis.from_url(self.redis.operator_url, protocol=2)

    def redis_ahead_s(self) -> float:
        """Return how far the clock that Redis sees is ahead of the true one."""
        with self._operator() as client:
            seconds, microseconds = client.time()
        return float(seconds + microseconds / 1e6 - time.time())

    def restart_broker(self, signal_number: int, down_s: float) -> None:
        """End the broker with a signal and start it again over its data."""
        self.broker.stop(signal_number)
        time.sleep(down_s)
        self.broker = broker.start(self.folder / "kafka")

    def check(self) -> None:
        """Check that no process has ended by itself. Raises: Broken."""
        for process in self.processes:
            if process.status is not None:
                raise Broken(f"{process.name} ended with status {process.status}: {process.last_words()}")

    def close(self) -> None:
        """Stop all processes, Redis and the broker."""
        for process in self.processes:
            process.close()
        self.redis.stop()
        self.broker.stop(signal.SIGKILL)


def _is_ready(port: int) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    return False


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
