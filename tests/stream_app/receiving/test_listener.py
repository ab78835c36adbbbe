"""The listener stores what authorised senders send, confirms what is durable, and shows nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stream_app.ports.access import ApiKey, digest_of
from stream_app.receiving import group_commit, standard_input
from stream_app.receiving.group_commit import GroupCommit
from stream_app.receiving.known_keys import KnownKeys
from stream_app.receiving.listener import Listener, WriteRules
from stream_app.receiving.spool_writer import Incoming, SpoolWriter
from stream_app.receiving.standard_input import store_lines
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.anyio
LIMIT = 1000
KEYS = (
    ApiKey("shop", digest_of("k-shop"), frozenset({"clicks"})),
    ApiKey("all", digest_of("k-all"), None),
    ApiKey("other", digest_of("k-other"), frozenset({"orders"})),
)


def event(number: int) -> bytes:
    """Return an event, one of many."""
    return b'{"n":%d}\n' % number


class Door:
    """A client of a listener with one spool."""

    def __init__(self, directory: Path, client: httpx.AsyncClient, commit: GroupCommit) -> None:
        self.directory, self.commit = directory, commit
        self.client = client

    async def send(
        self, body: bytes | None = b'{"a":1}\n', name: str = "clicks", key: str = "k-shop", **headers: str
    ) -> httpx.Response:
        """Send one request."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(
            f"/v1/ingest/{name}", content=body, headers={"authorization": f"Bearer {key}", **named}
        )

    async def get(self, path: str) -> httpx.Response:
        """Ask for something."""
        return await self.client.get(path)

    def stored(self) -> bytes:
        """Return all records."""
        return b"".join(path.read_bytes() for path in sorted(self.directory.glob("*.ndjson")))


@contextlib.asynccontextmanager
async def opened(directory: Path, keys: tuple[ApiKey, ...] | None = KEYS, **more: Any) -> AsyncIterator[Door]:
    """Yield a door to a new listener."""
    known = KnownKeys(10**12, more.pop("most_keys", 100))
    writer = SpoolWriter(directory, more.pop("most_bytes", 1 << 30), known)
    commit = GroupCommit(writer)
    app = Listener({"clicks": commit}, WriteRules(keys, LIMIT, **more))
    running = asyncio.create_task(commit.run())
    try:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8089") as client:
            yield Door(directory, client, commit)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        writer.close()


async def test_a_confirmed_request_is_stored_once(tmp_path: Path) -> None:
    async with opened(tmp_path / "clicks") as door:
        for duplicate in (False, True, True):
            answer = await door.send(b'{"a":1}\n{"a":2}', idempotency_key="1")
            assert (answer.status_code, answer.json()) == (200, {"records": 2, "duplicate": duplicate})
        assert (await door.send(b'{"a":3}\n')).json() == {"records": 1, "duplicate": False}
        assert door.stored() == b'{"a":1}\n{"a":2}\n{"a":3}\n'


async def test_keys_of_different_senders_are_separate(tmp_path: Path) -> None:
    async with opened(tmp_path / "clicks") as door:
        for key in ("k-shop", "k-all"):
            assert (await door.send(key=key, idempotency_key="1")).json()["duplicate"] is False


async def test_a_sender_with_too_many_keys_is_refused_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path / "clicks", most_keys=3) as door:
        await door.send(event(1), key="k-all", idempotency_key="1")
        answers = [await door.send(event(n), idempotency_key=str(n)) for n in range(5)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
        assert "send larger batches" in answers[-1].json()["error"]
        assert (await door.send(event(1), key="k-all", idempotency_key="1")).json()["duplicate"]
        assert (await door.send(event(0), idempotency_key="0")).json()["duplicate"]
        assert (await door.send(event(9), key="k-all", idempotency_key="2")).status_code == 200
        assert (await door.send(event(8))).status_code == 200  # needs no memory
        assert door.stored() == b"".join(map(event, (1, 0, 1, 2, 9, 8)))
    assert "key:shop" in caplog.text
    assert "raise ingest.most_keys" in caplog.text


async def test_an_open_listener_bounds_the_keys_of_everybody_together(tmp_path: Path) -> None:
    async with opened(tmp_path / "clicks", keys=None, most_keys=3) as door:
        answers = [await door.send(event(n), idempotency_key=str(n)) for n in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]


async def test_another_body_under_a_key_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path / "clicks") as door:
        await door.send(event(1), idempotency_key="1")
        answer = await door.send(event(2), idempotency_key="1")
        assert (answer.status_code, "another body" in answer.json()["error"]) == (422, True)
        assert door.stored() == event(1)


@pytest.mark.parametrize(
    ("request_", "status", "said"),
    [
        ({"key": "k-wrong"}, 401, "a key of ingest.keys is needed"),
        ({"key": "k-other"}, 403, "this key may not write to clicks"),
        ({"name": "orders", "key": "k-other"}, 404, "no stream has source.http: orders"),
        ({"body": b"x" * (LIMIT + 1)}, 413, "exceeds 1,000 bytes (ingest.max_body)"),
        ({"idempotency_key": "a b"}, 400, "Idempotency-Key must be"),
        ({"idempotency_key": "x" * 201}, 400, "Idempotency-Key must be"),
        ({"origin": "http://evil.example"}, 403, "add it to ingest.origins"),
        ({"host": "evil.example"}, 421, "add it to ingest.hosts"),
        ({"content_length": "1e3"}, 411, "Content-Length is needed"),
        ({"content_length": "9" * 30}, 413, "exceeds"),
    ],
)
async def test_a_refused_request_stores_nothing(
    tmp_path: Path, request_: dict[str, Any], status: int, said: str
) -> None:
    async with opened(tmp_path / "clicks") as door:
        answer = await door.send(**request_)
        assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text
        assert answer.headers["connection"] == "close"
        assert door.stored() == b""


async def test_a_page_of_a_known_origin_may_send(tmp_path: Path) -> None:
    async with opened(tmp_path / "clicks", origins=("https://shop.example",)) as door:
        assert (await door.send(origin="https://shop.example")).status_code == 200


async def test_nothing_can_be_read(tmp_path: Path) -> None:
    async with opened(tmp_path / "clicks") as door:
        for path in ("/v1/ingest/clicks", "/", "/v1/streams", "/metrics", "/v1/ingest/../clicks"):
            assert (await door.get(path)).status_code == 404
        assert (await door.get("/healthz")).json() == {"status": "ok"}


async def test_an_empty_body_is_no_batch(tmp_path: Path) -> None:
    async with opened(tmp_path / "clicks") as door:
        answer = await door.send(b"", idempotency_key="1")
        assert (answer.status_code, answer.json()["records"], door.stored()) == (200, 0, b"")


async def test_a_full_spool_answers_507(tmp_path: Path) -> None:
    async with opened(tmp_path / "clicks", most_bytes=100) as door:
        assert (await door.send(event(1))).status_code == 200
        answer = await door.send(event(2), idempotency_key="1")
        assert (answer.status_code, door.stored()) == (507, event(1))


async def test_a_failed_disk_answers_503_and_a_retry_is_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "clicks") as door:

        def refused(_: int) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", refused)
            assert (await door.send(event(1), idempotency_key="1")).status_code == 503
        answer = await door.send(event(1), idempotency_key="1")
        assert (answer.status_code, answer.json()["duplicate"]) == (200, True)
        assert door.stored() == event(1)


async def test_requests_that_wait_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs, may_go, fdatasync = [0], threading.Event(), os.fdatasync

    def slow(descriptor: int) -> None:
        syncs[0] += 1
        may_go.wait(PATIENCE_S)
        fdatasync(descriptor)

    async with opened(tmp_path / "clicks") as door:
        monkeypatch.setattr(os, "fdatasync", slow)
        first = asyncio.create_task(door.send(event(0)))
        await asyncio.sleep(0.05)
        others = [asyncio.create_task(door.send(event(number))) for number in range(1, 20)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in (first, *others))  # no reply before the sync
        may_go.set()
        answers = await asyncio.gather(first, *others)
        assert {answer.status_code for answer in answers} == {200}
        assert syncs[0] == 4  # two files, twice
        assert door.stored().count(b"\n") == 20


async def test_a_listener_that_is_stopped_ends_its_write_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are closed next; a write after that could go into another file."""
    may_go, done, fdatasync = threading.Event(), list[int](), os.fdatasync

    def slow(descriptor: int) -> None:
        may_go.wait(PATIENCE_S)
        fdatasync(descriptor)
        done.append(descriptor)

    writer = SpoolWriter(tmp_path / "clicks", 1 << 30, KnownKeys(10**12, 100))
    commit = GroupCommit(writer)
    running = asyncio.create_task(commit.run())
    storing = asyncio.create_task(commit.store("a", Incoming(b"1\n")))
    monkeypatch.setattr(os, "fdatasync", slow)
    await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.sleep(0.05)
    assert not running.done()
    may_go.set()
    await asyncio.gather(running, return_exceptions=True)
    assert len(done) == 2
    storing.cancel()
    writer.close()


async def test_a_sender_with_much_does_not_fill_the_memory_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "MOST_OF_ONE_BYTES", 10)
    monkeypatch.setattr(group_commit, "MOST_WAITING_BYTES", 20)
    may_go, fdatasync = threading.Event(), os.fdatasync

    def slow(descriptor: int) -> None:
        may_go.wait(PATIENCE_S)
        fdatasync(descriptor)

    async with opened(tmp_path / "clicks") as door:
        monkeypatch.setattr(os, "fdatasync", slow)
        tasks = [asyncio.create_task(door.send(event(1))) for _ in range(5)]
        await asyncio.sleep(0.05)
        tasks.append(asyncio.create_task(door.send(event(9), key="k-all")))
        await asyncio.sleep(0.05)
        may_go.set()
        assert {answer.status_code for answer in await asyncio.gather(*tasks)} == {200}
        stored = door.stored().split(b"\n")[:-1]
        assert stored.index(event(9).strip()) == 1  # beside the first one of the other sender
        assert len(stored) == 6


def test_a_disk_that_fails_for_a_while_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        writer = SpoolWriter(tmp_path / "clicks", 1 << 30, KnownKeys(10**12, 100))
        commit = GroupCommit(writer)
        running = asyncio.create_task(commit.run())

        def refused(_: int) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", refused)
            patch.setattr(os, "fsync", refused)
            for _ in range(3):
                with pytest.raises(OSError, match="Input/output"):
                    await commit.store("a", Incoming(b"1\n", "key"))
        assert not (await commit.store("a", Incoming(b"1\n", "key"))).is_new
        assert (await commit.store("a", Incoming(b"2\n"))).is_new
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        writer.close()

    asyncio.run(run())
    said = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert said == [
        "events cannot be stored (Input/output error); trying again",
        "events are stored again",
    ]


@pytest.mark.parametrize("text", [b"", b"1\n", b"1\n2", b"1\n" * 100_000 + b"2"])
def test_all_lines_of_an_input_are_stored(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "input").write_bytes(text)
    writer = SpoolWriter(tmp_path / "clicks", 1 << 30, KnownKeys(10**12, 100))
    with (tmp_path / "input").open("rb") as file:
        records, others = store_lines(writer, file.fileno())
    writer.close()
    whole = text if not text or text.endswith(b"\n") else text + b"\n"
    assert (records, others) == (whole.count(b"\n"),) * 2  # numbers are no objects
    assert b"".join(path.read_bytes() for path in (tmp_path / "clicks").glob("*.ndjson")) == whole


def test_a_line_without_end_neither_fills_the_memory_nor_keeps_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standard_input, "LONGEST_LINE_BYTES", 3 << 20)
    (tmp_path / "input").write_bytes(b"1\n" + b"x" * (5 << 20) + b"y\n2\n")
    writer = SpoolWriter(tmp_path / "clicks", 1 << 30, KnownKeys(10**12, 100))
    with (tmp_path / "input").open("rb") as file:
        assert store_lines(writer, file.fileno()) == (3, 3)
    writer.close()
    stored = b"".join(path.read_bytes() for path in (tmp_path / "clicks").glob("*.ndjson"))
    assert stored == b"1\n" + b"x" * 1024 + b"\n2\n"
