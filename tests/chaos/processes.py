"""The deployment as processes: a broker, a Redis, workers and an API, each of which may be hit."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from deploy.kafka import broker
from deploy.ports import free_port
from stream_app.state.embedded import EmbeddedRedis
from tests.simulator.checks import Broken

STREAM, TOPIC, RELEASES = "visits", "visits", "releases"
GRACE_S = 8
CONFIGURATION = """
redis: {{url: "{url}", api_url: "{api_url}"}}
state: {{dir: "{state}"}}
secrets: {{key_file: "{key_file}"}}
api: {{port: {port}}}
publish_every: 500ms
kafka: {{bootstrap_servers: "{servers}", group: chaos}}
outputs: [{{stream: {stream}, topic: {releases}}}]
streams:
  {stream}:
    source: {{topic: {topic}, format: json}}
    time: {{field: at, format: ms, bin: 1s, grace: {grace_s}s, epoch: 60s}}
    privacy: {{epsilon: 1000000000, not_private: true}}
    late: next_bin
"""


class Process:
    """One ``stream-app`` command that is started again whenever it ends, as a supervisor does."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        self.ends = 0  # by itself
        self._command = [sys.executable, "-m", "stream_app", *command]
        self._log = folder / f"{name}.log"
        self._folder = folder
        self._process = self._start()
        self._lock = threading.Lock()
        self._waking: threading.Timer | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self._folder)

    def hit(self, signal_number: int) -> None:
        """Send a signal to the process."""
        with self._lock:
            self._process.send_signal(signal_number)

    def freeze(self, seconds: float) -> None:
        """Stop the process where it is, and let it go on later."""
        self.hit(signal.SIGSTOP)
        self._waking = threading.Timer(seconds, self.hit, [signal.SIGCONT])
        self._waking.start()

    def await_waking(self) -> None:
        """Return when the process is not frozen."""
        if self._waking is not None:
            self._waking.join()

    def start_again(self, signal_number: int, down_s: float) -> None:
        """End the process with a signal; start another one later."""
        with self._lock:
            # A frozen process takes no SIGTERM; whoever ends it wakes it.
            self._process.send_signal(signal_number)
            self._process.send_signal(signal.SIGCONT)
            try:
                self._process.wait(120)
            except subprocess.TimeoutExpired:
                self._process.kill()
                raise Broken(f"{self.name} did not end within 30 s of signal {signal_number}") from None
            time.sleep(down_s)
            self._process = self._start()

    def watch(self) -> None:
        """Start it again if it ended by itself."""
        if self._lock.acquire(blocking=False):
            try:
                if self._process.poll() is not None:
                    self.ends += 1
                    self._process = self._start()
            finally:
                self._lock.release()

    def close(self) -> None:
        """End it for good."""
        if self._waking is not None:
            self._waking.cancel()
        with self._lock:
            self._process.kill()
            self._process.wait(90)

    def last_words(self) -> str:
        """Return the end of what it has printed."""
        return self._log.read_text(errors="replace")[-1_500:]


class Deployment:
    """All processes, in one folder."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder = folder
        self.port = free_port()
        self.broker = broker.start(folder / "kafka")
        self.redis = EmbeddedRedis(folder / "redis")
        self.redis.start()
        self._workers = workers
        self.workers: list[Process] = []
        self._backups: list[Path] = []

    @property
    def servers(self) -> str:
        """Where the broker listens."""
        return self.broker.bootstrap_servers

    def start(self) -> None:
        """Start the workers, as if each had a machine of its own, and the API."""
        key_file = self.folder / "noise.key"
        key_file.touch(0o600)
        key_file.write_bytes(base64.b64encode(bytes(range(32))))
        for number in range(self._workers):
            self.workers.append(self._command(f"worker{number}", "worker"))
        self.workers.append(self._command("api", "api"))

    def _command(self, name: str, command: str) -> Process:
        configuration = self.folder / f"{name}.yaml"
        configuration.write_text(
            CONFIGURATION.format(
                url=self.redis.worker_url,
                api_url=self.redis.api_url,
                state=self.folder / f"state-{name}",
                key_file=self.folder / "noise.key",
                port=self.port,
                servers=self.servers,
                stream=STREAM,
                topic=TOPIC,
                releases=RELEASES,
                grace_s=GRACE_S,
            )
        )
        return Process(name, [command, "--config", str(configuration)], self.folder)

    def empty_redis(self, down_s: float) -> None:
        """kill -9 Redis and start it again without what it knew."""
        for file in self._kill_redis():
            _remove(file)
        time.sleep(down_s)
        self.redis.restart()

    def _kill_redis(self) -> list[Path]:
        """kill -9 Redis; return the files that it wrote."""
        pid = self.redis.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        _until(lambda: not self.redis.running, "redis is gone")
        return [*(self.folder / "redis").glob("appendonly*")]

    def restart_redis(self, down_s: float, restore: float | None = None) -> None:
        """kill -9 Redis and start it again; with ``restore`` in [0, 1), over one of its older files."""
        files = self._kill_redis()
        if restore is not None and self._backups:
            # Never the newest: that would only be a restart.
            backup = self._backups[int(restore * max(1, len(self._backups) - 1))]
            for file in files:
                _remove(file)
            for file in backup.iterdir():
                _copy(file, self.folder / "redis" / file.name)
        else:
            backup = self.folder / f"backup{len(self._backups)}"
            backup.mkdir()
            for file in files:
                _copy(file, backup / file.name)
            self._backups.append(backup)
        time.sleep(down_s)
        self.redis.restart()

    def restart_broker(self, signal_number: int, down_s: float) -> None:
        """End the broker with a signal and start it again over its data."""
        self.broker.stop(signal_number)
        time.sleep(down_s)
        self.broker = broker.start(self.folder / "kafka")

    def watch(self) -> None:
        """Start again what has ended by itself."""
        for process in self.workers:
            process.watch()

    def close(self) -> None:
        """Leave nothing behind."""
        for process in self.workers:
            process.close()
        self.redis.stop()
        self.broker.stop(signal.SIGKILL)


def _until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Broken(f"waited {seconds:.0f} s until {what}")
        time.sleep(0.02)


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
