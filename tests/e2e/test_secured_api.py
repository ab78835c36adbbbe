"""The secured API over real sockets: TLS, keys, a proxy, origins and limits."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from deploy.ports import free_port
from stream_app.client import Client, ClientError
from stream_app.config.key_file import add_key
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.redis_store import RedisStore
from tests.certificates import write_certificates
from tests.e2e.service import Service
from tests.patience import PATIENCE_S, eventually
from tests.stream_app.published import Published

pytestmark = [pytest.mark.redis, pytest.mark.slow]

PER_S = 10
MORE_THAN_BUFFERS_HOLD = 2**26  # bytes
PROXY = "127.0.0.2"  # another address of this machine
CONFIG = """\
redis: {{url: "{redis}"}}
streams:
  departures:
    source: {{file: departures.ndjson}}
    time: {{field: at, format: iso8601, bin: 1h, grace: 0s, epoch: 1d}}
    privacy: {{epsilon: 1.0}}
    annotations: [{{at: 2013-01-01T00:00:00Z, text: New year}}]
boards:
  wall:
    panels: {{hours: {{show: bins, streams: [departures]}}}}
    embed: ["https://intranet.example.org"]
api:
  port: {port}
  keys: keys.ndjson
  proxy: {{header: X-Forwarded-User, addresses: [{proxy}]}}
  origins: ["https://charts.example.org"]
  requests_per_s: {per_s}
  tls: {{certificate: {certificate}, key: server.key}}
"""


class Door:
    """A service that answers over TLS, with the certificate to trust and the keys of its readers."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.url, self.port = f"https://127.0.0.1:{port}", port
        self.trust = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        self.keys = {name: add_key(folder / "keys.ndjson", name, []) for name in ("ann", "bob", "eve")}

    def ask(self, path: str, name: str | None = None, **options: object) -> httpx.Response:
        """Send a request with a reader's key, or without a key. Args: source, the address to send from."""
        headers = dict(options.pop("headers", {}))  # type: ignore[call-overload]
        if name is not None:
            headers["Authorization"] = f"Bearer {self.keys[name]}"
        method, source = str(options.pop("method", "GET")), str(options.pop("source", "127.0.0.1"))
        transport = httpx.HTTPTransport(verify=self.trust, local_address=source)
        with httpx.Client(base_url=self.url, transport=transport, timeout=PATIENCE_S) as client:
            return client.request(method, path, headers=headers, **options)  # type: ignore[arg-type]


@contextmanager
def secured(door: Door) -> Iterator[ssl.SSLSocket]:
    """Yield a TLS connection to the service, on which a test may send any bytes."""
    with (
        socket.create_connection(("127.0.0.1", door.port), timeout=PATIENCE_S) as plain,
        door.trust.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        yield connection


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder, port = tmp_path_factory.mktemp("door"), free_port()
    write_certificates(folder, "server")
    with EmbeddedRedis(folder / "redis") as redis:
        asyncio.run(release(redis.worker_url))
        found = Door(folder, port)
        write_config(folder, redis.api_url, port)
        with Service(["api", "--config", "app.yaml"], folder) as service:
            service.until_true(lambda: healthy(found), "it answers")
            yield found
            assert service.interrupt() == 0


def write_config(folder: Path, redis: str, port: int, certificate: str = "server.pem") -> None:
    names = {"certificate": certificate, "proxy": PROXY, "per_s": PER_S}
    (folder / "app.yaml").write_text(CONFIG.format(redis=redis, port=port, **names))


async def release(url: str) -> None:
    store = RedisStore(url)
    stream = Published(store)  # type: ignore[arg-type]
    await stream.open()
    await stream.close([5, 6, 7])
    await store.close()


def healthy(door: Door) -> bool:
    try:
        return door.ask("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def test_only_tls_that_is_verified_gets_an_answer(door: Door) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{door.url}/healthz")
    with pytest.raises(httpx.TransportError):
        httpx.get(door.url.replace("https", "http") + "/healthz")
    with secured(door) as connection:
        assert connection.version() in ("TLSv1.2", "TLSv1.3")


def test_the_certificate_is_replaced_while_it_serves(door: Door) -> None:
    write_certificates(door.folder, "server")
    door.trust = ssl.create_default_context(cafile=str(door.folder / "ca.pem"))
    eventually(lambda: healthy(door), "a new connection gets the new certificate")


def test_a_client_with_a_key_reads_and_follows_over_tls(door: Door) -> None:
    def client(key: str | None) -> Client:
        return Client(door.url, key, transport=httpx.HTTPTransport(verify=door.trust))

    with client(door.keys["ann"]) as one:
        assert one.count("departures").seq == 3
        follower = one.follow("departures", after=0)
        assert [next(follower).seq for _ in range(3)] == [1, 2, 3]
    for wrong in (None, door.keys["ann"][:-1], "x"):
        with client(wrong) as one, pytest.raises(ClientError, match="a key is needed") as refused:
            one.count("departures")
        assert refused.value.status == 401


def test_a_key_is_granted_and_revoked_while_the_service_runs(door: Door) -> None:
    def until(status: int) -> None:
        eventually(lambda: door.ask("/v1/streams", "tom").status_code == status, f"{status}", 0.2)

    path = door.folder / "keys.ndjson"
    before = path.read_text()
    door.keys["tom"] = add_key(path, "tom", [])
    until(200)
    path.write_text(before)
    until(401)
    assert door.ask("/v1/streams", "ann").status_code == 200


def test_the_key_of_a_board_opens_its_board_until_it_is_revoked(door: Door) -> None:
    def until(status: int) -> None:
        eventually(lambda: door.ask("/v1/boards/wall", "frame").status_code == status, f"{status}", 0.2)

    path = door.folder / "keys.ndjson"
    before = path.read_text()
    door.keys["frame"] = add_key(path, "frame", (), ("wall",))
    until(200)
    detail = door.ask("/v1/streams/departures", "frame").json()
    assert [one["text"] for one in detail["annotations"]] == ["New year"]
    for closed in (
        "/v1/streams",
        "/v1/streams/departures/nodes",
        "/v1/streams/departures/events",
        "/metrics",
    ):
        assert door.ask(closed, "frame").status_code == 403
    asked = {"Origin": "https://intranet.example.org", "Access-Control-Request-Method": "GET"}
    answer = door.ask("/v1/boards/wall", method="OPTIONS", headers=asked)
    assert (
        "access-control-allow-origin" not in answer.headers
    )  # its pages may frame, their scripts may not ask
    page = door.ask("/embed/wall")  # a frame loads it without a key
    assert (page.status_code, door.ask("/boards/wall").status_code) == (200, 401)
    assert "frame-ancestors https://intranet.example.org;" in page.headers["content-security-policy"]
    path.write_text(before)
    until(401)


def test_a_header_lets_in_from_the_proxys_address_only(door: Door) -> None:
    user = {"X-Forwarded-User": "ann"}
    assert door.ask("/v1/streams", headers=user, source=PROXY).status_code == 200
    assert door.ask("/v1/streams", source=PROXY).status_code == 401
    assert door.ask("/v1/streams", headers=user).status_code == 401
    forwarded = user | {"X-Forwarded-For": PROXY, "Forwarded": f"for={PROXY}"}
    assert door.ask("/v1/streams", headers=forwarded).status_code == 401


def test_browsers_of_one_origin_may_ask(door: Door) -> None:
    for origin, allowed in (("https://charts.example.org", True), ("https://evil.example.org", False)):
        asked = {"Origin": origin, "Access-Control-Request-Method": "GET"}
        first = door.ask("/v1/streams", method="OPTIONS", headers=asked)
        then = door.ask("/v1/streams", "ann", headers={"Origin": origin})
        for answer in (first, then):
            assert (answer.headers.get("access-control-allow-origin") == origin) is allowed
        assert then.status_code == 200


def test_only_a_reader_beyond_its_rate_waits(door: Door) -> None:
    transport = httpx.HTTPTransport(verify=door.trust)
    headers = {"Authorization": f"Bearer {door.keys['eve']}"}
    with httpx.Client(base_url=door.url, transport=transport, headers=headers, timeout=PATIENCE_S) as eve:
        found = [eve.get("/v1/streams")]
        while found[-1].status_code == 200 and len(found) < 100 * PER_S:
            found.append(eve.get("/v1/streams"))
    statuses = [one.status_code for one in found]
    assert statuses[-1] == 429
    assert len(statuses) > 2 * PER_S
    late = found[-1]
    assert int(late.headers["retry-after"]) >= 1
    assert late.json()["error"] == f"more than {PER_S} requests a second; ask more slowly"
    assert door.ask("/v1/streams", "bob").status_code == 200


def test_questions_that_are_too_large_are_refused(door: Door) -> None:
    assert door.ask("/v1/streams?" + "x" * 9_000, "bob").status_code == 414
    large = door.ask("/api/v1/query", "bob", method="POST", content=b"x" * 20_000)
    assert large.status_code == 413
    assert door.ask("/v1/streams/departures/series?points=11001", "bob").status_code in (400, 422)
    line = door.ask("/v1/streams/departures/count?end=2014-01-01T00:00:00Z", "bob").json()["error"]
    assert "is outside what is released" in line
    steps = {
        "query": "private_counts_bin",
        "start": "0",
        "end": "1e9".replace("1e9", "1000000000"),
        "step": "1",
    }
    refused = door.ask("/api/v1/query_range", "bob", params=steps)
    assert refused.status_code == 400
    assert "at most 11,000" in refused.json()["error"]


def test_headers_and_bodies_without_an_end_are_cut_off(door: Door) -> None:
    key = door.keys["bob"]
    known, unknown = (f"Authorization: Bearer {one}\r\n" for one in (key, "nobody's"))
    endless, long = "Transfer-Encoding: chunked\r\n\r\n", "Content-Length: 999999999999\r\n\r\n"
    chunk, header = "1000\r\n" + "x" * 4096 + "\r\n", "X-A: " + "x" * 4096 + "\r\n"
    post = "POST /api/v1/query HTTP/1.1\r\nHost: x\r\n"
    for head, more in (
        (post + known + endless, chunk),
        (post + unknown + endless, chunk),
        (post + known + long, "x" * 4096),
        ("GET / HTTP/1.1\r\n", header),
    ):
        with secured(door) as connection:
            connection.sendall(head.encode())
            sent = 0
            with suppress(OSError):  # the service closes the connection
                while sent < MORE_THAN_BUFFERS_HOLD:
                    connection.sendall(more.encode())
                    sent += len(more)
            assert sent < MORE_THAN_BUFFERS_HOLD
    assert door.ask("/healthz").status_code == 200


def test_files_that_do_not_fit_are_refused_in_one_line(tmp_path: Path) -> None:
    write_certificates(tmp_path, "server", "other")
    add_key(tmp_path / "keys.ndjson", "ann", [])
    write_config(tmp_path, "redis://127.0.0.1:1/0", free_port(), "other.pem")
    with Service(["api", "--config", "app.yaml"], tmp_path) as service:
        assert service.wait() != 0
        line = service.lines[-1]  # earlier lines are about the store, which is missing too
        assert line.startswith("stream-app: api.tls: the certificate or its key cannot be used")
