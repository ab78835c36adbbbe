"""A disk on which every system call of a writer can fail, tear or be the last one before the power fails."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

Fault = Literal["before", "torn", "after", "refused", "refused half", "forgotten"]
FAULTS: tuple[Fault, ...] = ("before", "torn", "after", "refused", "refused half", "forgotten")
_CALLS = ("pwrite", "ftruncate", "fsync", "fdatasync", "open")


class DiedError(BaseException):
    """The process ended at this call."""


class FailingDisk:
    """Counts the calls that change files below a directory, and spoils one of them.

    What was never synced may be lost when the power fails: any part of it, in any file. A sync that is
    "forgotten" fails, and the system drops what it could not write: a later sync succeeds without it.
    Args: number, of the call to spoil; fault, in which way.
    """

    def __init__(self, directory: Path, number: int = 1 << 60, fault: Fault = "before") -> None:
        self.calls = 0
        self.directory, self.number, self.fault = directory, number, fault
        self.real = {name: getattr(os, name) for name in _CALLS}
        self.synced: dict[Path, bytes] = {}
        self.synced_names: set[Path] = set()
        self.forgotten: dict[Path, set[int]] = {}  # offsets that no sync writes

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Put the disk between the code and the system."""
        for name in _CALLS:
            patch.setattr(os, name, partial(self.call, name))

    def spoil(self, number: int, fault: Fault) -> None:
        """Spoil one of the next calls. Args: number, 1 for the next one."""
        self.number, self.fault = self.calls + number, fault

    def heal(self) -> None:
        """Spoil no further call."""
        self.number = 1 << 60

    @property
    def is_in_doubt(self) -> bool:
        """Whether a sync has failed, and not all that it should have written was written again since."""
        return any(self.forgotten.values())

    def durable(self, path: Path) -> bytes:
        """Return what a power failure leaves of a file for certain."""
        return self.synced.get(path, b"") if path in self.synced_names else b""

    def fail_power(self, random: Random) -> None:
        """Leave of each file what was synced, and any part of what was not."""
        for path in self.files():
            if path not in self.synced_names and random.random() < 0.5:
                path.unlink()
                continue
            synced, now = self.synced.get(path, b""), path.read_bytes()
            path.write_bytes(random.choice([synced, now, _with_hole(synced, now, random)]))
        self.forgotten.clear()
        self.synced_names = set(self.files())
        self.synced = {path: path.read_bytes() for path in self.synced_names}

    def call(self, name: str, *arguments: Any, **more: Any) -> Any:
        path = Path(os.readlink(f"/proc/self/fd/{arguments[0]}")) if name != "open" else Path(arguments[0])
        if not path.is_relative_to(self.directory) or (name == "open" and path.exists()):
            return self.real[name](*arguments, **more)
        self.calls += 1
        fault = self.fault if self.calls == self.number else None
        if fault == "before":
            raise DiedError
        if fault == "forgotten" and name in ("fsync", "fdatasync") and not path.is_dir():
            self.forget(path)
        if fault in ("refused", "forgotten"):
            raise OSError(28, "No space left on device")
        if fault in ("torn", "refused half") and name == "pwrite":
            descriptor, data, offset = arguments
            self.real["pwrite"](descriptor, bytes(data)[: len(data) // 2], offset)
            raise DiedError if fault == "torn" else OSError(28, "No space left on device")
        found = None
        if name in ("fsync", "fdatasync"):
            self.note(path)  # instead of a sync, which takes long
        else:
            found = self.real[name](*arguments, **more)
        if name == "pwrite":
            _, data, offset = arguments
            self.forgotten.get(path, set()).difference_update(range(offset, offset + len(data)))
        if fault in ("after", "torn"):
            raise DiedError
        return found

    def note(self, path: Path) -> None:
        if path.is_dir():
            self.synced_names = set(self.files())
        else:
            before, now = self.synced.get(path, b""), bytearray(path.read_bytes())
            for offset in self.forgotten.get(path, ()):
                now[offset : offset + 1] = before[offset : offset + 1] or b"\0"
            self.synced[path] = bytes(now)

    def forget(self, path: Path) -> None:
        before, now = self.synced.get(path, b""), path.read_bytes()
        changed = (at for at, byte in enumerate(now) if before[at : at + 1] != bytes([byte]))
        self.forgotten.setdefault(path, set()).update(changed)

    def files(self) -> list[Path]:
        return [path for path in self.directory.iterdir() if path.suffix in (".ndjson", ".batches")]


def _with_hole(synced: bytes, now: bytes, random: Random) -> bytes:
    """Return the file with a later part on the disk, but not the part before it."""
    if len(now) <= len(synced):
        return now
    hole = random.randint(len(synced), len(now))
    return now[: len(synced)] + bytes(hole - len(synced)) + now[hole:]
