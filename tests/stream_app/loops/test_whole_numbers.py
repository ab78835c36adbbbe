"""Without noise, every released count and both ends of its interval are whole numbers, on every surface."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from dphist.tree.design import Release
from stream_app.api.admission.access import AccessRules
from stream_app.api.app import create_app
from stream_app.ports.access import Scrapes
from tests.stream_app.api.client import SHARED
from tests.stream_app.declared import FIRST_BIN, STREAM
from tests.stream_app.loops.test_product_stream import RELEASES, placed
from tests.stream_app.product_stream import ProductSource, product_strategy, some_events

COUNTS = ("value", "counts", "lower", "upper", "interval", "estimate")
ADDRESSES = (
    *(
        "",
        "/count",
        "/count?key=AA",
        "/series?kind=bin",
        "/series?kind=running&key=AA",
        "/cdf?key=AA",
        "/cdf",
    ),
    *(
        "/series?kind=window&window=3",
        "/series?kind=bin&view=first_published",
        "/keys?step=1",
        "/heat?step=2",
    ),
    "/preview?epsilon=1",
)


def counts_in(answer: Any, name: str = "") -> list[float]:
    """Return every count and end of an interval in an answer."""
    if isinstance(answer, dict):
        return [one for name, part in answer.items() for one in counts_in(part, name)]
    if isinstance(answer, list):
        return [one for part in answer for one in counts_in(part, name)]
    return [answer] if name in COUNTS and isinstance(answer, float) else []


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("total", [False, True])
def test_zero_width_intervals_hold_one_whole_number(tmp_path: Path, total: bool, release: Release) -> None:
    one = ProductSource(tmp_path, product_strategy(total=total, release=release))
    one.append_events(placed(some_events(9, 9, per_bin=200)))
    one.run_until(FIRST_BIN + 9)
    one.close()

    async def check() -> None:
        rules = AccessRules(scrapes=Scrapes(keys_of=frozenset({STREAM})))
        app = create_app(one.store.reader(), rules, apart=SHARED)
        await app.state.replicas.refresh()
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for address in ADDRESSES:
                answer = await client.get(f"/v1/streams/{STREAM}{address}")
                assert answer.status_code == 200, address
                found = counts_in(answer.json())
                assert found, address
                assert [count for count in found if count != round(count)] == [], address
            csv = (await client.get(f"/v1/streams/{STREAM}/series?kind=bin&key=AA&format=csv")).text
            assert {row.split(",")[2].partition(".")[2] for row in csv.splitlines()[1:]} == {"0"}
            metrics = (await client.get("/metrics")).text
            running = [line for line in metrics.splitlines() if "running" in line and line[0] != "#"]
            assert len(running) > 4
            assert all(float(line.split()[-1]).is_integer() for line in running)
        rows = await one.store.reader().rows(STREAM, 0, 9)
        assert all(count == round(count) for _, row in rows for count in counts_in(json.loads(row)))

    asyncio.run(check())
