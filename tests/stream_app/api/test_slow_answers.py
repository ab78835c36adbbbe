"""One reader's slow question holds up neither other streams nor the followers of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stream_app.api import answers
from stream_app.api.panels import routes as panel_routes
from stream_app.api.panels.preview import replanned
from stream_app.api.sse import follow
from stream_app.core.answered import QueryError
from tests.stream_app.api.client import Api, api_over, with_api
from tests.stream_app.api.test_followers import events_of, take
from tests.stream_app.api.test_panels import api_over_axes
from tests.stream_app.published import Published


class Gate:
    """Holds the threads that come to it until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.reached_times = 0

    def __call__(self) -> None:
        self.reached_times += 1
        self.reached.set()
        assert self.opened.wait(60)

    async def until_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, 60)


@contextmanager
def slow(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> Iterator[Gate]:
    """Make a function wait before it does what it does."""
    gate, original = Gate(), getattr(module, name)

    def waiting(*given: Any) -> Any:
        gate()
        return original(*given)

    monkeypatch.setattr(module, name, waiting)
    try:
        yield gate
    finally:
        gate.opened.set()


@pytest.mark.slow
def test_a_slow_answer_delays_no_follower_no_other_stream_and_nobody_at_a_glance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        async with api_over([5] * 12) as api:
            other = Published(api.store, name="other")
            await other.open()
            await other.close([1] * 3)
            await api.refresh()
            replicas = api.app.state.replicas
            glances = api.app.state.glances.follow(lambda _stream: True)
            first = [await anext(glances) for _ in range(2)]
            assert first[1].count(b"event: stream") == 2
            with slow(monkeypatch, answers, "series") as gate:
                answer = asyncio.create_task(api.json("series"))
                await gate.until_reached()
                for bins in range(1, 4):  # more than one release while the view is held
                    await api.stream.close([7])
                    await other.close([2])
                    async with asyncio.timeout(30):
                        await api.refresh()
                    rows = events_of(await take(follow(api.replica, 11 + bins), 1))
                    assert [seq for seq, _ in rows] == [12 + bins]
                    rows = events_of(await take(follow(replicas.by_name["other"], 2 + bins), 1))
                    assert [seq for seq, _ in rows] == [3 + bins]
                assert api.replica.view is not None
                assert api.replica.view.visible_seq == 12  # as the slow answer began
                async with asyncio.timeout(30):
                    changed = await anext(glances)
                    query = 'private_counts_running{stream="other"}'
                    found = await api.json("/api/v1/query", query=query, time=(other.first_bin + 6) * 3600)
                    overview = await api.json("/v1/overview")
                told = json.loads(changed.partition(b"data: ")[2].partition(b"\n")[0])
                assert (told["stream"], told["seq"]) == ("other", 6)
                assert len(found["data"]["result"]) == 1
                assert {one["stream"]: one["seq"] for one in overview["streams"]} == {
                    "departures": 12,
                    "other": 6,
                }
                assert not answer.done()
            assert len((await answer)["value"]) == 12
            async with asyncio.timeout(30):
                while api.replica.view.visible_seq < 15:
                    await api.refresh()
                    await asyncio.sleep(0)
            assert len((await api.json("series"))["value"]) == 15

    asyncio.run(run())


@pytest.mark.slow
def test_a_plan_is_made_before_the_view_is_held_and_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with api_over([5] * 12) as api:
            with slow(monkeypatch, panel_routes, "replanned") as gate:
                asked = [asyncio.create_task(api.json("preview", epsilon=0.01 * n)) for n in (1, 2)]
                await gate.until_reached()
                async with asyncio.timeout(30):
                    assert len((await api.json("series"))["value"]) == 12
                    await api.stream.close([7])
                    await api.refresh()
                    assert len((await api.json("series"))["value"]) == 13
                assert not any(one.done() for one in asked)
                assert gate.reached_times == 1
            for one in asked:
                assert len((await one)["value"]) == 13

    asyncio.run(run())


TINY = ("1e-300", "5e-324", "1e-100", "0.0099", "0", "-1", "nan", "inf", "1e400", "9" * 400)


@with_api([5] * 12)
async def test_an_epsilon_that_no_plan_fits_is_refused(api: Api) -> None:
    await refused(api)


def test_an_epsilon_that_no_plan_fits_is_refused_over_keys_and_values() -> None:
    async def run() -> None:
        async with api_over_axes() as (api, _cells):
            await refused(api)

    asyncio.run(run())


async def refused(api: Api) -> None:
    """Ask for impossible epsilons, of the address and of the planner behind it."""
    async with asyncio.timeout(30):
        for epsilon in TINY:
            status, body = await api.error("preview", epsilon=epsilon)
            assert (status, body["parameter"]) == (422, "epsilon")
        assert api.replica.view is not None
        for number in (1e-300, 5e-324, 1e-15):
            with pytest.raises(QueryError, match="has no plan here"):
                await asyncio.to_thread(replanned, api.replica.view.strategy, number)
        assert len((await api.json("preview", epsilon=0.01, step=4))["value"]) > 0
        await api.refresh()
