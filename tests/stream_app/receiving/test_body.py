"""A body is stored as the records that its sender means, or refused at once."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from stream_app.receiving import body
from stream_app.receiving.body import lines_of
from stream_app.shell.commands import main
from stream_app.sources.decode import NdjsonDecoder
from tests.stream_app.receiving.running import CONFIGURATION
from tests.stream_app.receiving.test_listener import opened

ONE, TWO = b'{"at":1,"tags":["a,b"]}', b'{"at":2,"in":{"x":"[{"}}'
MARK = b"\xef\xbb\xbf"
PRETTY = b'{\n  "at": 1,\n  "tags": [\n    {}\n  ]\n}\n'


@pytest.mark.parametrize(
    ("sent", "stored", "others"),
    [
        (ONE, ONE + b"\n", 0),
        (ONE + b"\n" + TWO, ONE + b"\n" + TWO + b"\n", 0),
        (ONE + b"\r\n\r\n" + TWO + b"\r\n", ONE + b"\r\n\r\n" + TWO + b"\r\n", 0),
        (MARK + ONE + b"\n" + TWO, MARK + ONE + b"\n" + TWO + b"\n", 0),
        (b"[" + ONE + b"," + TWO + b"]", ONE + b"\n" + TWO + b"\n", 0),
        (b" [\r\n" + ONE + b",\r\n" + TWO + b"\r\n]\r\n", ONE + b"\n" + TWO + b"\n", 0),
        (MARK + b"[" + ONE + b"]", ONE + b"\n", 0),
        (b"[" + PRETTY + b"," + ONE + b"]", PRETTY.strip().replace(b"\n", b" ") + b"\n" + ONE + b"\n", 0),
        (PRETTY, PRETTY.strip().replace(b"\n", b" ") + b"\n", 0),
        (b"[1," + ONE + b',null,"x"]', b"1\n" + ONE + b'\nnull\n"x"\n', 3),
        (ONE + b"\nlost\n" + TWO + b"\n", ONE + b"\nlost\n" + TWO + b"\n", 1),
        (b"[ERROR] lost\n" + ONE + b"\n", b"[ERROR] lost\n" + ONE + b"\n", 1),
        (b'[{"at":1,"t":NaN}]', b'{"at":1,"t":null}\n', 0),
        (b'[{"at":1,"t":[-Infinity,"NaN"]},' + ONE + b"]", b'{"at":1,"t":[-1e999,"NaN"]}\n' + ONE + b"\n", 0),
        (b'[{"at":1,"t":"\\ud800"},NaN]', b'{"at":1,"t":"\\ufffd"}\nnull\n', 1),
        (b"[]", b"", 0),
        (b"", b"", 0),
        (b"\n \r\n", b"\n \r\n", 0),
    ],
)
def test_a_body_becomes_the_records_that_it_means(sent: bytes, stored: bytes, others: int) -> None:
    assert lines_of(sent) == (stored, others)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(ONE + TWO, id="lines joined by curl -d"),
        pytest.param(ONE + b"\r" + TWO, id="line ends of old Macs"),
        pytest.param(PRETTY.replace(b"{}", b"1") * 2, id="two objects over many lines"),
        pytest.param(b"at,page\n1,/a\n2,/b\n", id="CSV"),
        pytest.param(b"at=1&page=%2Fa", id="a form"),
        pytest.param(b"[" + ONE + b",]", id="an array that is no JSON"),
        pytest.param(b"[1,2]", id="an array of numbers"),
        pytest.param(b"[NaN]", id="an array of NaN"),
        pytest.param(b"[NaN," + ONE, id="half an array with NaN"),
        pytest.param(b"[[" + ONE + b"]]", id="an array of arrays"),
        pytest.param(b"[" + ONE + b"]\n[" + TWO + b"]\n", id="an array per line"),
        pytest.param(b"null", id="null"),
        pytest.param(b'"' + ONE.replace(b'"', b'\\"') + b'"', id="JSON in a text"),
        pytest.param((ONE + b"\n").decode().encode("utf-16"), id="UTF-16"),
        pytest.param(gzip.compress(ONE + b"\n"), id="gzip"),
        pytest.param(b"\x81\xa2at\x01", id="MessagePack"),
        pytest.param(b"{'at': 1}\n", id="Python"),
        pytest.param(b"[" * 900, id="nested too deeply"),
        pytest.param(b"not json", id="text"),
    ],
)
@pytest.mark.anyio
async def test_a_body_without_an_object_is_refused_whole_and_takes_no_key(
    tmp_path: Path, sent: bytes
) -> None:
    async with opened(tmp_path / "clicks") as door:
        answer = await door.send(sent, idempotency_key="1")
        assert answer.status_code == 400
        said = answer.json()["error"]
        assert said.startswith("the body is not stored: no line of it is a JSON object; send one JSON object")
        assert door.stored() == b""
        good = await door.send(ONE, idempotency_key="1")  # the corrected request, under its key
        assert (good.status_code, good.json()) == (200, {"records": 1, "duplicate": False})


@pytest.mark.parametrize("sent", [b'{"events": [%s]}', b'{\n "a": [],\n "b": [%s]\n}', b'[{"events": [%s]}]'])
def test_an_object_that_holds_only_lists_of_events_is_refused(sent: bytes) -> None:
    with pytest.raises(ValueError, match="its one object holds a list and no time, so it is no event; send"):
        lines_of(sent % ONE)


@pytest.mark.parametrize("sent", [b'{"at": 1, "items": [{}]}', b"{}", b'{"events": [1]}\n{"at": 1}'])
def test_an_object_that_may_be_an_event_is_stored(sent: bytes) -> None:
    assert lines_of(sent) == (sent + b"\n", 0)


@pytest.mark.anyio
async def test_a_reply_says_how_many_records_are_no_objects_and_again_when_it_is_repeated(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "clicks") as door:
        for sent in (b"lost\n" + ONE + b"\n7\n", b"[1," + ONE + b"]"):
            for is_duplicate in (False, True):
                answer = await door.send(sent, idempotency_key=str(len(sent)))
                records = sent.count(b"\n") or 2
                expected = {"records": records, "duplicate": is_duplicate, "undecodable": records - 1}
                assert (answer.status_code, answer.json()) == (200, expected)
        assert door.stored() == b"lost\n" + ONE + b"\n7\n1\n" + ONE + b"\n"


def test_a_broken_or_large_body_costs_little() -> None:
    """Nothing else is answered while a body is read, so its sender could delay the events of others."""
    with pytest.raises(
        ValueError, match="more than 10,000 lines of it, or 1 MiB of them, are no JSON object"
    ):
        lines_of(b"1\n" * 1_000_000 + ONE)
    with pytest.raises(
        ValueError, match=r"no line of it is a JSON object; .* array of objects of at most 4 MiB"
    ):
        lines_of(b"[" + b"1," * (body.MOST_ARRAY_BYTES // 2) + ONE + b"]")
    with pytest.raises(ValueError, match="no line of it is a JSON object"):
        lines_of(b"[NaN," + b" " * (1 << 16) + ONE + b"]")
    text = b"[ERROR] lost\n" + ONE + b"x" * body.MOST_ARRAY_BYTES + b"\n" + ONE + b"\n"
    assert lines_of(text) == (text, 2)
    for unclear in (b'{"a":NaN}\n' * 10_001, b'{"a":[' + b"NaN," * 9_999 + b"NaN]}\n"):
        with pytest.raises(ValueError, match="are no JSON object"):
            lines_of(ONE + b"\n" + unclear * (1 if len(unclear) > 99_999 else 30))
    data = ONE + b"\n" + b"x\n" * body.MOST_OTHERS
    assert lines_of(data) == (data, body.MOST_OTHERS)


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=8).filter(lambda line: b"\n" not in line and line.strip()),
            st.recursive(
                st.none() | st.integers() | st.text(max_size=3),
                lambda inner: (
                    st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
                ),
                max_leaves=4,
            ).map(lambda value: json.dumps(value, ensure_ascii=False).encode()),
        ),
        max_size=6,
    )
)
def test_the_reply_and_the_counting_agree_on_what_is_an_object(lines: list[bytes]) -> None:
    odd = [
        b"\0\0{}",
        b'{"a":1}\0\r',
        MARK + b"{}",
        b'{"a":"\\ud800"}',
        b'{"a":"\xff"}',
        b'{"a":1e999}',
        b"\0",
    ]
    for some in (lines, odd, [b'{"a":[' + b"1," * 70_000 + b"1]}"]):
        assert body.no_objects(some) == len(NdjsonDecoder(None).decode(some).refused)


@pytest.mark.parametrize(
    ("lines", "status", "said"),
    [
        (b'{"at": 1}\n{"at": 2}', 0, "2 lines are stored\n"),
        (b"at,page\n1,/a\n", 2, "2 of them are no JSON objects, and counting refuses them as undecodable"),
        (b'[{"at": 1},\n{"at": 2}]\n', 2, "write one JSON object per line"),
        (b'{"at": 1}\nlost\n', 0, "warning: 1 of them are no JSON objects"),
        (b"", 0, "0 lines are stored\n"),
    ],
)
def test_standard_input_says_how_many_lines_are_no_objects(
    tmp_path: Path, lines: bytes, status: int, said: str
) -> None:
    (tmp_path / "lines").write_bytes(lines)
    (tmp_path / "app.yaml").write_text(CONFIGURATION.format(port=1, slow="1s", more=""))
    kept = os.dup(0)
    try:
        with (tmp_path / "lines").open("rb") as file:
            os.dup2(file.fileno(), 0)
        ended = CliRunner().invoke(main, ["ingest", "-c", str(tmp_path / "app.yaml"), "--stdin", "clicks"])
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    assert (ended.exit_code, said in ended.output) == (status, True), ended.output
