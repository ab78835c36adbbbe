"""A private server that has loaded a copy of a store, to look at the data that a restore would bring back.

A copy of a cluster is several files, one of each primary. The server then has the keys of all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from redis import Redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import RedisError
from redis.retry import Retry

from stream_app.ports import OperatorError
from stream_app.state.embedded import DIES_WITH_PARENT, answers

_BEGINS = b"REDIS", b"VALKEY"  # of every file of this kind
_ANSWERS_S = 30.0  # without an answer
_KEYS_AT_ONCE = 500


@contextmanager
def loaded_copy(files: Sequence[Path], server: Path) -> Iterator[str]:
    """Yield the URL of a server that has loaded a copy (``redis-cli --rdb``), until the block ends.

    Guarantee: the server writes nothing to disk, and only this user can reach it.
    Args: files, one of each primary of a cluster, or one; server, its executable.
    Raises: OperatorError, one line, for a file that cannot be loaded, or a slot that is in two files.
    """
    with _loaded(files[0], server) as url:
        owners: dict[int, Path] = {}  # by slot
        if len(files) > 1:
            _note_slots(url, files[0], owners)
        for file in files[1:]:
            with _loaded(file, server) as other:
                _note_slots(other, file, owners)
                _take_in(url, other, file)
        yield url


def _note_slots(url: str, file: Path, owners: dict[int, Path]) -> None:
    """Note which file has which slots. Raises: OperatorError for a slot of an earlier file."""
    with Redis.from_url(url, protocol=2) as client:
        slots = {key_slot(key) for key in client.scan_iter(count=_KEYS_AT_ONCE)}
    for slot in slots:
        if slot in owners:
            raise OperatorError(
                f"{file}: it has slot {slot}, as {owners[slot]} does; name one file of each primary of the "
                "cluster, copied while no slot moves"
            )
        owners[slot] = file


def _take_in(url: str, other: str, file: Path) -> None:
    """Copy all keys of another server into the first one, some at a time. Raises: OperatorError."""
    with Redis.from_url(url, protocol=2) as target, Redis.from_url(other, protocol=2) as source:
        found = source.scan_iter(count=_KEYS_AT_ONCE)
        while keys := list(islice(found, _KEYS_AT_ONCE)):
            reading, writing = source.pipeline(transaction=False), target.pipeline(transaction=False)
            for key in keys:
                reading.pttl(key)
                reading.dump(key)
            said = reading.execute()
            for key, left_ms, dumped in zip(keys, said[::2], said[1::2], strict=True):
                if dumped is not None:  # a lease may end meanwhile
                    writing.restore(key, max(left_ms, 0), dumped, replace=True)
            try:
                writing.execute()
            except RedisError as failure:
                raise OperatorError(f"{file}: redis-server cannot load all of it: {failure}") from None


@contextmanager
def _loaded(file: Path, server: Path) -> Iterator[str]:
    try:
        with file.open("rb") as copied:
            begins = copied.read(max(map(len, _BEGINS)))
    except OSError as failure:
        raise OperatorError(f"{file}: {failure.strerror}; name a file of redis-cli --rdb") from None
    if not begins.startswith(_BEGINS):  # a server would start empty
        raise OperatorError(f"{file}: it is no copy of a Redis; make one with redis-cli --rdb")
    with TemporaryDirectory(prefix="copy-") as place:  # its mode is 0700
        address, log = Path(place) / "redis.sock", Path(place) / "redis.log"
        own = ["--port", "0", "--unixsocket", str(address), "--logfile", str(log)]
        copy = ["--dir", str(file.absolute().parent), "--dbfilename", file.name]
        kept = ["--save", "", "--appendonly", "no"]
        dying = [sys.executable, "-I", "-S", "-c", DIES_WITH_PARENT, str(os.getpid())]
        process = subprocess.Popen(
            [*(dying if sys.platform == "linux" else []), str(server), *own, *copy, *kept],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            umask=0o077,
            start_new_session=True,
        )
        try:
            _await_loaded(process, address, file, log)
            yield f"unix://{quote(str(address))}?db=0"
        finally:
            process.kill()  # it has nothing to save
            process.wait()


def _await_loaded(process: subprocess.Popen[bytes], address: Path, file: Path, log: Path) -> None:
    with Redis(unix_socket_path=str(address), protocol=2, retry=Retry(NoBackoff(), 0)) as client:
        if not answers(client, process, _ANSWERS_S):
            raise OperatorError(
                f"{file}: redis-server cannot load it ({_reason(log)}); it is damaged, or of a newer "
                "Redis: then name that one's program with --server"
            )


def _reason(log: Path) -> str:
    """Return the server's last error before it ended, as far as its log has one."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    marked = [
        line for line in lines if " # " in line and "oO0O" not in line and "warning" not in line.lower()
    ]
    return marked[-1].partition(" # ")[2].rstrip(". ")[:200] if marked else "it did not answer"
