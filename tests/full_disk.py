"""A full disk: a small real one where this user may mount it, otherwise one that refuses each sync."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_SIZE_BYTES = 16 << 20
_FILLER = "filler"


class Disk:
    """A directory whose disk can be filled. Args: real, whether the system itself says that it is full."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch, *, real: bool) -> None:
        self.directory, self.patch, self.real = directory, patch, real

    def fill(self) -> None:
        """Leave no room."""
        if self.real:
            with (self.directory / _FILLER).open("ab", buffering=0) as filler, suppress(OSError):
                while filler.write(b"\0" * 65_536):
                    pass
            return

        def refuse(_descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        usage = shutil.disk_usage(self.directory)._replace(free=0)
        self.patch.setattr(os, "fsync", refuse)
        self.patch.setattr(os, "fdatasync", refuse)
        self.patch.setattr(shutil, "disk_usage", lambda _path: usage)

    def make_room(self) -> None:
        """Leave room again."""
        (self.directory / _FILLER).unlink(missing_ok=True)
        self.patch.undo()


@contextmanager
def small_disk(directory: Path) -> Iterator[Disk]:
    """Yield a disk that is mounted on a new directory, if this user may mount one."""
    directory.mkdir(mode=0o700)
    options = f"size={_SIZE_BYTES},mode=700"
    mounting = ["mount", "-t", "tmpfs", "-o", options, "none", str(directory)]
    mounted = subprocess.run(mounting, capture_output=True, check=False).returncode == 0
    with pytest.MonkeyPatch.context() as patch:
        try:
            yield Disk(directory, patch, real=mounted)
        finally:
            if mounted:
                subprocess.run(["umount", "--lazy", str(directory)], check=True)
