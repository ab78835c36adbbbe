"""Bounded decompression of Kafka batches: a batch of a few kilobytes may decompress to gigabytes.

A broker limits only the compressed size of a batch. aiokafka's own decompressors have no limit: one such
batch would crash every worker that reads it, again at every start.
"""

from __future__ import annotations

import mmap
import sys
import threading
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
from aiokafka import codec
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatch

MOST_BATCH_BYTES = 64 << 20  # decompressed

_GZIP = 31  # the window of zlib that reads gzip's header
_HEADER_OF_BLOCKS = bytes(codec.snappy_encode(b""))[:16]
_LENGTH_BYTES = 4
_alone = threading.Lock()
_room: dict[int, mmap.mmap] = {}  # by size, made once; only written pages take memory


def bound_decompression() -> None:
    """Replace aiokafka's decompressors in this process by bounded ones.

    Iterating over a batch with more than ``MOST_BATCH_BYTES`` then raises, as it does for bytes that the
    codec cannot read. Each codec raises its own kinds of errors.
    """
    for batch in (DefaultRecordBatch, LegacyRecordBatch):
        module = sys.modules[batch.__module__]
        for name, value in list(vars(module).items()):
            for unbounded, bounded in _BOUNDED:
                if value is unbounded:
                    setattr(module, name, bounded)


def _gzip(payload: Any) -> bytes:
    members, left, data = [], MOST_BATCH_BYTES, bytes(payload)
    while data:
        stream = zlib.decompressobj(_GZIP)
        members.append(stream.decompress(data, left + 1))
        left -= len(members[-1])
        if left < 0 or not stream.eof:
            raise ValueError
        data = stream.unused_data.lstrip(b"\0")
    return b"".join(members)


def _snappy(payload: Any) -> bytes:
    data = bytes(payload)
    blocks = _snappy_blocks(data) if data.startswith(_HEADER_OF_BLOCKS) else [data]
    if sum(map(cramjam.snappy.decompress_raw_len, blocks)) > MOST_BATCH_BYTES:
        raise ValueError
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)


def _snappy_blocks(data: bytes) -> list[bytes]:
    """Return the blocks after the header. A tail that is too short for a block's length is ignored."""
    blocks, at = [], len(_HEADER_OF_BLOCKS)
    while at + _LENGTH_BYTES <= len(data):
        begin = at + _LENGTH_BYTES
        at = begin + int.from_bytes(data[at:begin], "big")
        if at > len(data):
            raise ValueError
        blocks.append(data[begin:at])
    return blocks


def _into_room(decompress_into: Callable[[Any, Any], int]) -> Callable[[Any], bytes]:
    """Return a bounded decompressor. Args: decompress_into, which fails if its buffer is too small."""

    def decompress(payload: Any) -> bytes:
        with _alone:
            room = _room.get(MOST_BATCH_BYTES) or mmap.mmap(-1, MOST_BATCH_BYTES)
            _room[MOST_BATCH_BYTES] = room
            return room[: decompress_into(bytes(payload), room)]

    return decompress


_BOUNDED = [
    (codec.gzip_decode, _gzip),
    (codec.snappy_decode, _snappy),
    (codec.lz4_decode, _into_room(cramjam.lz4.decompress_into)),
    (codec.zstd_decode, _into_room(cramjam.zstd.decompress_into)),
]
