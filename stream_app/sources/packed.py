"""Compressed files, which the ends of their names tell: gzip, bzip2, xz and Zstandard."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from contextlib import suppress
from importlib import import_module
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from stream_app.ports import OperatorError


def _zstd() -> Any:
    for module in ("compression.zstd", "backports.zstd"):  # the first one is of Python 3.14
        with suppress(ImportError):
            return import_module(module)
    return None


zstd = _zstd()
_OPEN: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": zstd and zstd.open}
ENDINGS = tuple(_OPEN)
# What reading a damaged file raises.
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, *(() if zstd is None else (zstd.ZstdError,)))


def is_packed(path: Path) -> bool:
    """Return whether a file is compressed, by its name."""
    return path.suffix in _OPEN


def unpacked_name(name: str) -> str:
    """Return a file's name without the end that its compression gave it.

    >>> unpacked_name("access.log.2.xz"), unpacked_name("access.log")
    ('access.log.2', 'access.log')
    """
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)


def open_packed(path: Path) -> BufferedIOBase:
    """Return the content of a compressed file.

    Raises: OSError; OperatorError without the package of its compression. Reading it: see ``DAMAGE``.
    """
    if (open_it := _OPEN[path.suffix]) is None:
        raise OperatorError(f"{path}: .zst needs Python 3.14 or: pip install 'private-counts[web]'")
    content: BufferedIOBase = open_it(path)
    return content
