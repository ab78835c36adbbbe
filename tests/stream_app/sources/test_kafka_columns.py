"""Columns equal aiokafka's own records: the same records, and the next fetch at the same offset."""

from __future__ import annotations

import gc
import struct
import subprocess
import sys
import weakref
from collections.abc import Sequence
from itertools import islice
from types import SimpleNamespace
from typing import Any

import cramjam
import pytest
from aiokafka import codec
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED, FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from stream_app.sources import kafka_columns
from stream_app.sources.kafka_columns import PartitionColumns

pytestmark = pytest.mark.slow

# The offsets of fields in a broker's batch (message format 2).
CRC_AT, ATTRIBUTES_AT, LAST_DELTA_AT = 17, 21, 23
CONTROL, TRANSACTIONAL = 0x20, 0x10
ABORT, COMMIT = struct.pack(">HH", 0, 0), struct.pack(">HH", 0, 1)

Record = tuple[int, int, bytes | None]


def as_broker(base: int, records: Sequence[tuple[bytes | None, Record]], last: int, attributes: int) -> bytes:
    """Return a batch in the broker's bytes. Args: records, each (key, (offset, timestamp, value))."""
    builder = DefaultRecordBatchBuilder(2, attributes & 7, attributes & TRANSACTIONAL, 7, 0, 0, 1 << 20)
    for key, (offset, timestamp_ms, value) in records:
        builder.append(offset - base, timestamp_ms, key, value, [])
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base)
    (built,) = struct.unpack_from(">h", data, ATTRIBUTES_AT)
    struct.pack_into(">h", data, ATTRIBUTES_AT, built | attributes & CONTROL)
    struct.pack_into(">i", data, LAST_DELTA_AT, last - base)
    struct.pack_into(">I", data, CRC_AT, calc_crc32c(data[ATTRIBUTES_AT:]))
    return bytes(data)


@st.composite
def responses(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]], int]:
    """Draw a response with gaps, markers and codecs; its aborted transactions; and its first offset."""
    data, offset, aborted = b"", draw(st.integers(0, 1000)), []
    first, open_at = offset, None
    for _ in range(draw(st.integers(1, 6))):
        codec = draw(st.sampled_from([DefaultRecordBatch.CODEC_NONE, DefaultRecordBatch.CODEC_LZ4]))
        kind = draw(st.sampled_from(["plain", "transactional", "abort", "commit"]))
        if kind in ("abort", "commit"):
            if kind == "abort" and open_at is not None:
                aborted.append((7, open_at))
            open_at = None
            marker = (offset, 1, b"\0" * 6)
            key = ABORT if kind == "abort" else COMMIT
            data += as_broker(offset, [(key, marker)], offset, CONTROL | TRANSACTIONAL)
            offset += 1
            continue
        places = draw(st.lists(st.integers(0, 30), min_size=0, max_size=12, unique=True).map(sorted))
        last = offset + max([*places, 0]) + draw(st.integers(0, 3))
        if kind == "transactional" and open_at is None:
            open_at = offset
        values = st.none() | st.binary(max_size=40)
        records = [(None, (offset + place, 1_000 + place, draw(values))) for place in places]
        if records:
            data += as_broker(offset, records, last, codec | TRANSACTIONAL * (kind == "transactional"))
        offset = last + 1
    return data, aborted, draw(st.integers(first, max(first, offset - 1)))


def fetched(data: bytes, aborted: list[tuple[int, int]], first: int, isolation: int) -> PartitionRecords:
    """Return the records that aiokafka itself reads from a response."""
    partition = TopicPartition("events", 0)
    return PartitionRecords(partition, MemoryRecords(data), aborted, first, None, None, True, isolation)


def unpacked(columns: PartitionColumns) -> list[Record]:
    """Return the records of all pieces, one after the other."""
    return [
        record
        for piece in columns
        for record in zip(piece.offsets, piece.timestamps_ms, piece.values, strict=True)
    ]


@given(responses(), st.sampled_from([READ_COMMITTED, READ_UNCOMMITTED]), st.sampled_from([1, 5, 20_000]))
def test_the_same_records_as_one_by_one(
    response: tuple[bytes, list[tuple[int, int]], int], isolation: int, most: int
) -> None:
    expected = fetched(*response, isolation)
    records = [(record.offset, record.timestamp, record.value) for record in expected]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_columns, "MOST_RECORDS", most)
        columns = PartitionColumns(fetched(*response, isolation), timestamps=True)
        assert unpacked(columns) == records
    assert columns.next_fetch_offset == expected.next_fetch_offset


def test_a_piece_ends_where_the_next_fetch_may_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_columns, "MOST_RECORDS", 2)
    one = as_broker(10, [(None, (10, 1, b"a")), (None, (12, 1, b"b"))], 14, 0)  # 13 and 14 are compacted
    two = as_broker(15, [(None, (15, 1, b"c"))], 15, 0)
    columns = PartitionColumns(fetched(one + two, [], 10, READ_COMMITTED), timestamps=False)
    first = next(columns)
    assert (first.offsets, first.values, columns.next_fetch_offset) == ([10, 12], [b"a", b"b"], 13)
    second = next(columns)
    assert (second.offsets, second.timestamps_ms, columns.next_fetch_offset) == ([15], [], 16)
    assert list(columns) == []


def outcome(data: bytes, first: int) -> tuple[list[int], list[int], int]:
    """Return the offsets in a response of one piece, the unreadable ones, and the next fetch."""
    columns = PartitionColumns(fetched(data, [], first, READ_COMMITTED), timestamps=False)
    [piece] = list(columns)
    return piece.offsets, piece.unreadable, columns.next_fetch_offset


CODECS = ["CODEC_GZIP", "CODEC_SNAPPY", "CODEC_LZ4", "CODEC_ZSTD"]


def zeros(base: int, count: int, codec: int) -> bytes:
    """Return a batch of records, each of a million zero bytes."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, 7, 0, 0, 1 << 30)
    for index in range(count):
        builder.append(index, 1, None, bytes(1_000_000), [])
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base)
    return bytes(data)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_decompresses_too_far_is_refused_alone(codec: str) -> None:
    used = getattr(DefaultRecordBatch, codec)
    kafka_columns.bound_decompression()
    batches = [zeros(0, 20, used), zeros(20, 70, used), as_broker(90, [(None, (90, 1, b"after"))], 90, used)]
    columns = PartitionColumns(fetched(b"".join(batches), [], 0, READ_COMMITTED), timestamps=True)
    [piece] = list(columns)
    assert piece.offsets == [*range(20), 90]
    assert (piece.values[0], piece.values[-1]) == (bytes(1_000_000), b"after")
    assert piece.unreadable == [20]
    assert columns.next_fetch_offset == 91


def test_a_batch_that_decompresses_too_far_takes_neither_memory_nor_time() -> None:
    """The batch has 130 kB and would decompress to 4 GB. The process may take 1 GB."""
    code = (
        "import resource, time\n"
        "from tests.stream_app.sources.test_kafka_columns import *\n"
        "data = stuffed(4 << 30)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "kafka_columns.bound_decompression()\n"
        "began_s = time.process_time()\n"
        "[piece] = PartitionColumns(fetched(data, [], 5, READ_COMMITTED), timestamps=False)\n"
        "print(len(data) < 200_000, piece.unreadable, time.process_time() - began_s < 2)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == "True [5] True", ended.stderr


def stuffed(size: int) -> bytes:
    """Return a batch with a zstd frame that repeats one byte ``size`` times, in blocks of 128 kB."""
    block = (128 << 10) << 3 | 1 << 1  # a run of one byte
    blocks = [(block | last).to_bytes(3, "little") + b"\0" for last in [0] * (size // (128 << 10) - 1) + [1]]
    frame = b"\x28\xb5\x2f\xfd" + bytes([0b0000_0000, 0b0011_1000]) + b"".join(blocks)
    data = bytearray(as_broker(5, [(None, (5, 1, b"x"))], 5, DefaultRecordBatch.CODEC_ZSTD)[:61]) + frame
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, CRC_AT, calc_crc32c(data[ATTRIBUTES_AT:]))
    return bytes(data)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_its_codec_cannot_read_is_refused_as_one(codec: str) -> None:
    used = getattr(DefaultRecordBatch, codec)
    kafka_columns.bound_decompression()
    data = bytearray(as_broker(5, [(None, (5, 1, b"x" * 1_000))], 9, used))
    data[61:] = bytes(reversed(data[61:]))
    struct.pack_into(">I", data, CRC_AT, calc_crc32c(data[ATTRIBUTES_AT:]))
    after = as_broker(10, [(None, (10, 1, b"after"))], 10, 0)
    assert outcome(bytes(data) + after, 5) == ([10], [5], 11)


def in_snappy(values: list[bytes], behind: bytes = b"", longer: int = 0) -> bytes:
    """Return a batch of one snappy block, whose stated length is ``longer`` bytes too large."""
    data = as_broker(
        0, [(None, (offset, 1, value)) for offset, value in enumerate(values)], len(values) - 1, 0
    )
    block = bytes(cramjam.snappy.compress_raw(data[61:]))
    blocks = bytes(codec.snappy_encode(b""))[:16] + struct.pack(">i", len(block) + longer) + block + behind
    written = bytearray(data[:61]) + blocks
    struct.pack_into(">i", written, 8, len(written) - 12)
    struct.pack_into(">h", written, ATTRIBUTES_AT, DefaultRecordBatch.CODEC_SNAPPY)
    struct.pack_into(">I", written, CRC_AT, calc_crc32c(written[ATTRIBUTES_AT:]))
    return bytes(written)


@pytest.mark.parametrize(
    ("behind", "longer", "offsets", "unreadable"),
    [
        (b"", 0, [0, 1, 2], []),
        (b"\0", 0, [0, 1, 2], []),
        (b"\1\2\3", 0, [0, 1, 2], []),
        (b"\0\0\0\1", 0, [], [0]),
        (b"\0\0\0\1a", 0, [], [0]),
        (b"\xff\xff\xff\xff", 0, [], [0]),
        (b"", 1, [], [0]),
        (b"", -1, [], [0]),
    ],
)
def test_up_to_three_bytes_behind_the_last_snappy_block_cost_no_record(
    behind: bytes, longer: int, offsets: list[int], unreadable: list[int]
) -> None:
    """Kafka's own reader ignores them too. With more bytes after the last block, a batch cannot be read."""
    kafka_columns.bound_decompression()
    data = in_snappy([b"a", b"b", b"c"], behind, longer) + as_broker(3, [(None, (3, 1, b"after"))], 3, 0)
    assert outcome(data, 0) == ([*offsets, 3], unreadable, 4)


class Batch:
    """A batch whose codec raises an error of an unknown type."""

    producer_id, is_control_batch, base_offset, next_offset = None, False, 5, 9

    def __init__(self, failure: Exception) -> None:
        self.failure = failure

    def __iter__(self) -> Any:
        raise self.failure


@pytest.mark.parametrize("failure", [struct.error(), OSError(), RuntimeError(), IndexError()])
def test_a_batch_is_refused_as_one_whatever_its_codec_raises(failure: Exception) -> None:
    columns = PartitionColumns(of_one(Batch(failure)), timestamps=False)
    [piece] = list(columns)
    assert (piece.offsets, piece.unreadable, columns.next_fetch_offset) == ([], [5], 9)


def test_a_lack_of_memory_refuses_no_batch() -> None:
    with pytest.raises(MemoryError):
        next(PartitionColumns(of_one(Batch(MemoryError())), timestamps=False))


def of_one(batch: Batch) -> Any:
    left = [batch]
    records = SimpleNamespace(has_next=lambda: bool(left), next_batch=left.pop)
    return SimpleNamespace(
        _records=records, _check_crcs=False, _isolation_level=READ_UNCOMMITTED, next_fetch_offset=5
    )


def test_a_header_that_is_no_text_costs_the_rest_of_its_batch_only() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, 0, 7, 0, 0, 1 << 20)
    for index, headers in enumerate([[], [("zzzz", b"x")], []]):
        builder.append(index, 1, None, b"v", headers)
    data = bytearray(bytes(builder.build()).replace(b"zzzz", b"\xff\xfe\xff\xfe"))
    struct.pack_into(">I", data, CRC_AT, calc_crc32c(data[ATTRIBUTES_AT:]))
    after = as_broker(3, [(None, (3, 1, b"after"))], 3, 0)
    assert outcome(bytes(data) + after, 0) == ([0, 3], [1], 4)


def test_a_piece_has_a_bounded_number_of_records_however_many_a_batch_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_columns, "MOST_RECORDS", 3)
    data = as_broker(0, [(None, (offset, 1, b"v")) for offset in range(7)], 6, 0)
    columns = PartitionColumns(fetched(data, [], 1, READ_COMMITTED), timestamps=False)
    found = [(piece.offsets, columns.next_fetch_offset) for piece in columns]
    assert found == [([1, 2, 3], 4), ([4, 5, 6], 7)]


@pytest.mark.parametrize("pieces", [0, 1, None])
def test_a_response_is_let_go_without_a_garbage_collection(
    monkeypatch: pytest.MonkeyPatch, pieces: int | None
) -> None:
    """Many records are few objects, so a garbage collection would free a response's memory too late.

    Args: pieces, how many are read before the response is dropped; None for all.
    """
    monkeypatch.setattr(kafka_columns, "MOST_RECORDS", 1)
    gc.collect()
    gc.disable()
    try:
        data = as_broker(3, [(None, (3, 1, b"x")), (None, (4, 1, b"y"))], 4, 0)
        records = fetched(data, [], 3, READ_COMMITTED)
        gone = weakref.ref(records)
        columns = PartitionColumns(records, timestamps=False)
        read = [piece.values for piece in islice(columns, pieces)]
        assert read == [[b"x"], [b"y"]][:pieces]
        del records, columns
        assert gone() is None
    finally:
        gc.enable()


def test_a_damaged_batch_is_refused() -> None:
    data = bytearray(as_broker(0, [(None, (0, 1, b"abc"))], 0, 0))
    data[-2] ^= 1
    columns = PartitionColumns(fetched(bytes(data), [], 0, READ_COMMITTED), timestamps=False)
    with pytest.raises(CorruptRecordException):
        next(columns)


def test_the_buffer_converts_what_arrives_and_nothing_else() -> None:
    class Consumer:
        """A consumer with only the attributes that ``return_columns`` uses."""

        def __init__(self) -> None:
            self._fetcher: Any = type("Fetcher", (), {"_records": {}})()

    consumer: Any = Consumer()
    kafka_columns.return_columns(consumer)
    buffer = consumer._fetcher._records
    error = object()
    buffer["failed"] = error
    assert buffer["failed"] is error
    records = fetched(as_broker(3, [(None, (3, 1, b"x"))], 3, 0), [], 3, READ_COMMITTED)
    buffer["good"] = FetchResult("good", assignment=None, partition_records=records, backoff=0.0)
    assert buffer["good"]._partition_records.next_fetch_offset == 3
    assert [piece.values for piece in buffer["good"]._partition_records] == [[b"x"]]
