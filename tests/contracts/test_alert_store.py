"""One contract for both stores of alerts.

Each transition is decided once. Transitions are sent in order, and again until they are acknowledged.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from stream_app.core.alerts.states import KEPT_FOR_READERS
from stream_app.ports.alerts import AlertStore
from stream_app.state.alert_store import RedisAlertStore
from stream_app.state.connection import connect, execute
from stream_app.state.keys import (
    ALERT_DECIDED,
    ALERT_OUTBOX,
    ALERT_REFUSED,
    ALERT_STATES,
    ALERT_TOLD,
    transitions_key,
)
from stream_app.state.reader import RedisReader
from tests.contracts.conftest import SERVERS, Servers
from tests.models.memory_alerts import MemoryAlertStore

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Alerts:
    """A new store of alerts, and what readers see of it. Args: reader, None for the store in memory."""

    store: Any
    reader: RedisReader | None = None

    async def refused(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = (
            (await self.reader.alerts())[1] if self.reader else self.store.refusals()
        )
        return found

    async def shown(self, stream: str) -> list[dict[str, object]]:
        store = self.store
        texts = await self.reader.transitions(stream) if self.reader else store.transitions_of(stream)
        return [json.loads(text) for text in texts]


@pytest.fixture(params=["memory", *SERVERS])
async def alerts(request: pytest.FixtureRequest, servers: Servers) -> AsyncIterator[Alerts]:
    if request.param == "memory":
        yield Alerts(MemoryAlertStore())
        return
    server = servers[request.param]
    admin = connect(server.worker_url)
    shown = [transitions_key(stream) for stream in ("clicks", "views")]
    own = (ALERT_DECIDED, ALERT_OUTBOX, ALERT_REFUSED, ALERT_STATES, ALERT_TOLD)
    await execute(admin, "DEL", *own, *shown)
    await admin.aclose()
    store, reader = RedisAlertStore(server.alerts_url), RedisReader(server.api_url)
    yield Alerts(store, reader)
    await store.close()
    await reader.close()


@pytest.fixture
def store(alerts: Alerts) -> AlertStore:
    found: AlertStore = alerts.store
    return found


async def test_a_decision_is_stored_once(store: AlertStore) -> None:
    assert await store.load() == ({}, {})
    assert await store.commit("clicks", None, 5, {}, [])
    assert not await store.commit("clicks", None, 5, {"busy": b"x"}, [{"key": "a"}])
    assert await store.commit("clicks", 5, 7, {"busy": b"x", "calm": b"y"}, [{"key": "a"}, {"key": "b"}])
    assert not await store.commit("clicks", 5, 7, {"busy": b"z"}, [{"key": "a"}])
    assert await store.commit("views", None, 1, {"calm": b"w"}, [])
    assert await store.load() == ({"busy": b"x", "calm": b"w"}, {"clicks": 7, "views": 1})
    assert [json.loads(text)["key"] for _, text in await store.transitions("", 10)] == ["a", "b"]


async def test_each_target_has_its_own_place(store: AlertStore) -> None:
    await store.commit("clicks", None, 1, {}, [{"key": "before"}])
    places = {name: await store.register(name) for name in ("fast", "slow")}
    await store.commit("clicks", 1, 2, {}, [{"key": name} for name in "abc"])
    found = await store.transitions(places["fast"], 2)
    assert [json.loads(text)["key"] for _, text in found] == ["a", "b"]
    await store.acknowledge("fast", found[1][0])
    rest = await store.transitions(await store.register("fast"), 10)
    assert [json.loads(text)["key"] for _, text in rest] == ["c"]
    assert len(await store.transitions(await store.register("slow"), 10)) == 3
    assert await store.transitions(rest[-1][0], 10) == []


async def test_a_new_target_before_anything_was_sent_gets_all(store: AlertStore) -> None:
    assert await store.transitions(await store.register("new"), 10) == []
    await store.commit("clicks", None, 1, {}, [{"key": "first"}])
    assert len(await store.transitions(await store.register("new"), 10)) == 1


async def test_targets_of_one_host_take_over_the_place_that_they_shared(store: AlertStore) -> None:
    async def waiting(target: str) -> list[str]:
        found = await store.transitions(await store.register(target), 10)
        return [json.loads(text)["key"] for _, text in found]

    await store.register("webhook https://h")
    await store.commit("clicks", None, 1, {}, [{"key": key} for key in "abc"])
    [first, *_] = await store.transitions(await store.register("webhook https://h"), 10)
    await store.acknowledge("webhook https://h", first[0])
    former = {"webhook 1": "webhook https://h", "webhook 2": "webhook https://h", "log": ""}
    for _ in range(2):  # a second start changes nothing
        await store.begin(former | {"webhook 9": "webhook https://other"})
        assert await waiting("webhook 1") == await waiting("webhook 2") == ["b", "c"]
        assert await waiting("log") == await waiting("webhook 9") == []
    # A target that is added later must not start there, for it would get all that came since.
    await store.begin(former | {"webhook 3": "webhook https://h"})
    assert await waiting("webhook 3") == []
    assert await waiting("webhook 1") == ["b", "c"]
    # An older build, and the only target of a host under a new address, go on where the last one was.
    [second] = await store.transitions(first[0], 1)
    await store.acknowledge("webhook 1", second[0])
    assert await waiting("webhook https://h") == ["c"]
    assert await waiting("webhook 2") == ["b", "c"]
    await store.begin({"webhook 4": "webhook https://h"})
    assert await waiting("webhook 4") == ["c"]


async def test_a_refusal_is_shown_until_the_target_accepts_the_rule_or_is_taken_out(
    alerts: Alerts, store: AlertStore
) -> None:
    await store.begin({"webhook 1": "", "webhook 2": ""})
    await store.acknowledge("webhook 1", "1-0", "busy", "webhooks[0] (status 400)")
    await store.acknowledge("webhook 2", "1-0", "busy", "webhooks[1] (status 404)")
    await store.acknowledge("webhook 1", "2-0", "calm", "webhooks[0] (status 400)")
    await store.acknowledge("webhook 1", "3-0")  # nothing was sent, so nothing is known of it
    both = ["webhooks[0] (status 400)", "webhooks[1] (status 404)"]
    assert await alerts.refused() == {"busy": both, "calm": both[:1]}
    await store.acknowledge("webhook 1", "4-0", "busy")
    assert await alerts.refused() == {"busy": both[1:], "calm": both[:1]}
    await store.begin({"webhook 2": ""})
    assert await alerts.refused() == {"busy": both[1:]}


async def test_readers_see_the_last_transitions_of_a_stream_and_not_when_they_were_decided(
    alerts: Alerts, store: AlertStore
) -> None:
    def told(seq: int) -> dict[str, object]:
        return {"rule": "busy", "kind": "firing", "seq": seq, "at_us": 5, "now_us": 7, "fired_us": 7}

    assert await alerts.shown("clicks") == []
    await store.commit("clicks", None, 1, {}, [told(1), told(1) | {"kind": "resolved"}])
    assert not await store.commit("clicks", None, 1, {}, [told(9)])
    await store.commit("views", None, 3, {}, [told(3)])
    assert await alerts.shown("clicks") == [
        {"rule": "busy", "kind": kind, "seq": 1, "at_us": 5} for kind in ("firing", "resolved")
    ]
    await store.commit("clicks", 1, 2, {}, [told(seq) for seq in range(2, KEPT_FOR_READERS + 50)])
    assert [one["seq"] for one in await alerts.shown("clicks")] == list(range(50, KEPT_FOR_READERS + 50))
    assert len(await alerts.shown("views")) == 1


@pytest.mark.parametrize("server_name", SERVERS)
async def test_transitions_for_readers_are_numbered_and_not_dated(servers: Servers, server_name: str) -> None:
    """If Redis chose the ids of transitions, the ids would contain instants."""
    server = servers[server_name]
    admin, store = connect(server.worker_url), RedisAlertStore(server.alerts_url)
    await execute(admin, "DEL", ALERT_DECIDED, transitions_key("clicks"))
    for seq in (1, 2):
        await store.commit("clicks", seq - 1 or None, seq, {}, [{"seq": seq}] * 2)
    entries = await execute(admin, "XRANGE", transitions_key("clicks"), "-", "+")
    assert [place for place, _ in entries] == [b"1-0", b"2-0", b"3-0", b"4-0"]
    await store.close()
    await admin.aclose()
