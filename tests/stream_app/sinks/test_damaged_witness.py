"""A damaged file of rows is refused in one line; what a crash or retention leaves is none."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from stream_app.ports.errors import StreamError
from stream_app.sinks.witness_file import WitnessFile
from tests.stream_app.sinks.test_files import row

Lines = list[bytes]
ROWS = [row(seq).row for seq in range(1, 6)]
FOREIGN, NONE = "of another stream", "no row of a release"
NOT_NEXT = "does not follow the line before"


def altered(line: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(line), **fields}).encode()


# What happens to five lines; what a start says, which reads the last one; what a reader of all says.
DAMAGE: dict[str, tuple[Callable[[Lines], Lines], str, str]] = {
    "nothing": (lambda at: [*at, b""], "", ""),
    "cut by a crash": (lambda at: [*at, b'{"seq": 6, "str'], "", ""),
    "NUL bytes after a crash": (lambda at: [*at, bytes(4096)], "", ""),
    "foreign line, last": (lambda at: [*at, b"hello", b""], f"its last line is {NONE}", f"line 6 is {NONE}"),
    "foreign line": (lambda at: [at[0], b"hello", *at[1:], b""], "", f"line 2 is {NONE}"),
    "other JSON": (lambda at: [*at, b'{"seq": 6}', b""], NONE, NONE),
    "list": (lambda at: [*at, b"[6]", b""], NONE, NONE),
    "text for a number": (lambda at: [*at[:4], altered(at[4], seq="5"), b""], NONE, NONE),
    "true for a number": (lambda at: [*at[:4], altered(at[4], epoch=True), b""], NONE, NONE),
    "nested deeply": (lambda at: [*at, b"[" * 100_000, b""], NONE, NONE),
    "empty line, last": (lambda at: [*at, b"", b""], NONE, NONE),
    "empty line": (lambda at: [*at[:2], b"", *at[2:], b""], "", f"line 3 is {NONE}"),
    "NUL bytes": (lambda at: [*at[:4], bytes(len(at[4])), b""], NONE, NONE),
    "NUL bytes within": (lambda at: [at[0], at[1][:9] + bytes(9) + at[1][18:], *at[2:], b""], "", NONE),
    "not UTF-8": (lambda at: [*at[:4], at[4].replace(b"visits", b"visit\xff"), b""], NONE, NONE),
    "values": (lambda at: [*at[:4], at[4] + b"\t*", b""], NONE, NONE),
    "cut in the middle": (lambda at: [at[0], at[1][:40], *at[2:], b""], "", f"line 2 is {NONE}"),
    "two lines in one": (lambda at: [at[0] + at[1], *at[2:], b""], "", f"line 1 is {NONE}"),
    "duplicated row": (lambda at: [*at[:3], *at[2:], b""], "", f"line 4 {NOT_NEXT}"),
    "duplicated row, last": (lambda at: [*at, at[4], b""], "", f"line 6 {NOT_NEXT}"),
    "missing row": (lambda at: [*at[:2], *at[3:], b""], "", f"line 3 {NOT_NEXT}"),
    "swapped": (lambda at: [at[0], at[2], at[1], *at[3:], b""], "", f"line 2 {NOT_NEXT}"),
    "swapped, last": (lambda at: [*at[:3], at[4], at[3], b""], "", f"line 4 {NOT_NEXT}"),
    "wrong hash": (lambda at: [*at[:4], altered(at[4], prev="0" * 64), b""], "", f"line 5 {NOT_NEXT}"),
    "altered row": (lambda at: [at[0], altered(at[1], text="x"), *at[2:], b""], "", f"line 3 {NOT_NEXT}"),
    "other file": (lambda at: [row(1, "", "sales").row, b""], FOREIGN, f"line 1 is {FOREIGN}"),
    "another worker's rows left out": (lambda at: [*at[:2], altered(at[2], epoch=2, prev=""), b""], "", ""),
    "whole epochs that left": (lambda at: [*at[:2], altered(at[4], epoch=2), b""], "", ""),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_file_is_refused_in_one_line_about_its_stream(tmp_path: Path, damage: str) -> None:
    hurt, at_a_start, to_a_reader = DAMAGE[damage]
    (tmp_path / "visits.ndjson").write_bytes(b"\n".join(hurt([*ROWS])))

    async def said(asked: Awaitable[object], expected: str) -> object:
        if not expected:
            return await asked
        with pytest.raises(StreamError) as refused:
            await asked
        line = str(refused.value)
        assert refused.value.stream == "visits"
        assert line.startswith(f"{tmp_path}/visits.ndjson: ")
        assert line.endswith("move it away and run stream-app new-witness")
        assert "\n" not in line
        assert expected in line or (expected == to_a_reader and at_a_start and at_a_start in line)
        return line

    with closing(WitnessFile(tmp_path)) as witness:
        await witness.append("sales", [row(1, "", "sales")])
        assert await said(witness.head("visits"), at_a_start) is not None
        await said(witness.rows("visits", 0), to_a_reader)
        assert await witness.rows("sales", 0) == [row(1, "", "sales")]
    with closing(WitnessFile(tmp_path)) as again:  # the file is free
        await said(again.head("visits"), at_a_start)
