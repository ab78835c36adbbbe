"""One reader's slow question delays neither other streams nor the followers of its own stream."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stream_app.api.answers.preview import replanned
from stream_app.api.replica import StreamReplica
from stream_app.api.sse import follow
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView
from tests.patience import PATIENCE_S
from tests.stream_app.api.client import SHARED, Api, api_over, with_api
from tests.stream_app.api.test_followers import events_of, take
from tests.stream_app.api.test_panels import api_over_axes
from tests.stream_app.published import Published


def slow(view: StreamView, until: Path) -> int:
    """Return a view's seq once a file exists. Tests use this function as a slow question."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not until.exists() and time.monotonic() < deadline_s:
        time.sleep(0.005)
    return view.visible_seq


@asynccontextmanager
async def slowly_asked(replica: StreamReplica, until: Path) -> AsyncIterator[asyncio.Task[int]]:
    """Keep a slow question about a stream under way while the block runs."""
    assert replica.view is not None
    async with replica.asked_apart:
        answer = asyncio.create_task(SHARED.of_view(replica.view, slow, until))
        try:
            await asyncio.sleep(0)
            yield answer
        finally:
            await asyncio.to_thread(until.touch)
            await answer


@asynccontextmanager
async def stopped() -> AsyncIterator[int]:
    """Stop the process for long questions, as if its questions never ended; yield its id."""
    pid = await SHARED.of(os.getpid)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


async def under_way(asked: asyncio.Task[Any]) -> None:
    """Wait until a question is with the process for long questions, or answered without it."""
    while not (asked.done() or SHARED.begun()._asked):  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def test_slow_answer_delays_no_follower_other_stream_or_overview(tmp_path: Path) -> None:
    async with api_over([5] * 12) as api:
        other = Published(api.store, name="other")
        await other.open()
        await other.close([1] * 3)
        await api.refresh()
        replicas = api.app.state.replicas
        glances = api.app.state.glances.follow(lambda _stream: True)
        first = [await anext(glances) for _ in range(2)]
        assert first[1].count(b"event: stream") == 2
        async with slowly_asked(api.replica, tmp_path / "answered") as answer:
            for bins in range(1, 4):
                await api.stream.close([7])
                await other.close([2])
                await api.refresh()
                rows = events_of(await take(follow(api.replica, 11 + bins), 1))
                assert [seq for seq, _ in rows] == [12 + bins]
                rows = events_of(await take(follow(replicas.by_name["other"], 2 + bins), 1))
                assert [seq for seq, _ in rows] == [3 + bins]
            async with asyncio.timeout(PATIENCE_S):
                assert (await api.json("count"))["seq"] == 15
                changed = await anext(glances)
                query = 'private_counts_running{stream="other"}'
                found = await api.json("/api/v1/query", query=query, time=(other.first_bin + 6) * 3600)
                series = await api.json("/v1/streams/other/series")
                overview = await api.json("/v1/overview")
            told = json.loads(changed.partition(b"data: ")[2].partition(b"\n")[0])
            assert (told["stream"], told["seq"]) == ("other", 6)
            assert len(found["data"]["result"]) == 1
            assert len(series["value"]) == 6
            assert {one["stream"]: one["seq"] for one in overview["streams"]} == {
                "departures": 12,
                "other": 6,
            }
            assert not answer.done()
        assert await answer == 12  # the seq at which it was asked
        assert len((await api.json("series"))["value"]) == 15


LONG: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/streams/delays/series", {"key": "UA"}),
    ("/v1/streams/delays/cdf", {}),
    ("/v1/streams/delays/quantile", {"q": 0.5}),
    ("/v1/streams/delays/keys", {}),
    ("/v1/streams/delays/heat", {}),
    ("/v1/streams/delays/quantiles", {"q": 0.5}),
    ("/v1/streams/delays/cdfs", {}),
    ("/v1/streams/delays/preview", {"epsilon": 0.3}),
    (
        "/api/v1/query_range",
        {"query": '{stream="delays"}', "start": 1_357_016_400, "end": 1_357_059_600, "step": 3600},
    ),
    ("/v1/overview", {}),
    ("/metrics", {}),
)


async def test_long_questions_are_computed_in_the_process_apart() -> None:
    """While the process for long questions is stopped, long questions wait, but every count is answered."""

    async with api_over_axes() as (api, _cells):
        assert api.replica.view is not None
        bins = api.replica.view.visible_seq
        async with stopped():
            asked = {path: asyncio.create_task(api.get(path, **query)) for path, query in LONG}
            for _ in range(20):
                assert (await api.json("/v1/streams/delays/count"))["seq"] == bins
                await asyncio.sleep(0.005)
            assert [path for path, one in asked.items() if one.done()] == []
        answers = {path: await one for path, one in asked.items()}
        assert {path: one.status_code for path, one in answers.items()} == dict.fromkeys(asked, 200)


@with_api([5] * 12)
async def test_answer_and_etag_agree_if_the_stream_grows_meanwhile(api: Api) -> None:
    await api.get("series")  # the other process already has a copy
    for step in range(3):
        async with stopped():
            asked = asyncio.create_task(api.get("series", step=2))
            await under_way(asked)
            await api.stream.close([7])
            await api.refresh()
        then, now = await asked, await api.get("series", step=2)
        for answer, seq in ((then, 12 + step), (now, 13 + step)):
            assert (answer.json()["seq"], answer.headers["etag"]) == (seq, f'"0:{seq}"')


@with_api([5] * 12)
async def test_killed_process_apart_refuses_open_questions_in_one_line(api: Api) -> None:
    async with stopped() as pid:
        asked = asyncio.create_task(api.error("series"))
        await under_way(asked)
        os.kill(pid, signal.SIGKILL)
        assert await asked == (503, {"error": "the computing process has ended; ask again"})
    assert len((await api.json("series"))["value"]) == 12


async def test_preview_plans_before_it_locks_the_stream() -> None:
    async with api_over([5] * 12) as api:
        async with api.app.state.making_turns.of("another reader"):
            asked = [asyncio.create_task(api.json("preview", epsilon=0.01 * n)) for n in (1, 2)]
            async with asyncio.timeout(PATIENCE_S):
                assert len((await api.json("series"))["value"]) == 12
                await api.stream.close([7])
                await api.refresh()
                assert len((await api.json("series"))["value"]) == 13
            assert not any(one.done() for one in asked)
        for one in asked:
            assert len((await one)["value"]) == 13


TINY = ("1e-300", "5e-324", "1e-100", "0.0099", "0", "-1", "nan", "inf", "1e400", "9" * 400)


@with_api([5] * 12)
async def test_preview_at_an_impossible_epsilon_is_refused(api: Api) -> None:
    await refused(api)


async def test_preview_at_an_impossible_epsilon_is_refused_over_keys() -> None:
    async with api_over_axes() as (api, _cells):
        await refused(api)


async def refused(api: Api) -> None:
    """Ask for previews at impossible epsilons, over HTTP and from the planner; return the refusals."""
    async with asyncio.timeout(PATIENCE_S):
        for epsilon in TINY:
            status, body = await api.error("preview", epsilon=epsilon)
            assert (status, body["parameter"]) == (422, "epsilon")
        assert api.replica.view is not None
        for number in (1e-300, 5e-324, 1e-15):
            with pytest.raises(QueryError, match="has no plan here"):
                await asyncio.to_thread(replanned, api.replica.view.strategy, number)
        assert len((await api.json("preview", epsilon=0.01, step=4))["value"]) > 0
        await api.refresh()
