"""The witness and the dead letters as files."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path

import pytest

from stream_app.core.records import Reason, Refusal
from stream_app.ports import OperatorError
from stream_app.sinks import dead_letter_file
from stream_app.sinks.dead_letter_file import DeadLetterFile
from stream_app.sinks.witness_file import WitnessFile


def row(seq: int, text: str = "") -> tuple[int, bytes]:
    """Return a row of the chain, as much of it as the witness reads."""
    return seq, json.dumps({"seq": seq, "text": text}).encode()


def test_rows_survive_a_restart(tmp_path: Path) -> None:
    async def two_lives() -> None:
        first = WitnessFile(tmp_path)
        assert await first.head("visits") is None
        await first.append("visits", [row(1), row(2)])
        await first.append("sales", [row(1, "other")])
        first.close()

        second = WitnessFile(tmp_path)
        assert await second.head("visits") == row(2)
        assert await second.head("sales") == row(1, "other")
        await second.append("visits", [row(3)])
        assert await second.rows("visits", 1) == [row(2), row(3)]
        second.close()

    asyncio.run(two_lives())


def test_rows_that_are_there_are_skipped(tmp_path: Path) -> None:
    async def repeat() -> None:
        witness = WitnessFile(tmp_path)
        await witness.append("visits", [row(1), row(2)])
        await witness.append("visits", [row(1), row(2), row(3)])
        await witness.append("visits", [row(2)])
        assert await witness.rows("visits", 0) == [row(1), row(2), row(3)]
        witness.close()

    asyncio.run(repeat())


def test_another_row_under_the_last_seq_is_refused(tmp_path: Path) -> None:
    async def contradict() -> None:
        witness = WitnessFile(tmp_path)
        await witness.append("visits", [row(1), row(2)])
        with pytest.raises(OperatorError, match="row 2 differs"):
            await witness.append("visits", [row(2, "redrawn"), row(3)])
        assert await witness.rows("visits", 0) == [row(1), row(2)]
        witness.close()

    asyncio.run(contradict())


def test_a_torn_row_is_written_again(tmp_path: Path) -> None:
    witness = WitnessFile(tmp_path)
    asyncio.run(witness.append("visits", [row(1), row(2)]))
    witness.close()
    [path] = tmp_path.iterdir()
    os.truncate(path, path.stat().st_size - 3)

    async def again() -> None:
        witness = WitnessFile(tmp_path)
        assert await witness.head("visits") == row(1)
        await witness.append("visits", [row(2)])
        assert await witness.rows("visits", 0) == [row(1), row(2)]
        witness.close()

    asyncio.run(again())


def test_a_stream_s_name_cannot_leave_the_directory(tmp_path: Path) -> None:
    witness = WitnessFile(tmp_path / "witness")
    asyncio.run(witness.append("../sales", [row(1)]))
    witness.close()
    assert [path.name for path in tmp_path.iterdir()] == ["witness"]


def test_dead_letters_say_where_why_and_what(tmp_path: Path) -> None:
    path = tmp_path / "letters.ndjson"
    letters = DeadLetterFile(path)
    asyncio.run(letters.write([]))
    assert not path.exists()
    text = Refusal("0", 7, Reason.NULL, '{"at": null, "name": "Zoë\n"}'.encode())
    binary = Refusal("1", 9, Reason.UNDECODABLE, b"\xff\xfe")
    asyncio.run(letters.write([text, binary]))
    letters.close()
    first, second = (json.loads(line) for line in path.read_bytes().splitlines())
    assert first == {"partition": "0", "position": 7, "reason": "null", "record": text.record.decode()}
    assert base64.b64decode(second.pop("record_base64")) == binary.record
    assert second == {"partition": "1", "position": 9, "reason": "undecodable"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_letter_is_written_once_per_stream_and_again_only_after_a_restart(tmp_path: Path) -> None:
    def places() -> list[tuple[int, str | None]]:
        letters = map(json.loads, path.read_bytes().splitlines())
        return [(letter["position"], letter.get("stream")) for letter in letters]

    async def write(positions: range, stream: str | None) -> int:
        refused = [Refusal("0", position, Reason.FUTURE, b"") for position in positions]
        return await letters.write(refused, stream)

    path = tmp_path / "letters.ndjson"
    letters = DeadLetterFile(path)
    assert asyncio.run(write(range(2), "visits")) == 2
    assert asyncio.run(write(range(1, 3), "visits")) == 1  # the batch was read again, a record longer
    assert asyncio.run(write(range(1), "sales")) == 1
    assert asyncio.run(write(range(1), None)) == 1
    assert asyncio.run(write(range(3), "visits")) == 0
    once = [(0, "visits"), (1, "visits"), (2, "visits"), (0, "sales"), (0, None)]
    assert places() == once
    letters.close()
    letters = DeadLetterFile(path)
    assert asyncio.run(write(range(1), "visits")) == 1
    letters.close()
    assert places() == [*once, (0, "visits")]  # the same place and stream: known to be a repeat


def test_what_was_refused_last_is_remembered_however_many_letters_there_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_file, "_REMEMBERED", 5)
    letters = DeadLetterFile(tmp_path / "letters.ndjson")

    async def write() -> list[int]:
        batches = [[Refusal("0", 10 * batch + i, Reason.NULL, b"") for i in range(7)] for batch in range(9)]
        return [await letters.write(batch) for batch in batches for _ in range(2)]

    assert asyncio.run(write()) == [7, 0] * 9
    assert len(letters._lately._older) + len(letters._lately._newer) <= 2 * (5 + 7)
    letters.close()
