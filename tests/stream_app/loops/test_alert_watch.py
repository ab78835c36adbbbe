"""Every release is decided once, and every transition is sent, whenever the watcher or a target dies."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import Rule
from stream_app.core.records import PublicState
from stream_app.loops import alert_watch
from stream_app.loops.alert_delivery import send_waiting
from stream_app.loops.alert_watch import AlertWatcher, state_at
from stream_app.ports.alerts import NotDelivered
from stream_app.ports.reader import PublicReader
from stream_app.sinks.alert_targets import webhook_body
from stream_app.sinks.alert_topic import cloud_event
from tests.models.memory import MemoryStore
from tests.models.memory_alerts import MemoryAlertStore
from tests.stream_app.published import HOUR_US, Published

EXACT = "1000000000"
COUNTS = [9, 9, 0, 0, 8, 9, 9, 9, 0, 9, 1, 1, 1, 20, 20, 0, 0, 0, 7, 7]


def rule(name: str, text: str, **options: Any) -> Rule:
    return Rule(name, text, parse_condition(text), **options)


RULES = [
    rule("busy", "sum(departures, 2h) > 10"),
    rule("long", "sum(departures, 1h) > 5", for_us=HOUR_US),
    rule("total", "count(departures) >= 60", confidence=0.999),
    rule("noisy", "rate(departures, 3h) < 3/h", clear=4.0, confidence=0.6),
]


async def told_by(store: MemoryAlertStore) -> list[tuple[str, str, int]]:
    found = [json.loads(text) for _, text in await store.transitions("", 10_000)]
    keys = [told["key"] for told in found]
    assert len(keys) == len(set(keys))
    return [(told["rule"], told["kind"], told["seq"]) for told in found]


@pytest.mark.parametrize("epsilon", [EXACT, "0.5"])
async def test_steps_restarts_and_catching_up_decide_the_same(epsilon: str) -> None:
    """One watcher sees each release, one sees all late, one restarts each time. All decide the same."""

    stream = Published(MemoryStore(), epsilon=epsilon, epoch_bins=16)
    await stream.open()
    reader = stream.store.reader()
    stores = [MemoryAlertStore() for _ in range(3)]
    steady, late = (AlertWatcher(RULES, reader, store) for store in stores[:2])
    await steady.look()
    await late.look()
    await AlertWatcher(RULES, reader, stores[2]).look()
    for number, count in enumerate(COUNTS, start=1):
        await stream.close([count])
        if number == 16:  # the epoch is full
            await stream.open(1, stream.first_bin + 16)
        await steady.look()
        await AlertWatcher(RULES, reader, stores[2]).look()
    await late.look()
    first, second, third = [await told_by(store) for store in stores]
    assert len(first) > 6
    assert sorted(first) == sorted(second) == sorted(third)
    assert [one for one in first if one[0] == "busy"] == [one for one in second if one[0] == "busy"]


async def test_an_alert_on_a_rate_reports_the_rate_in_its_unit() -> None:
    stream = Published(MemoryStore(), epsilon="0.5")
    await stream.open()
    rules = [rule("fast", "rate(departures, 2h) > 40/h"), rule("many", "sum(departures, 2h) > 80")]
    watcher = AlertWatcher(rules, stream.store.reader(), store := MemoryAlertStore())
    await watcher.look()
    await stream.close([900, 1100])
    await watcher.look()
    found = [json.loads(text) for _, text in await store.transitions("", 10)]
    fast, many = (next(one for one in found if one["rule"] == name) for name in ("fast", "many"))
    assert (fast["unit"], many["unit"]) == ("/h", "")
    assert fast["value"] == pytest.approx(many["value"] / 2)
    assert fast["stderr"] == pytest.approx(many["stderr"] / 2)
    assert 900 < fast["value"] < 1100
    annotations = webhook_body(fast)["alerts"][0]["annotations"]
    assert (annotations["value"], annotations["unit"]) == (f"{fast['value']:.2f}", "events/h")
    assert cloud_event(fast)["data"]["unit"] == "/h"


async def test_a_new_rule_says_nothing_about_earlier_releases() -> None:
    stream = Published(MemoryStore(), epsilon=EXACT)
    await stream.open()
    await stream.close([50, 0])
    store = MemoryAlertStore()
    watcher = AlertWatcher([rule("busy", "sum(departures, 1h) > 10")], stream.store.reader(), store)
    await watcher.look()
    assert await told_by(store) == []
    await stream.close([11])
    await watcher.look()
    assert await told_by(store) == [("busy", "firing", 3)]


async def test_a_second_watcher_adds_nothing() -> None:
    stream = Published(MemoryStore(), epsilon=EXACT)
    await stream.open()
    store, reader = MemoryAlertStore(), stream.store.reader()
    one, other = (AlertWatcher(RULES, reader, store) for _ in range(2))
    await one.look()
    await other.look()
    await stream.close([20])
    await one.look()
    with pytest.raises(ConnectionError, match="another watcher"):
        await other.look()
    await stream.close([20])
    await other.look()
    with pytest.raises(ConnectionError, match="another watcher"):
        await one.look()
    assert [one for one in await told_by(store) if one[0] == "busy"] == [("busy", "firing", 2)]


async def test_a_changed_rule_ends_its_old_alert() -> None:
    stream = Published(MemoryStore(), epsilon=EXACT)
    await stream.open()
    store, reader = MemoryAlertStore(), stream.store.reader()
    await AlertWatcher([rule("busy", "count(departures) > 10")], reader, store).look()
    await stream.close([20])
    await AlertWatcher([rule("busy", "count(departures) > 10")], reader, store).look()
    for _ in range(2):
        await AlertWatcher([rule("busy", "count(departures) > 90")], reader, store).look()
    assert await told_by(store) == [("busy", "firing", 1), ("busy", "resolved", 1)]


MINUTE_US = 60_000_000


class Restored:
    """A reader whose store was set back to an earlier release, until a worker puts the later ones back."""

    def __init__(self, reader: PublicReader) -> None:
        self._reader = reader
        self.shown: int | None = None  # the last release in the store; None: all

    async def public_state(self, stream: str) -> PublicState | None:
        """Return what the store shows now."""
        state = await self._reader.public_state(stream)
        return state if state is None or self.shown is None else state_at(state, self.shown)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


@pytest.mark.parametrize(
    ("length", "waits_us"),
    [("2m", 2 * MINUTE_US), ("1h", 5 * MINUTE_US), ("10h", 5 * MINUTE_US)],
)
@pytest.mark.parametrize("restarts", [True, False], ids=["the watcher restarts", "the watcher goes on"])
@pytest.mark.parametrize("put_back", [True, False], ids=["rows are put back", "no worker runs"])
async def test_no_data_waits_for_rows_that_are_put_back_after_a_restore(
    monkeypatch: pytest.MonkeyPatch, length: str, waits_us: int, restarts: bool, put_back: bool
) -> None:
    now_us = [0]
    monkeypatch.setattr(alert_watch, "own_clock_us", lambda: now_us[0])

    async def run() -> list[tuple[str, str, int]]:
        stream, before = Published(MemoryStore(), epsilon=EXACT), MemoryAlertStore()
        await stream.open()
        restored, silent = Restored(stream.store.reader()), [rule("silent", f"no_data(departures, {length})")]
        reader = cast(PublicReader, restored)
        watcher = AlertWatcher(silent, reader, before)
        await stream.close([1] * 2)
        at_us = (stream.first_bin + 2) * HOUR_US
        now_us[0] = at_us
        await watcher.look()
        backup = copy.deepcopy(before)
        await stream.close([1] * 20)
        at_us = now_us[0] = (stream.first_bin + 22) * HOUR_US
        await watcher.look()
        assert await told_by(before) == []
        # Redis is restored, with the alerts' own keys.
        restored.shown = 2
        if restarts:
            watcher = AlertWatcher(silent, reader, backup)
        else:
            watcher._store, watcher._loaded = backup, False
        for step_us in (0, MINUTE_US, waits_us - 1):
            now_us[0] = at_us + step_us
            await watcher.look()
        if put_back:
            restored.shown = None
            now_us[0] = at_us + waits_us - 1
            await watcher.look()
        now_us[0] = at_us + waits_us
        await watcher.look()
        return await told_by(backup)

    found = await run()
    assert found == ([] if put_back else [("silent", "firing", 2)])


class Flaky:
    """A target that takes every transition, but dies before it acknowledges every second one."""

    name = shown = identity = "flaky"
    former = ""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self._calls = itertools.count()

    async def send(self, transition: Mapping[str, Any]) -> str:
        self.taken.append(transition["key"])
        if next(self._calls) % 2 == 0:
            raise NotDelivered("it died")
        return "taken"

    async def remind(self, firing: Sequence[Mapping[str, Any]]) -> None:
        raise AssertionError(firing)


async def test_every_transition_is_sent_in_order_at_least_once() -> None:
    store, target = MemoryAlertStore(), Flaky()
    await store.register(target.identity)
    await store.commit("clicks", None, 1, {}, [{"key": str(n), "rule": "busy"} for n in range(20)])
    for _ in range(100):
        try:
            if not await send_waiting(store, target):
                break
        except NotDelivered:
            continue
    assert list(dict.fromkeys(target.taken)) == [str(number) for number in range(20)]
    assert len(target.taken) == 40  # each was sent twice, the first time without an answer


TWO_RULES = [rule("busy", "sum(departures, 2h) > 10"), rule("quiet", "rate(departures, 3h) < 1/h")]
FOR_EVER_US = 10**18


async def test_a_watcher_goes_on_after_releases_that_left() -> None:
    stream = Published(MemoryStore(), epsilon=EXACT, epoch_bins=4)
    await stream.open()
    stores = [MemoryAlertStore() for _ in range(2)]
    steady, late = (AlertWatcher(TWO_RULES, stream.store.reader(), store) for store in stores)
    await stream.close([1, 1])
    for watcher in (steady, late):
        await watcher.look()
    await stream.close([20, 20])  # fires, but the second watcher is down until this has left
    await steady.look()
    await stream.open(1, stream.first_bin + 4)
    await stream.close([3, 3])
    assert await stream.store.trim("departures", FOR_EVER_US) == 1
    await steady.look()
    await late.look()
    await AlertWatcher(TWO_RULES, stream.store.reader(), stores[1]).look()
    await stream.close([20, 20])
    for watcher in (steady, late):
        await watcher.look()
    first, second = [await told_by(store) for store in stores]
    # Windows of the kept epoch are decided alike; the one that left is unknown to the second watcher.
    assert [one for one in first if one[2] > 6] == [one for one in second if one[2] > 6]
    assert ("busy", "firing", 3) in first
    assert all(seq > 4 for _, _, seq in second)
