"""Access to the API: keys and their streams, a trusted proxy, limits, and how bad requests are refused."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from stream_app.api.admission.access import Access, AccessRules, Budgets
from stream_app.config import key_file
from stream_app.config.key_file import add_key, follow_keys, read_keys
from stream_app.ports import OperatorError
from stream_app.ports.access import ApiKey, digest_of
from tests.patience import PATIENCE_S
from tests.stream_app.api.client import asking, two_streams

pytestmark = pytest.mark.slow

KEYS = (
    ApiKey("all", digest_of("k-all"), None),
    ApiKey("one", digest_of("k-one"), frozenset({"clicks"})),
)


@asynccontextmanager
async def asked_of_two(
    rules: AccessRules, address: str = "10.0.0.9", source: str | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a service with two streams. Args: source, of both; None: each has its own."""
    async with asking(await two_streams(source), rules, address) as (_, client):
        yield client


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def basic(key: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"anyone:{key}".encode()).decode()}


async def test_request_without_a_key_gets_only_health() -> None:
    async with asked_of_two(AccessRules(keys=KEYS)) as client:
        paths = (
            *("/", "/docs", "/dashboard/stream.js", "/openapi.json", "/metrics", "/v1/streams", "/v1/alerts"),
            *("/v1/streams/clicks/count", "/v1/streams/clicks/events", "/api/v1/query?query=1", "/nowhere"),
        )
        keys = ("Bearer k-on", "Bearer ", f"Bearer {digest_of('k-all')}", "Basic !")
        for path in paths:
            for headers in ({}, *({"Authorization": key} for key in keys)):
                response = await client.get(path, headers=headers)
                assert response.status_code == 401, (path, headers)
                assert response.headers["www-authenticate"].startswith("Basic")
                assert "Bearer KEY" in response.json()["error"]
                assert "content-security-policy" in response.headers
        assert (await client.get("/healthz")).status_code == 200


async def test_key_reads_its_streams_and_sees_no_others() -> None:
    async with asked_of_two(AccessRules(keys=KEYS)) as client:
        for headers, seen in ((bearer("k-all"), {"clicks", "views"}), (basic("k-one"), {"clicks"})):
            for path in ("/v1/streams", "/v1/overview"):
                listed = (await client.get(path, headers=headers)).json()["streams"]
                assert {one["stream"] for one in listed} == seen
            for name in ("clicks", "views"):
                for path in ("", "/count", "/series", "/nodes", "/privacy", "/marks"):
                    response = await client.get(f"/v1/streams/{name}{path}", headers=headers)
                    assert response.status_code == (200 if name in seen else 404), (name, path)
            values = (await client.get("/api/v1/label/stream/values", headers=headers)).json()
            assert set(values["data"]) == seen
            text = (await client.get("/metrics", headers=headers)).text
            assert ('stream="views"' in text) == ("views" in seen)
            query = {"query": '{stream=~".+"}', "time": "1357009200"}
            found = (await client.get("/api/v1/query", params=query, headers=headers)).json()
            assert {one["metric"]["stream"] for one in found["data"]["result"]} == seen
        # A stream that a key does not open gets the same answer as an unknown stream.
        theirs = await client.get("/v1/streams/views/count", headers=bearer("k-one"))
        nobodys = await client.get("/v1/streams/nothing/count", headers=bearer("k-one"))
        assert theirs.json()["error"].replace("views", "nothing") == nobodys.json()["error"]


async def test_removed_key_reads_nothing_and_its_open_answers_end() -> None:
    rules = AccessRules(keys=KEYS)
    sent: list[Message] = []
    gone, read = asyncio.Event(), asyncio.Event()

    pushed: list[bytes] = []

    class Connection:
        def push(self, part: bytes) -> bool:
            pushed.append(part)
            return True

    connection = Connection()

    async def follower(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        push = scope["state"]["push"]
        assert push(b"before")
        for part in (b"first", b"second", b"third"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
            if part == b"first":
                await gone.wait()
                assert not push(b"after")

    async def collect(message: Message) -> None:
        sent.append(message)
        if message.get("body") == b"first":
            read.set()

    async def nothing() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    access = Access(follower, rules)
    said = {"Host": "localhost"} | bearer("k-one")
    headers = [(name.lower().encode(), value.encode()) for name, value in said.items()]
    scope = {
        "type": "http",
        "path": "/v1/streams/clicks/events",
        "headers": headers,
        "client": ("::1", 1),
        "state": {"connection": lambda: connection},
    }
    following = asyncio.create_task(access(scope, nothing, collect))
    await read.wait()
    rules.keys = (KEYS[0], ApiKey("one", digest_of("k-one"), frozenset({"views"})))
    gone.set()
    await following
    assert [message.get("body") for message in sent] == [None, b"first", b""]
    assert sent[-1]["more_body"] is False
    assert pushed == [b"before"]
    for left in (KEYS[:1], ()):  # with an empty list of keys nobody has access
        rules.keys = left
        sent.clear()
        await access(scope, nothing, collect)
        assert sent[0]["status"] == 401


def test_keys_are_read_again_when_their_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(key_file, "LOOK_EVERY_S", 0.01)
    path, taken = tmp_path / "keys.ndjson", asyncio.Queue[tuple[str, ...]]()

    async def run() -> None:
        add_key(path, "ann", [])
        names = lambda keys: taken.put_nowait(tuple(key.name for key in keys))  # noqa: E731
        following = asyncio.create_task(follow_keys(path, names))
        # even if the file changed since the start
        assert await asyncio.wait_for(taken.get(), PATIENCE_S) == ("ann",)
        add_key(path, "bob", [])
        assert await asyncio.wait_for(taken.get(), PATIENCE_S) == ("ann", "bob")
        # A removed key opens nothing, even if something else is wrong with the file.
        path.write_text("not a key\n" + path.read_text().splitlines(keepends=True)[1])
        assert await asyncio.wait_for(taken.get(), PATIENCE_S) == ("bob",)
        assert "keys.ndjson:1 is not a key; take the line out; the other keys hold" in caplog.text
        path.write_text("")
        assert await asyncio.wait_for(taken.get(), PATIENCE_S) == ()
        add_key(path, "eve", [])
        assert await asyncio.wait_for(taken.get(), PATIENCE_S) == ("eve",)
        path.write_bytes(b"\xff")
        while "the keys that were read before still hold" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        path.unlink()
        assert await asyncio.wait_for(taken.get(), PATIENCE_S) == ()
        assert caplog.text.count("nobody is let in") == 2
        following.cancel()

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


async def test_ledger_shows_epsilon_of_unreadable_streams_without_their_names() -> None:
    async with asked_of_two(AccessRules(keys=KEYS), source="events.ndjson") as client:
        names = []
        for headers in (bearer("k-all"), basic("k-one")):
            told = (await client.get("/v1/streams/clicks/privacy", headers=headers)).json()
            names.append(sorted(row["stream"] for row in told["ledger"]))
            assert told["source_epsilon"] == "2"
        assert names == [["clicks", "views"], ["another stream", "clicks"]]


async def test_user_header_is_accepted_only_from_the_proxy() -> None:
    rules = AccessRules(proxy_header="X-Forwarded-User", proxies=frozenset({"10.0.0.9"}))
    user = {"X-Forwarded-User": "ann"}
    async with asked_of_two(rules) as client:
        assert (await client.get("/v1/streams", headers=user)).status_code == 200
        assert (await client.get("/v1/streams")).status_code == 401
        assert (await client.get("/v1/streams", headers={"X-Forwarded-User": ""})).status_code == 401
        forged = [("X-Forwarded-User", "eve"), ("X-Forwarded-User", "ann")]
        assert (await client.get("/v1/streams", headers=forged)).status_code == 401
    async with asked_of_two(rules, address="10.0.0.10") as client:
        assert (await client.get("/v1/streams", headers=user)).status_code == 401


async def test_exceeded_limits_are_refused_in_one_line() -> None:
    async with asked_of_two(AccessRules(requests_per_s=0.001)) as client:
        statuses = [(await client.get("/v1/streams")).status_code for _ in range(3)]
        assert statuses == [200, 429, 429]
        late = await client.get("/v1/streams")
        assert 900 < int(late.headers["retry-after"]) <= 1_000
        assert "0.001 requests a second" in late.text
        # The files of a page are not counted, only the page's questions.
        files = [(await client.get("/dashboard/style.css")).status_code for _ in range(9)]
        assert files == [200] * 9
    async with asked_of_two(AccessRules()) as client:
        assert (await client.get("/v1/streams?" + "x" * 9_000)).status_code == 414
        assert (await client.post("/api/v1/query", content=b"x" * 20_000)).status_code == 413

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(10):
                yield b"x" * 4_000

        # A body of unknown length is cut off at the limit.
        try:
            response = await client.post("/api/v1/query", content=endless())
            assert response.status_code >= 400
        except Exception as failure:
            assert type(failure).__name__ == "ClientDisconnect"  # noqa: PT017


async def test_preflight_request_of_a_listed_origin_needs_no_key() -> None:
    async with asked_of_two(AccessRules(keys=KEYS, origins=("https://charts.example.org",))) as client:
        for origin, allowed in (
            ("https://charts.example.org", True),
            ("https://evil.example.org", False),
        ):
            asked = {"Origin": origin, "Access-Control-Request-Method": "GET"}
            headers = asked | {"Access-Control-Request-Headers": "authorization"}
            response = await client.options("/v1/streams", headers=headers)
            assert (response.headers.get("access-control-allow-origin") == origin) == allowed


def test_request_budget_refills_at_a_constant_rate() -> None:
    now = [0.0]
    budgets = Budgets(10.0, lambda: now[0])
    assert [budgets.take("a") for _ in range(20)] == [0.0] * 20
    assert budgets.take("a") == pytest.approx(0.1)
    assert budgets.take("b") == 0.0
    now[0] = 0.35
    assert [budgets.take("a") > 0 for _ in range(4)] == [False, False, False, True]
    now[0] = 1e6
    assert sum(budgets.take("a") == 0 for _ in range(30)) == 20


def test_key_file_holds_hashes_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "keys.ndjson"
    text, other = add_key(path, "grafana", ["clicks"]), add_key(path, "ann", [])
    assert path.stat().st_mode & 0o077 == 0
    assert text not in path.read_text()
    assert len(text) >= 43
    assert text != other
    assert read_keys(path) == (
        ApiKey("grafana", digest_of(text), frozenset({"clicks"})),
        ApiKey("ann", digest_of(other), None),
    )
    with pytest.raises(OperatorError, match="has a key called ann"):
        add_key(path, "ann", [])
    with pytest.raises(OperatorError, match="is not a name"):
        add_key(path, "An n", [])
    row = json.loads(path.read_text().splitlines()[0])
    rows: list[object] = [row | {"sha256": "ab"}, row | {"streams": "clicks"}, {"name": "x"}, []]
    for wrong in rows:
        path.write_text(json.dumps(wrong) + "\n")
        with pytest.raises(OperatorError, match=":1 is not a key"):
            read_keys(path)
    path.write_text("\n")
    with pytest.raises(OperatorError, match="holds no key"):
        read_keys(path)
