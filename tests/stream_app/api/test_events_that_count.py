"""Where only events with a number or a listed key count, every surface says so, in the same words."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from click.testing import CliRunner

from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import Rule
from stream_app.core.alerts.states import evaluate, for_readers
from stream_app.core.counting.cells import Buckets
from stream_app.core.counting.keys import KeyList
from stream_app.ports.access import Scrapes
from stream_app.shell.commands import main
from stream_app.sinks.alert_targets import alert_of
from stream_app.sinks.alert_topic import cloud_event
from tests.models.memory import MemoryStore
from tests.stream_app.api.client import Api, api_at
from tests.stream_app.client.test_client import running
from tests.stream_app.product_stream import view_of
from tests.stream_app.published import Published
from tests.stream_app.published_axes import PublishedAxes, PublishedSums, delays, sales_of


@dataclass
class ListedAxes(PublishedAxes):
    """Departures of the listed carriers only."""

    def axes(self) -> tuple[KeyList, Buckets]:
        """Return keys without ``other``."""
        keys = KeyList("carrier", (*self.carriers, "AA"), False, False)
        return keys, Buckets("delay", Fraction(self.low), Fraction(self.high), self.buckets)


async def with_value() -> Published:
    """Return a stream whose events need a number."""
    stream = PublishedAxes(MemoryStore(), epsilon="1000", buckets=4)
    await stream.open()
    await stream.close_cells(delays(stream, 3))
    return stream


async def with_list() -> Published:
    """Return a stream whose events need a number and a listed key."""
    stream = ListedAxes(MemoryStore(), epsilon="1000", buckets=4)
    await stream.open()
    await stream.close_cells(delays(stream, 3))
    return stream


async def with_sum() -> Published:
    """Return a stream that adds up an amount."""
    stream = PublishedSums(MemoryStore(), epsilon="1000")
    await stream.open()
    await stream.close_cells(sales_of(stream, 3)[0])
    return stream


STREAMS: list[tuple[Callable[[], Any], str]] = [
    (with_value, "events with a number in delay"),
    (with_list, "events with a number in delay, whose carrier is listed"),
    (with_sum, "events with a number in amount"),
]
every_stream = pytest.mark.parametrize(("make", "events"), STREAMS, ids=["value", "list", "sum"])


@every_stream
async def test_api_rows_metrics_and_files_say_which_events_count(make: Any, events: str) -> None:
    async with api_at(await make()) as api:
        await everywhere(api, f"Counts {events}.", events)


async def everywhere(api: Api, counts: str, events: str) -> None:
    name = api.stream.name
    for path in ("", "count", "series", "keys", "nodes", "privacy"):
        assert (await api.json(path))["meaning"] == counts, path
    detail, count = await api.json(""), await api.json("count")
    assert detail["counted"] == count["counted"] == events
    assert (detail["noun"], detail["warning"], detail["shape"]) == ("counted events", counts, "")
    [card] = (await api.json("/v1/overview"))["streams"]
    assert (card["meaning"], card["counted"]) == (counts, events)
    rows = await api.store.reader().rows(name, 0, 9)
    assert {json.loads(row)["meaning"] for _, row in rows} == {counts}
    api.app.state.scrapes = Scrapes(keys_of=frozenset({name}))
    metrics = (await api.get("/metrics")).text
    for gauge in ("running", "running_lower", "running_upper", "running_stderr", "key_running"):
        [said] = [line for line in metrics.splitlines() if line.startswith(f"# HELP private_counts_{gauge} ")]
        assert said.endswith(f"Stream {name}: {counts}"), gauge
    [described] = (await api.json("/api/v1/metadata"))["data"]["private_counts_bin"]
    assert counts in described["help"]
    for row in csv.DictReader(io.StringIO((await api.get("series", format="csv")).text)):
        assert row["meaning"] == counts


@every_stream
async def test_alerts_and_webhooks_say_which_events_count(make: Any, events: str) -> None:
    stream = await make()
    text = f"count({stream.name}) > 5"
    [told] = evaluate(
        [Rule("busy", text, parse_condition(text))], {}, await view_of(stream.store, stream.name), 7
    ).transitions
    counts = f"Counts {events}."
    assert told["meaning"] == for_readers(told)["meaning"] == counts
    assert alert_of(told, None)["annotations"]["meaning"] == counts
    assert cloud_event(told)["data"]["meaning"] == counts


@every_stream
async def test_command_line_says_which_events_count(make: Any, events: str) -> None:
    def ask(name: str, url: str) -> None:
        counts = f"Counts {events}."
        one = CliRunner().invoke(main, ["query", name, "--url", url]).output
        assert counts in one
        assert one.count(events) == 1
        table = CliRunner().invoke(main, ["query", name, "--url", url, "--series", "bin"]).output
        assert counts in " ".join(table.split())
        form = ["--series", "bin", "--format", "csv"]
        text = CliRunner().invoke(main, ["query", name, "--url", url, *form]).output
        assert {row["meaning"] for row in csv.DictReader(io.StringIO(text))} == {counts}
        watched = CliRunner().invoke(main, ["watch", name, "--url", url, "--after", "0", "--releases", "1"])
        assert counts in watched.stderr

    stream = await make()
    async with running(stream) as url:
        await asyncio.to_thread(ask, stream.name, url)
