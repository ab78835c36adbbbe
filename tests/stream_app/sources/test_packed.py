"""Compressed files, in each form: all members are read, other bytes behind them are not."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import lzma
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from stream_app.config import SourceSettings, load_text
from stream_app.ports import OperatorError
from stream_app.shell.checks.everything import contents
from stream_app.sources.copies import check_copies, first_records
from stream_app.sources.file_sequence import FileSequence
from stream_app.sources.finished_files import check_whole, open_whole
from stream_app.sources.packed import ENDINGS, zstd
from stream_app.wiring.event_logs import check_log
from tests.stream_app.one_source import AT, event_line, read, times

Pack = Callable[[bytes], bytes]

PACK: dict[str, Pack] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": partial(zstd.compress, options={zstd.CompressionParameter.checksum_flag: 1}),
}
assert tuple(PACK) == ENDINGS
TEXT = b"".join(event_line(time_us, n=0) for time_us in range(9))
FORMS = pytest.mark.parametrize("ending", ENDINGS)
FRAME_WITHOUT_DATA = b"\x50\x2a\x4d\x18\4\0\0\0abcd"


def flipped(content: bytes) -> bytes:
    """Return a compressed file with a damaged byte in the middle of its data."""
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :]


@pytest.mark.parametrize(
    ("content", "warns"),
    [
        (lambda pack: pack(TEXT), False),
        (lambda pack: pack(TEXT[:20]) + pack(TEXT[20:]), False),
        (lambda pack: pack(TEXT[:20]) + pack(b"") + pack(TEXT[20:]), False),
        (lambda pack: pack(b"") + pack(TEXT), False),
        (lambda pack: pack(TEXT) + bytes(700), False),  # as tapes pad it
        (lambda pack: pack(TEXT[:20]) + bytes(4) + pack(TEXT[20:]), False),  # as xz pads it
        (lambda pack: pack(TEXT[:20]) + bytes(300_000) + pack(TEXT[20:]), False),
        (lambda pack: pack(TEXT) + b"garbage at the end", True),
        (lambda pack: pack(TEXT) + b"x", True),
        (lambda pack: pack(TEXT) + b"\n", True),
        (lambda pack: pack(TEXT) + bytes(9) + b"signature", True),
        (lambda pack: pack(TEXT) + TEXT, True),
        (lambda pack: pack(TEXT) + pack(TEXT)[:1], True),
        (lambda pack: pack(TEXT[:20]) + pack(TEXT[20:]) + b"tail" * 90_000, True),
    ],
)
@FORMS
def test_what_follows_compressed_data_is_not_read(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    content: Callable[[Pack], bytes],
    warns: bool,
    ending: str,
) -> None:
    path = tmp_path / f"clicks-01.ndjson{ending}"
    path.write_bytes(content(PACK[ending]))
    assert first_records(path, csv=False) == TEXT
    assert not caplog.records
    with open_whole(tmp_path / "clicks-*.ndjson", "ndjson", AT, tmp_path) as lines:
        assert lines.bytes_at(0, 10_000) == TEXT
    said = f"{path}: bytes follow the end of its {ending[1:]} data; they are not read"
    assert [record.getMessage() for record in caplog.records] == [said] * warns
    source = FileSequence(tmp_path / "clicks-*.ndjson", "ndjson", AT, tmp_path / "notes")
    assert times(read(source)[0]) == list(range(9))
    asyncio.run(source.close())


@pytest.mark.parametrize(
    "content",
    [
        lambda packed: packed[:-1],
        lambda packed: packed[:-9],
        lambda packed: packed[:7],
        lambda packed: packed[:1],
        lambda packed: packed + packed[:-1],
        lambda packed: packed + packed[:7],
        lambda packed: packed + bytes(9) + packed[:-3],
        lambda packed: packed + packed[:6] + b"garbage",
        flipped,
        lambda packed: packed + flipped(packed),
        lambda packed: TEXT,
        lambda packed: b"garbage" + packed,
        lambda packed: bytes(9) + packed,
    ],
)
@FORMS
def test_half_a_compressed_file_is_refused(
    tmp_path: Path, content: Callable[[bytes], bytes], ending: str
) -> None:
    (tmp_path / f"clicks-01.ndjson{ending}").write_bytes(content(PACK[ending](TEXT)))
    pattern = tmp_path / "clicks-*.ndjson"
    source = FileSequence(pattern, "ndjson", AT, tmp_path / "notes")
    refused = pytest.raises(
        OperatorError, match=rf"clicks-01.ndjson{ending}: cannot be decompressed .*; put a"
    )
    with refused:
        read(source)
    asyncio.run(source.close())
    with refused:
        check_whole(pattern, "ndjson", AT)


def test_a_frame_of_zstandard_without_data_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "clicks-01.ndjson.zst"
    pack = PACK[".zst"]
    path.write_bytes(FRAME_WITHOUT_DATA + pack(TEXT[:20]) + FRAME_WITHOUT_DATA + pack(TEXT[20:]))
    assert first_records(path, csv=False) == TEXT


@FORMS
def test_bytes_behind_the_data_hide_no_copy(tmp_path: Path, ending: str) -> None:
    pack, paths = PACK[ending], [tmp_path / f"a-{day}.ndjson{ending}" for day in (1, 2)]
    lines = b"".join(event_line(time_us, n=time_us) for time_us in range(9))
    paths[0].write_bytes(pack(lines) + b"signature")
    paths[1].write_bytes(pack(lines + event_line(9)))
    with pytest.raises(OperatorError, match="begins with the records"):
        check_copies(paths, csv=False)


@pytest.mark.parametrize("ending", [*ENDINGS, ".GZ", ".Xz"])
def test_checks_take_a_file_with_bytes_behind_its_data(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"e.ndjson{ending}").write_bytes(PACK[ending.lower()](TEXT) + b"signature")
    time = "time: {field: at, format: us, bin: 1s, epoch: 1s}"
    replay = 'replay: {from: "1970-01-01T00:00:00Z", to: "1970-01-01T00:00:01Z"}'
    text = (
        f"streams: {{x: {{source: {{file: e.ndjson{ending}, {replay}}}, {time}, privacy: {{epsilon: 1}}}}}}"
    )
    [stream] = load_text(text, tmp_path / "c.yaml", {}).streams
    assert isinstance(stream.source, SourceSettings)
    assert check_log(stream, stream.source, tmp_path / "state") == 0
    assert [finding.state for finding in contents(stream)] == ["ok"]
