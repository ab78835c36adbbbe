"""The services of deploy's compose files as processes on loopback, with the shipped configuration files.

No container engine runs: folders of containers become folders below one folder, and every address becomes a
port of loopback. ``Shipped.changes`` holds each line that was rewritten for this, and nothing else is.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from deploy.kafka import broker, make_secrets
from deploy.ports import free_port
from tests.deployment.compose_files import merged
from tests.deployment.test_redis import DeployedRedis

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
LOOPBACK = "127.0.0.1"
END_S = 120.0
PROGRAMS = {"prometheus": "prometheus", "alertmanager": "prometheus-alertmanager"}


class Shipped:
    """The processes of one deployment.

    Args: folder, of everything that they write; secrets, what make_users.py and make_secrets.py have written;
        redis, a running store with these users.
    """

    def __init__(self, folder: Path, secrets: Path, redis: DeployedRedis) -> None:
        self.folder, self.secrets, self.redis = folder, secrets, redis
        self.services = merged("compose.yaml", "compose.secured.yaml")
        names = "kafka worker-1 worker-2 api api-operator alerts-operator prometheus alertmanager"
        self.ports = {name: free_port() for name in names.split()}
        self.changes = [f"command of redis: {' '.join(redis.command)}"]
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        make_secrets.write(secrets, LOOPBACK)

    def url(self, name: str) -> str:
        """Return where a service answers HTTP."""
        return f"http://{LOOPBACK}:{self.ports[name]}"

    def start_kafka(self) -> None:
        """Start the broker by start.sh, as its container does."""
        given = self._environment("kafka")
        there = {"HOST": LOOPBACK, "LISTEN": LOOPBACK, "PORT": str(self.ports["kafka"])}
        there |= {"CONTROLLER_PORT": str(free_port()), "JARS": str(broker.install())}
        there |= {"LOG_DIR": str(self._volume("kafka-data")), "SECRETS": str(self.secrets)}
        assert given.keys() == {*there, "JAVA_OPTIONS", "CLUSTER_ID"}
        there["CLUSTER_ID"] = given["CLUSTER_ID"].partition(":-")[2].rstrip("}")
        there["JAVA_OPTIONS"] = "-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        self.changes += [
            f"environment of kafka: {key}={value}" for key, value in there.items() if value != given[key]
        ]
        there["PATH"] = f"{Path(broker.java()).parent}:{os.environ['PATH']}"
        self._run("kafka", ["/bin/sh", str(DEPLOY / "kafka" / "start.sh")], there)

    def make_noise_key(self) -> None:
        """Run the service that makes the workers' secret."""
        service = self.services["noise-key"]
        words = [self._here("noise-key", word) for word in (*service["entrypoint"], *service["command"])]
        self._note_command("noise-key", words)
        subprocess.run(words, check=True, timeout=60)

    def configure(self, name: str, changed: Mapping[str, str]) -> None:
        """Write a service's configuration files. Args: changed, texts in them and what replaces them."""
        for volume in self.services[name]["volumes"]:
            source, target, *_ = volume.split(":")
            place = self._place(name, source, target)
            if source.startswith("./secrets/"):
                place.write_bytes((self.secrets / Path(source).name).read_bytes())
            elif source.startswith("./") and (DEPLOY / source).is_file():
                place.write_text(self._rewritten(name, DEPLOY / source, changed))

    def start(self, name: str) -> None:
        """Start a service with the command that compose.yaml gives it."""
        words = [self._here(name, word) for word in self.services[name]["command"]]
        if name not in PROGRAMS:
            self._note_command(name, self._stream_app(words))
            self._run(name, self._stream_app(words), self._environment(name))
            return
        kept = [word for word in words if not word.startswith("--web.listen-address")]
        own = [f"--web.listen-address={LOOPBACK}:{self.ports[name]}"]
        own += ["--cluster.listen-address="] if name == "alertmanager" else []
        self._note_command(name, [PROGRAMS[name], *kept, *own])
        self._run(name, [PROGRAMS[name], *kept, *own], {})

    def produce(self, events: Path, topic: str, *more: str) -> None:
        """Send the lines of a file to a topic, with the configuration and the password of a worker."""
        words = ["produce", str(events), "--topic", topic, *more]
        words += ["--config", self._here("worker-1", "/etc/private-counts/stream-app.yaml")]
        environment = {**os.environ, **self._environment("worker-1")}
        done = subprocess.run(
            self._stream_app(words), env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def check_running(self) -> None:
        """Raise if a process has ended by itself."""
        ended = {name: process.poll() for name, process in self.running.items()}
        assert set(ended.values()) == {None}, f"{ended}\n{self.said()}"

    def kill(self, name: str) -> None:
        """Kill a process, as a machine does that loses its power."""
        process = self.running.pop(name)
        process.kill()
        process.wait(END_S)

    def stop(self) -> dict[str, int]:
        """End all processes, those first that were started last; return their statuses."""
        statuses = {}
        for name in reversed(self.running):
            self.running[name].send_signal(signal.SIGTERM)
            statuses[name] = self.running[name].wait(END_S)
        self.running.clear()
        return statuses

    def close(self) -> None:
        """Kill what is left."""
        for name in list(self.running):
            self.kill(name)

    def said(self) -> str:
        """Return the last output of each process."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {path.stem}\n{path.read_text()[-2000:]}" for path in logs)

    def _note_command(self, name: str, words: list[str]) -> None:
        self.changes.append(f"command of {name}: {' '.join(words)}")

    def _run(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @staticmethod
    def _stream_app(words: list[str]) -> list[str]:
        return [sys.executable, "-m", "stream_app", *words]

    def _environment(self, name: str) -> dict[str, str]:
        """Return a service's environment: compose's own, and its files."""
        service = self.services[name]
        found: dict[str, str] = dict(service["environment"])
        for file in service["env_file"]:
            lines = (self.secrets / Path(file).name).read_text().splitlines()
            found |= dict(line.split("=", 1) for line in lines)
        return found

    def _rewritten(self, name: str, source: Path, changed: Mapping[str, str]) -> str:
        """Return the text of a configuration file with folders and addresses of this machine."""
        text = source.read_text()
        for old, new in changed.items():
            text = text.replace(old, new)
        text = self._here(name, text)
        for before, after in zip(source.read_text().splitlines(), text.splitlines(), strict=True):
            if before != after:
                self.changes.append(f"{source.name} of {name}: {before.strip()} -> {after.strip()}")
        return text

    def _here(self, name: str, text: str) -> str:
        """Return a text with the folders of a service's container replaced by folders of this machine."""
        for volume in self.services[name]["volumes"]:
            source, target, *_ = volume.split(":")
            place = str(self._place(name, source, target)).replace("\\", r"\\")
            text = re.sub(rf"(?<![\w./-]){re.escape(target)}(?![\w-])", place, text)
        return text

    def _place(self, name: str, source: str, target: str) -> Path:
        """Return where the content of a volume is: a file of one service, or a folder that services share."""
        if not source.startswith("./"):
            return self._volume(source)
        place = self.folder / name / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _volume(self, name: str) -> Path:
        place = self.folder / "volumes" / name
        place.mkdir(parents=True, exist_ok=True)
        return place
