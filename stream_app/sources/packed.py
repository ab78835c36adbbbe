"""Compressed files, which the ends of their names tell in any case: gzip, bzip2, xz and Zstandard."""

from __future__ import annotations

import logging
import lzma
import re
import zlib
from bz2 import BZ2Decompressor
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from stream_app.ports import OperatorError

_READ_AT_ONCE = 1 << 18
_DECOMPRESSED_AT_ONCE = 1 << 16
_LONGEST_BEGINNING = 6  # bytes, of a member

log = logging.getLogger(__name__)


def _zstd() -> Any:
    for module in ("compression.zstd", "backports.zstd"):  # the first one is of Python 3.14
        with suppress(ImportError):
            return import_module(module)
    return None


zstd = _zstd()


class _Decompressor(Protocol):
    """Decompresses one member of a file: what one run of the compressing program wrote."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...


class _Gzip(_Decompressor):
    """Gives gzip the methods that the standard library's other decompressors have."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int = 0) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


class _Form(NamedTuple):
    begins: re.Pattern[bytes]  # each member
    decompressor: Callable[[], _Decompressor] | None  # None: its package is not installed


_FORMS = {
    ".gz": _Form(re.compile(rb"\x1f\x8b"), _Gzip),
    ".bz2": _Form(re.compile(rb"BZh"), BZ2Decompressor),
    ".xz": _Form(re.compile(rb"\xfd7zXZ\0"), lzma.LZMADecompressor),
    # Or a frame without data, which other programs pass over, too.
    ".zst": _Form(re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), zstd and zstd.ZstdDecompressor),
}
ENDINGS = tuple(_FORMS)
# What reading a damaged file raises.
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, *(() if zstd is None else (zstd.ZstdError,)))


def is_packed(path: Path) -> bool:
    """Return whether a file is compressed, by its name."""
    return path.suffix.lower() in _FORMS


def unpacked_name(name: str) -> str:
    """Return a file's name without the end that its compression gave it.

    >>> unpacked_name("access.log.2.xz"), unpacked_name("DAY.CSV.GZ"), unpacked_name("access.log")
    ('access.log.2', 'DAY.CSV', 'access.log')
    """
    return next((name[: -len(ending)] for ending in ENDINGS if name.lower().endswith(ending)), name)


def open_packed(path: Path, *, warns: bool = False) -> BufferedReader:
    """Return the content of a compressed file: that of all its members.

    Zeros behind a member are passed over, as tapes and xz have them. Other bytes behind the last one are not
    read.
    Args: warns, whether to log a warning of such bytes.
    Raises: OSError; OperatorError without the package of its compression. Reading it: one of ``DAMAGE``, if a
        member has no end, or none begins the file.
    """
    if _FORMS[path.suffix.lower()].decompressor is None:
        raise OperatorError(f"{path}: .zst needs Python 3.14 or: pip install 'private-counts[web]'")
    return BufferedReader(_Members(path, warns), _DECOMPRESSED_AT_ONCE)


class _Members(RawIOBase):
    """The content of a compressed file. Args: as for ``open_packed``."""

    def __init__(self, path: Path, warns: bool) -> None:
        self._path, self._warns = path, warns
        self._begins, self._decompressor = _FORMS[path.suffix.lower()]
        self._file = path.open("rb", buffering=0)
        self._member: _Decompressor | None = None
        self._data = b""  # which the member has not got yet

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        part = b""
        while not part and (member := self._current()) is not None:
            if member.needs_input and not self._data:
                self._data = self._file.read(_READ_AT_ONCE)
                if not self._data:
                    raise EOFError("it ends before its data does")
            part = member.decompress(self._data, len(buffer))
            self._data = member.unused_data
        buffer[: len(part)] = part
        return len(part)

    def _current(self) -> _Decompressor | None:
        """Return the member that is read; begin the next one where one has ended; None behind the last."""
        if self._member is not None and not self._member.eof:
            return self._member
        padding = b"" if self._member is None else b"\0"
        self._data = self._data.lstrip(padding)
        while len(self._data) < _LONGEST_BEGINNING and (more := self._file.read(_READ_AT_ONCE)):
            self._data = (self._data + more).lstrip(padding)
        if self._begins.match(self._data):
            assert self._decompressor is not None
            self._member = self._decompressor()
            return self._member
        if self._member is None:
            fault = f"does not begin as {self._path.suffix} files do" if self._data else "is empty"
            raise EOFError(f"it {fault}")
        if self._data and self._warns:
            form = self._path.suffix.removeprefix(".")
            log.warning("%s: bytes follow the end of its %s data; they are not read", self._path, form)
            self._warns = False
        return None
