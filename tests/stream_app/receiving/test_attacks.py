"""The listener on real connections: hostile, broken and slow senders store nothing and delay nobody."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deploy.ports import free_port
from stream_app.config.key_file import add_key
from stream_app.ports import OperatorError
from stream_app.receiving import listener
from stream_app.wiring.receiving import receive_lines, run_ingest
from tests.certificates import write_certificates
from tests.patience import PATIENCE_S, eventually
from tests.stream_app.receiving.running import HEAD, Running, settings_of

pytestmark = pytest.mark.slow


@pytest.fixture(name="running")
def _running(tmp_path: Path) -> Iterator[Running]:
    with Running(settings_of(tmp_path)) as running:
        yield running
        assert running.send(b"{}\n")[0] == 200  # whatever came before, the next sender is served


def test_a_large_body_gets_its_refusal_although_its_sender_reads_only_at_the_end(running: Running) -> None:
    status, text = running.send(b"x" * 20_000_000)
    assert (status, "exceeds 1,000,000 bytes (ingest.max_body)" in text) == (413, True)
    assert running.stored() == b""


def test_a_sender_that_waits_for_permission_is_refused_before_it_sends(running: Running) -> None:
    head = f"{HEAD}Content-Length: 20000000\r\nExpect: 100-continue\r\n\r\n".encode()
    assert running.exchange(head).startswith(b"HTTP/1.1 413")
    with running.connection() as connection:
        connection.sendall(f"{HEAD}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        connection.sendall(b"{}")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert running.stored() == b"{}\n"


@pytest.mark.parametrize(
    ("headers", "body", "status", "said"),
    [
        ("Transfer-Encoding: chunked", b"2\r\n1\n\r\n0\r\n\r\n", 400, "Transfer-Encoding is not accepted"),
        ("Content-Length: 2\r\nTransfer-Encoding: chunked", b"0\r\n\r\n", 400, "Transfer-Encoding"),
        ("Content-Length: 2\r\nContent-Length: 3", b"1\n", 400, ""),
        ("Content-Length: -2", b"1\n", 400, ""),
        ("Content-Length: 2\r\nX-Long: " + "x" * 40_000, b"1\n", 400, ""),
        ("Content-Length: 2\r\nContent-Encoding: gzip", b"1\n", 415, "send the events uncompressed"),
        ("Content-Length: 2\r\nContent-Encoding: br, gzip", b"1\n", 415, "send the events uncompressed"),
        ("", b"", 411, "Content-Length is needed"),
        ("Content-Length: 2\r\nIdempotency-Key: \xe9", b"1\n", 400, "visible ASCII"),
    ],
)
def test_a_malformed_request_stores_nothing(
    running: Running, headers: str, body: bytes, status: int, said: str
) -> None:
    sent = HEAD + (f"{headers}\r\n" if headers else "") + "\r\n"
    answer = running.exchange(sent.encode("latin-1") + body)
    assert int(answer.split()[1]) == status, answer
    assert said in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert running.stored() == b""


def test_a_path_of_any_bytes_is_refused(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    for path in (
        b"/v1/ingest/\xff\xfe",
        b"/v1/ingest/%ff",
        b"/v1/ingest/..%2fx",
        b"//",
        b"/v1/ingest/clicks/",
    ):
        head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        assert running.exchange(head).split()[1:2] in ([b"404"], [b"400"])
    assert caplog.records == []  # nobody can fill the log


def test_a_small_body_that_would_be_large_is_not_unpacked(running: Running) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    assert running.send(bomb, "Content-Encoding: gzip")[0] == 415


def test_half_a_body_is_not_stored(tmp_path: Path) -> None:
    with Running(settings_of(tmp_path, slow="1s")) as running:
        with running.connection() as connection:
            connection.sendall(f"{HEAD}Content-Length: 10\r\n\r\n1\n2\n".encode())
        answer = running.exchange(f"{HEAD}Content-Length: 10\r\n\r\n1\n".encode())
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"did not arrive within 1 s; send it at once (ingest.limits.slow)" in answer
        assert running.stored() == b""


def test_pipelined_requests_are_stored_in_their_order(running: Running) -> None:
    one = HEAD + 'Content-Length: 8\r\nIdempotency-Key: {}\r\n\r\n{{"n":{}}}\n'
    sent = "".join(one.format(key, body) for key, body in ((1, 1), (2, 2), (1, 1), (1, 3)))
    answers = running.exchange(sent.encode())
    assert [answers.count(b"HTTP/1.1 %d" % status) for status in (200, 422)] == [3, 1]
    assert running.stored() == b'{"n":1}\n{"n":2}\n'


def test_one_address_has_so_many_connections_and_learns_the_limit(running: Running) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(running.connection())
        time.sleep(0.1)
        answer = running.exchange()
        assert answer.startswith(b"HTTP/1.1 429")
        assert b"ingest.limits.connections_per_address" in answer

    def is_free() -> bool:
        with contextlib.suppress(ConnectionError):  # refused while it was sending
            return running.send(b"{}\n")[0] == 200
        return False

    eventually(is_free, "their places are free")


def test_bodies_that_wait_do_not_fill_the_memory(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MOST_OF_ONE_BYTES", 150_000)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            waiting = stack.enter_context(running.connection())
            waiting.sendall(f"{HEAD}Content-Length: 90000\r\n\r\n".encode() + b"x" * 89_000)
        refused: list[tuple[int, bool]] = []

        def is_refused() -> bool:
            status, text = running.send(b"x" * 90_000)
            refused.append((status, "too many bytes of unanswered requests" in text))
            return refused[-1] == (429, True)

        eventually(is_refused, lambda: f"a sender is refused: {refused}")


def test_a_sender_with_a_key_cannot_store_for_another_one(tmp_path: Path) -> None:
    keys = [add_key(tmp_path / "writers.ndjson", name, ["clicks"]) for name in ("shop", "other")]
    with Running(settings_of(tmp_path, ", keys: writers.ndjson")) as running:
        for key, body in zip(keys, (b"{}\n", b"{ }\n"), strict=True):
            status, text = running.send(body, f"Authorization: Bearer {key}", "Idempotency-Key: 1")
            assert (status, json.loads(text)["duplicate"]) == (200, False)
        for wrong in ("", keys[0][:-1], keys[0] + "x", "é"):
            status, text = running.send(b"3\n", f"Authorization: Bearer {wrong}")
            assert (status, running.stored()) == (401, b"{}\n{ }\n")


def test_events_arrive_over_tls(tmp_path: Path) -> None:
    write_certificates(tmp_path, "server")
    settings = settings_of(tmp_path, ", tls: {certificate: server.pem, key: server.key}")
    with Running(settings) as running:
        trust = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        with trust.wrap_socket(running.connection(), server_hostname="127.0.0.1") as connection:
            connection.sendall(f"{HEAD}Content-Length: 2\r\n\r\n{{}}".encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        with running.connection() as plain, contextlib.suppress(OSError):
            plain.sendall(f"{HEAD}Content-Length: 2\r\n\r\n{{}}".encode())
            assert not plain.recv(1000).startswith(b"HTTP")
        assert running.stored() == b"{}\n"
        write_certificates(tmp_path, "server")  # by another authority

        def trusted() -> bool:
            trust = ssl.create_default_context(cafile=tmp_path / "ca.pem")
            with contextlib.suppress(ssl.SSLError), running.connection() as plain:
                trust.wrap_socket(plain, server_hostname="127.0.0.1").close()
                return True
            return False

        eventually(trusted, "a new connection gets the new certificate")


def test_a_stop_answers_the_requests_in_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fdatasync, answers = os.fdatasync, list[bytes]()

    def slow(descriptor: int) -> None:
        time.sleep(0.3)
        fdatasync(descriptor)

    with Running(settings_of(tmp_path)) as running:
        monkeypatch.setattr(os, "fdatasync", slow)
        head = f"{HEAD}Content-Length: 2\r\n\r\n{{}}".encode()
        sender = threading.Thread(target=lambda: answers.append(running.exchange(head)))
        sender.start()
        time.sleep(0.1)
    sender.join()
    assert answers[0].startswith(b"HTTP/1.1 200")


def test_the_operator_sees_what_arrives_and_nobody_else(tmp_path: Path) -> None:
    port = free_port()
    own = f", operator_port: {port}, max_size: 1GB}}\noperator: {{port: 1, token: {'t' * 20}"
    with Running(settings_of(tmp_path, own)) as running:
        for body in (b"{}\n{}\n", b"{}\n{}\n", b"{}\n"):
            running.send(body, "Idempotency-Key: " + str(len(body)))
        running.send(b"4\n", "Content-Encoding: gzip")
        running.exchange(b"POST /v1/ingest/other HTTP/1.1\r\nHost: localhost\r\n\r\n")
        running.exchange(b"nonsense\r\n\r\n")
        with pytest.raises(httpx.HTTPStatusError):
            httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S).raise_for_status()
        bearer = {"Authorization": "Bearer " + "t" * 20}
        found = httpx.get(f"http://127.0.0.1:{port}/metrics", headers=bearer, timeout=PATIENCE_S)
        kept = sum(path.stat().st_size for path in (tmp_path / "spool/clicks").glob("0*"))
    values = dict(line.rsplit(" ", 1) for line in found.text.splitlines() if not line.startswith("#"))
    expected = {
        'ingest_answers_total{spool="clicks",status="200"}': 3,
        'ingest_answers_total{spool="clicks",status="415"}': 1,
        'ingest_answers_total{spool="",status="404"}': 1,
        'ingest_answers_total{spool="",status="400"}': 1,
        'ingest_answers_total{spool="clicks",status="507"}': 0,
        'ingest_records_total{spool="clicks"}': 3,
        'ingest_bytes_total{spool="clicks"}': 9,
        'ingest_duplicates_total{spool="clicks"}': 1,
        'ingest_seconds_count{spool="clicks"}': 4,
        'spool_bytes{spool="clicks"}': kept,
        'spool_limit_bytes{spool="clicks"}': 1e9,
    }
    assert {name: float(values[f"stream_app_{name}"]) for name in expected} == expected
    assert 0 <= float(values['stream_app_spool_oldest_seconds{spool="clicks"}']) < 60


def test_a_spool_has_one_listener_and_standard_input_may_join_it(tmp_path: Path) -> None:
    with Running(settings_of(tmp_path)) as running:
        with pytest.raises(OperatorError, match="another process receives events for it"):
            asyncio.run(run_ingest(settings_of(tmp_path)))
        (tmp_path / "lines").write_bytes(b"2\n{}\n")
        assert running.send(b"{}\n", "Idempotency-Key: 1")[0] == 200
        with (tmp_path / "lines").open("rb") as lines:
            assert receive_lines(running.settings, "clicks", lines.fileno()) == (2, 1)
        assert running.send(b"{ }\n")[0] == 200
        assert json.loads(running.send(b"{}\n", "Idempotency-Key: 1")[1])["duplicate"] is True
        assert running.stored() == b"{}\n2\n{}\n{ }\n"


def test_directories_that_others_may_enter_are_closed(tmp_path: Path) -> None:
    """The names of the parts say how many bytes arrived."""
    (tmp_path / "spool").mkdir(mode=0o755)
    with Running(settings_of(tmp_path)) as running:
        running.send(b"{}\n")
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "spool", *(tmp_path / "spool").rglob("*"))}
    assert modes == {0}
