"""Files of the state directory that survive a power failure: whole files or none, whole lines or none."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stream_app.ports import OperatorError

log = logging.getLogger(__name__)

_OWNER_ONLY = 0o600
_OF_OTHERS = 0o077
_LOOK_BACK_BYTES = 1 << 16
_LOOK_AGAIN_S = 0.01
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_LEAST_FREE_BYTES = 1 << 20  # with less, a server may not be able to write


class NoRoomError(OSError):
    """A disk is full. Its text names the directory."""

    def __str__(self) -> str:
        return str(self.strerror)


@contextmanager
def naming_full_disk(directory: Path) -> Iterator[None]:
    """Name a directory in the error if its disk is full. Raises: NoRoomError; any other OSError unchanged."""
    try:
        yield
    except OSError as failure:
        if failure.errno not in _NO_ROOM:
            raise
        said = f"{directory}: no room is left on its disk ({failure.strerror}); make room there"
        raise NoRoomError(failure.errno, said) from None


def room_to_make(directory: Path) -> str:
    """Return words that ask for room if the disk of a directory is full; empty if it is not."""
    if not directory.is_dir() or shutil.disk_usage(directory).free >= _LEAST_FREE_BYTES:
        return ""
    return f"{directory}: no room is left on its disk; make room there"


def secret_directory(path: Path) -> Path:
    """Make a directory and its missing parents, which only their owner may enter; return the directory.

    ``mkdir(parents=True)`` would make the parents with the mode of the umask, open to others.
    """
    for above in reversed(path.parents):
        if not above.exists():
            above.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def state_directory(key: str, path: Path) -> Path:
    """Make a directory for secrets, or close an existing directory to others; return the directory.

    Args: key, the configuration key that names it.
    Raises: OperatorError if it cannot be used, or others may read it and this user cannot change that.
    """
    check_directory(key, path)
    try:
        secret_directory(path)
    except OSError as failure:
        raise OperatorError(f"{key}: {path} cannot be made: {failure.strerror}; name another one") from None
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OF_OTHERS:
        try:
            path.chmod(mode & ~_OF_OTHERS)
        except OSError:
            raise OperatorError(
                f"{key}: {path} holds secrets and others may enter it (mode {mode:o}), which this user "
                "cannot change; name a directory inside it, which is then made with mode 700"
            ) from None
        log.warning(
            "%s: others could enter %s (mode %o), which holds secrets; its mode is %o now, but copies that "
            "they made before remain",
            *(key, path, mode, mode & ~_OF_OTHERS),
        )
    return path


def check_directory(key: str, path: Path) -> None:
    """Check that a path is, or can become, a directory that this user may write to; change nothing.

    Raises: OperatorError.
    """
    nearest = next(above for above in (path, *path.parents) if above.exists() or above.is_symlink())
    if not nearest.is_dir():
        raise OperatorError(f"{key}: {nearest} is not a directory; name another place, or move the file away")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OperatorError(f"{key}: {nearest} cannot be written by this user; name another place")


def write_durably(path: Path, parts: Iterable[bytes]) -> None:
    """Write a whole file, readable by its owner only; on failure the old file stays."""
    with naming_full_disk(path.parent):
        secret_directory(path.parent)
        unfinished = path.with_name(f"{path.name}.unfinished")
        unfinished.unlink(missing_ok=True)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY)
        with open(descriptor, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync_directory(path.parent)


def version_of(file: Path) -> tuple[int, ...] | None:
    """Return values that change with a file's content; None without a file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns, status.st_size


def locked(descriptor: int) -> bool:
    """Lock an open file until it is closed; return False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def waited_for(descriptor: int) -> Iterator[None]:
    """Hold the lock of an open file during the block, after waiting for another process that holds it."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


class LineLog:
    """A file of lines that only grows; lines are on the disk when ``append`` returns.

    A last line that a crash left incomplete is removed when the file is opened, and after a failed append.
    ``size`` is the size of the file in bytes.

    Args: patience_s, how long to wait for another process that has the file open.
    Raises: OperatorError if another process keeps it open for longer, or it cannot be opened.
    """

    def __init__(self, path: Path, patience_s: float = 0.0) -> None:
        self.path = path
        try:
            secret_directory(path.parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, _OWNER_ONLY)
            deadline_s = time.monotonic() + patience_s
            try:
                while not locked(self._descriptor):
                    if time.monotonic() >= deadline_s:
                        raise OperatorError(f"{path}: another process writes to it; stop that one first")
                    time.sleep(_LOOK_AGAIN_S)
            except BaseException:
                self.close()
                raise
        except OSError as failure:
            remedy = "make room on its disk" if failure.errno in _NO_ROOM else "check that this user may"
            raise OperatorError(f"{path}: cannot be opened: {failure.strerror}; {remedy}") from None
        self.size = os.fstat(self._descriptor).st_size
        self._cut_torn_line()
        sync_directory(path.parent)

    def append(self, lines: Iterable[bytes]) -> None:
        """Write lines durably, all of them or none. Args: lines, without line ends.

        Raises: OSError if the disk refused; the file is then unchanged.
        """
        data = b"".join(line + b"\n" for line in lines)
        left = memoryview(data)
        with naming_full_disk(self.path.parent):
            try:
                while left:
                    left = left[os.write(self._descriptor, left) :]
                os.fsync(self._descriptor)
            except OSError:
                os.ftruncate(self._descriptor, self.size)
                raise
        self.size += len(data)

    def lines(self) -> Iterator[bytes]:
        """Yield every line, without its line end."""
        with self.path.open("rb") as file:
            for line in file:
                yield line.rstrip(b"\n")

    def last_line(self) -> bytes | None:
        """Return the last line, without its line end; None for an empty file."""
        if self.size == 0:
            return None
        start = self._after_line_end_before(self.size - 1)
        return os.pread(self._descriptor, self.size - 1 - start, start)

    def close(self) -> None:
        """Close the file, so that another process can write."""
        os.close(self._descriptor)

    def _cut_torn_line(self) -> None:
        whole = self._after_line_end_before(self.size)
        if whole != self.size:
            os.ftruncate(self._descriptor, whole)
            os.fsync(self._descriptor)
            self.size = whole

    def _after_line_end_before(self, stop: int) -> int:
        """Return the position after the last line end before ``stop``; 0 if there is none."""
        while stop > 0:
            start = max(stop - _LOOK_BACK_BYTES, 0)
            line_end = os.pread(self._descriptor, stop - start, start).rfind(b"\n")
            if line_end >= 0:
                return start + line_end + 1
            stop = start
        return 0


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
