"""A start that takes long says how far it is: in the log, to a supervisor, and to readers."""

from __future__ import annotations

import asyncio
import logging

import httpx
import pytest

from stream_app.api.admission.access import AccessRules
from stream_app.api.app import create_app
from stream_app.core.answers.labels import AllLabels
from stream_app.ports.access import ApiKey, digest_of
from stream_app.wiring import workers
from stream_app.wiring.workers import Preparing
from tests.models.memory import MemoryStore
from tests.simulator.loop import simulate
from tests.stream_app.api.client import SHARED

NOT_OPEN = "stream 'clicks' is not open yet: its worker prepares it or is down, the worker's log says which"


def test_a_long_start_logs_how_many_streams_are_open(caplog: pytest.LogCaptureFixture) -> None:
    async def start() -> None:
        streams = Preparing(["a", "b", "c"])
        async with streams.said():
            await asyncio.sleep(workers.SAY_EVERY_S - 1)
            streams.opened("a")
            await asyncio.sleep(workers.SAY_EVERY_S)
            streams.opened("c")
            await asyncio.sleep(workers.SAY_EVERY_S)
            streams.opened("b")
        await asyncio.sleep(100)

    with caplog.at_level(logging.WARNING):
        simulate(1, start())  # in virtual time
    assert caplog.messages == [
        "start: 1 of 3 streams open; preparing b",
        "start: 2 of 3 streams open; preparing b",
    ]


def test_readers_of_a_stream_that_is_not_open_hear_so_and_others_hear_of_no_stream() -> None:
    keys = tuple(ApiKey(name, digest_of(name), frozenset({name})) for name in ("clicks", "orders"))
    app = create_app(
        MemoryStore().reader(), AccessRules(keys=keys), apart=SHARED, labels=AllLabels({"clicks": ""})
    )

    asyncio.run(app.state.replicas.refresh())

    async def asked(key: str) -> str:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.get("/v1/streams/clicks", headers={"Authorization": f"Bearer {key}"})
            assert answer.status_code == 404
            return str(answer.json()["error"])

    assert asyncio.run(asked("clicks")) == NOT_OPEN
    assert "not open" not in asyncio.run(asked("orders"))
