"""Boards over HTTP: who may read one, and what the key of a board does not open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from stream_app.api.admission.access import AccessRules
from stream_app.api.app import create_app
from stream_app.api.boards import events_of
from stream_app.config.key_file import add_key, read_keys
from stream_app.core.boards import Board, Line, Panel
from stream_app.ports import OperatorError
from stream_app.ports.access import ApiKey, digest_of
from tests.models.memory import MemoryStore
from tests.stream_app.api.client import SHARED, asking, fill, reading, released, two_streams
from tests.stream_app.published_axes import PublishedAxes, delays

pytestmark = pytest.mark.slow

ORIGIN = "https://intranet.example.org"
SHOP = Board("shop", "The shop", (Panel("visits", "bins", (Line("clicks"),)),), embed=(ORIGIN,))
BOTH = Board("both", "Both", (Panel("all", "running", (Line("clicks"), Line("views"))),))
BOARDS = {"shop": SHOP, "both": BOTH}
KEYS = (
    ApiKey("all", digest_of("k-all"), None),
    ApiKey("one", digest_of("k-one"), frozenset({"clicks"})),
    ApiKey("framed", digest_of("k-shop"), frozenset(), frozenset({"shop"})),
)


@asynccontextmanager
async def asked_of_two(
    key: str = "", rules: AccessRules | None = None, address: str = "10.0.0.9"
) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a service with two streams and two boards."""
    rules = rules or AccessRules(keys=KEYS, boards=BOARDS)
    async with asking(await two_streams(), rules, address, key) as (_, client):
        yield client


async def statuses(client: httpx.AsyncClient, paths: tuple[str, ...]) -> dict[str, int]:
    return {path: (await client.get(path)).status_code for path in paths}


OPENED = (
    "/v1/boards/shop",
    "/v1/streams/clicks",
    "/v1/streams/clicks/series?kind=bin",
    "/v1/streams/clicks/count",
    "/embed/shop",
    "/dashboard/embed.html",
)
CLOSED = (
    *("/v1/streams/views", "/v1/streams/views/series", "/v1/boards/both", "/v1/boards", "/v1/streams"),
    *("/v1/streams/clicks/nodes", "/v1/streams/clicks/privacy", "/v1/streams/clicks/events"),
    *("/v1/streams/clicks/marks", "/v1/streams/clicks/transitions", "/v1/streams/clicks/preview"),
    *("/v1/overview", "/v1/overview/events", "/v1/alerts", "/metrics", "/openapi.json", "/docs", "/"),
    *("/api/v1/query?query=private_counts_running", "/api/v1/series", "/streams/clicks"),
    *("/v1/streams/clicks/series/", "/v1/streams//clicks", "/v1/streams/clicks/../views", "/V1/boards/both"),
    *("/v1/streams/clicks%2F..%2Fviews", "/v1/boards/shop%2F..%2Fboth", "/dashboard/../v1/streams/views"),
    *("/boards/shop", "/boards", "/nowhere", "/streams/clicks?table", "/?table"),
)


async def test_the_key_of_a_board_opens_what_its_panels_ask_and_nothing_else() -> None:
    async with asked_of_two("k-shop") as client:
        assert await statuses(client, OPENED) == dict.fromkeys(OPENED, 200)
        refused = await statuses(client, CLOSED)
        assert set(refused.values()) <= {403, 404}, refused
        answer = await client.get("/v1/streams/views")
        assert answer.status_code == 403
        assert answer.json()["error"] == (
            "this key opens the board shop only: what its panels ask; use a key of streams"
        )


@asynccontextmanager
async def asking_about_one_key(name: str) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client with the key of a board whose panel is about one key of a stream."""
    board = Board("few", "Few", (Panel("one", "bins", (Line("delays", name),)),))
    keys = ApiKey("few", digest_of("k-few"), frozenset(), frozenset({"few"})), KEYS[0]
    store = MemoryStore()
    stream = PublishedAxes(store, epsilon="2", epoch_bins=8, buckets=2)
    await fill(stream, delays(stream, 4))
    rules = AccessRules(keys=keys, boards={"few": board})
    async with asking(store, rules, key="k-few") as (_, client):
        yield client


async def test_the_key_of_a_board_shows_no_other_key_of_a_stream() -> None:
    async with asking_about_one_key("UA") as client:
        base = "/v1/streams/delays"
        opened = (base, f"{base}/series?key=UA&kind=bin", f"{base}/count?key=UA", f"{base}/keys/list?key=UA")
        assert await statuses(client, opened) == dict.fromkeys(opened, 200)
        closed = (
            *(f"{base}/count{query}" for query in ("", "?key=B6", "?key=UA&key=B6", "?not_key=UA", "?key=*")),
            *(f"{base}/keys/list{query}" for query in ("", "?contains=B", "?key=B6", "?key=UA&key=B6")),
            *(f"{base}/count?{query}" for query in ("key=B6&key=UA", "ke%79=B6", "key=UA&not_key=B6")),
            *(f"{base}/{path}" for path in ("keys", "keys?key=UA", "quantiles?key=UA")),
        )
        assert await statuses(client, closed) == dict.fromkeys(closed, 403)
        told = (await client.get(base)).json()
        assert (told["running"], told["this_epoch"], told["axes"]["first_keys"]) == (None, None, [])
        assert "B6" not in (await client.get(base)).text


async def test_a_refusal_names_keys_to_nobody_who_may_not_see_them() -> None:
    """The configured list may have a key that the stream's running generation lacks."""
    line = "key: 'AA' is not on the public list"
    async with asking_about_one_key("AA") as client:
        for path in ("/count", "/series"):
            refused = await client.get(f"/v1/streams/delays{path}?key=AA")
            assert (refused.status_code, refused.json()) == (400, {"error": line, "parameter": "key"})
        told = await client.get(refused.url, headers={"Authorization": "Bearer k-all"})
        assert told.json()["error"] == f"{line}; known are UA, B6, EV, DL, other"


async def test_nobody_without_a_key_gets_more_than_the_files_of_a_page() -> None:
    async with asked_of_two() as client:
        assert await statuses(client, OPENED) == dict(
            zip(OPENED, (401, 401, 401, 401, 200, 200), strict=True)
        )
        without = await statuses(client, CLOSED)
        assert set(without.values()) <= {401, 404}, without


async def test_files_of_pages_need_a_key_where_no_board_may_be_framed() -> None:
    rules = AccessRules(keys=KEYS, boards={"both": BOTH})
    async with asked_of_two(rules=rules) as client:
        assert set((await statuses(client, ("/embed/both", "/dashboard/board.js"))).values()) == {401}


async def test_a_board_is_visible_to_keys_that_open_all_of_its_streams() -> None:
    async def names(key: str) -> list[str]:
        async with asked_of_two(key=key) as client:
            listed = (await client.get("/v1/boards")).json()["boards"]
            return [one["board"] for one in listed]

    assert await names("k-all") == ["shop", "both"]
    assert await names("k-one") == ["shop"]
    async with asked_of_two(key="k-one") as client:
        answer = await client.get("/v1/boards/both")
        assert (answer.status_code, answer.json()["error"]) == (
            404,
            "board 'both' is not known here; known boards: shop",
        )


async def test_a_frame_is_allowed_on_the_pages_of_the_boards_origins_only() -> None:
    others = ("/embed/both", "/embed/unknown", "/boards/shop", "/boards", "/", "/streams/clicks")
    async with asked_of_two(key="k-all") as client:
        for path, ancestors in (("/embed/shop", ORIGIN), *((path, "'none'") for path in others)):
            [policy] = (await client.get(path)).headers.get_list("content-security-policy")
            assert f"frame-ancestors {ancestors}" in policy.split("; "), path


async def test_another_origin_gets_no_answer_that_its_script_may_read() -> None:
    async with asked_of_two("k-shop") as client:
        answer = await client.get("/v1/boards/shop", headers={"Origin": ORIGIN})
        assert "access-control-allow-origin" not in answer.headers


async def test_changes_name_readable_streams_only() -> None:
    store = MemoryStore()
    for name in ("clicks", "views"):
        stream = await released([1, 2, 3], store, name=name, source=f"{name}.ndjson")
    replicas = create_app(store.reader(), AccessRules(), apart=SHARED).state.replicas
    await replicas.refresh()
    events = events_of(replicas, ["clicks", "none"])
    assert (await anext(events)).startswith(b"retry: ")
    told = (await anext(events)).decode()
    assert told == 'event: changed\ndata: {"stream":"clicks","seq":3,"private":true}\n\n'
    later = asyncio.ensure_future(anext(events))
    await stream.close([4])  # of views, which is not asked
    await replicas.refresh()
    await asyncio.sleep(0.6)
    assert not later.done()
    later.cancel()


async def test_each_address_with_the_key_of_a_board_has_its_own_limit() -> None:
    # Slow enough that no second request is granted, however long an answer takes here.
    rules = AccessRules(keys=KEYS, boards=BOARDS, requests_per_s=0.001)
    async with asking(await two_streams(), rules, "10.0.0.9", "k-shop") as (app, client):
        assert (await client.get("/v1/boards/shop")).status_code == 200
        assert (await client.get("/v1/boards/shop")).status_code == 429
        async with reading(app, "10.0.0.10", "k-shop") as second:
            assert (await second.get("/v1/boards/shop")).status_code == 200


async def test_a_revoked_key_of_a_board_opens_nothing() -> None:
    rules = AccessRules(keys=KEYS, boards=BOARDS)
    async with asked_of_two("k-shop", rules) as client:
        assert (await client.get("/v1/boards/shop")).status_code == 200
        rules.keys = KEYS[:2]
        assert (await client.get("/v1/boards/shop")).status_code == 401


def test_the_key_file_has_keys_of_boards(tmp_path: Path) -> None:
    path = tmp_path / "keys.ndjson"
    key = add_key(path, "intranet", (), ("shop",))
    (read,) = read_keys(path)
    assert read == ApiKey("intranet", digest_of(key), frozenset(), frozenset({"shop"}))
    assert json.loads(path.read_text())["boards"] == ["shop"]
    with pytest.raises(OperatorError, match="a key opens streams or boards"):
        add_key(path, "other", ("clicks",), ("shop",))
    for row in (
        '"boards": []',
        '"boards": "shop"',
        '"boards": ["shop"], "streams": "*"',
        '"boards": ["A b"]',
    ):
        path.write_text(f'{{"name": "x", "sha256": "{digest_of("x")}", {row}}}\n')
        with pytest.raises(OperatorError, match=":1 is not a key"):
            read_keys(path)
