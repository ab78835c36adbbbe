"""A stream continues with the file with which it began, and with no other; which streams share a source."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from stream_app.config import ConfigError, Settings, SourceSettings, StreamSettings, load, load_text
from stream_app.config.source import by_log
from stream_app.core.strategy import Strategy
from stream_app.durable import secret_directory
from stream_app.loops.segments import SegmentPlan
from stream_app.monitoring.metrics import Metrics
from stream_app.ports import OperatorError
from stream_app.sources.file import FileSource
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from stream_app.vault.key_files import KeyFiles
from stream_app.wiring.counted_log import Adapters, label_of
from stream_app.wiring.counted_logs import measuring
from stream_app.wiring.event_logs import check_file, check_one_source, named_by
from stream_app.wiring.starting import CheckedStart
from stream_app.wiring.workers import run_worker
from tests.patience import PATIENCE_S
from tests.stream_app.declared import changed_stream, strategy_of
from tests.stream_app.one_source import AT

TEXT = """
state: {dir: ./state}
streams:
  clicks:
    source: {file: clicks.ndjson, group: people}
    time: {field: at, format: iso8601, bin: 5m, grace: 30s, epoch: 1d}
    privacy: {epsilon: 1.0}
"""


def stream_in(folder: Path) -> StreamSettings:
    folder.mkdir(exist_ok=True)
    (folder / "clicks.ndjson").touch()
    config = folder / "app.yaml"
    config.write_text(TEXT)
    return load(config).streams[0]


def test_another_file_under_a_stream_that_has_begun_is_refused(tmp_path: Path) -> None:
    """Events in the other file may be the same people's. Counting them again would double the stated cost."""
    stream, state = stream_in(tmp_path), tmp_path / "state"
    check_file(stream, state)
    check_file(stream, state)
    assert isinstance(stream.source, SourceSettings)
    edited = replace(stream, source=replace(stream.source, file=tmp_path / "edited.ndjson"))
    with pytest.raises(
        OperatorError, match=r"^streams\.clicks\.source\.file: .*edited.ndjson is not the file"
    ):
        check_file(edited, state)
    other_field = changed_stream(stream, time={"field": "seen"})
    with pytest.raises(OperatorError, match="read in another way"):
        check_file(other_field, state)


def test_a_state_directory_is_known_wherever_it_is_moved_to(tmp_path: Path) -> None:
    stream = stream_in(tmp_path / "events")
    assert isinstance(stream.source, SourceSettings)
    source = FileSource(stream.source.file, "ndjson", AT, secret_directory(tmp_path / "notes"))

    def named(state: Path) -> Any:
        state.mkdir(exist_ok=True)
        return named_by(source, strategy_of(), state).declared.source.state_id

    (tmp_path / "there").mkdir()
    first = named(tmp_path / "state")
    assert named(tmp_path / "state") == first
    assert named(tmp_path / "other") != first
    (tmp_path / "state").rename(tmp_path / "there" / "state")
    assert named(tmp_path / "there" / "state") == first
    asyncio.run(source.close())


def test_everything_may_be_moved_together(tmp_path: Path) -> None:
    check_file(stream_in(tmp_path / "here"), tmp_path / "here" / "state")
    (tmp_path / "here").rename(tmp_path / "there")
    check_file(stream_in(tmp_path / "there"), tmp_path / "there" / "state")


def test_a_topic_that_is_read_under_two_names_is_refused() -> None:
    """Two addresses of one cluster look like two clusters until a topic of both is open."""

    began = strategy_of()

    def opened(stream: str, source: str, topic_id: str) -> Strategy:
        log = structs.replace(began.declared.source, name=source, topic="clicks", topic_id=topic_id)
        return replace(began, stream=stream, declared=structs.replace(began.declared, source=log))

    one, same = opened("a", "topic:clicks", "id-1"), opened("b", "topic:clicks", "id-1")
    check_one_source([one, same, opened("c", "topic:eu/clicks", "id-2")])
    with pytest.raises(OperatorError, match="stream c: its topic clicks is read as topic:clicks too"):
        check_one_source([one, same, opened("c", "topic:eu/clicks", "id-1")])


SOURCES = {
    "a": "file: one.ndjson, group: shop",
    "b": "file: one.ndjson, group: shop",
    "c": "file: two.ndjson, group: shop",
    "d": "file: three.ndjson",
    "e": "file: three.ndjson",
    "f": "file: four.ndjson",
}


def settings_of(directory: Path, sources: dict[str, str]) -> Settings:
    streams = "".join(
        f"""
  {name}:
    source: {{{source}}}
    time: {{field: at, format: s, bin: 1h, grace: 1m, epoch: 1d, first: 2024-06-01T00:00:00Z}}
    privacy: {{epsilon: 1, unit: {{user: who, max_events: 2}}, accept: "measured again"}}"""
        for name, source in sources.items()
    )
    return load_text("streams:" + streams, directory / "app.yaml", {})


def test_a_worker_restores_streams_of_one_source_together(tmp_path: Path) -> None:
    settings, keys = settings_of(tmp_path, SOURCES), KeyFiles(tmp_path / "keys")
    store = RedisStore("redis://127.0.0.1:1")  # no server is asked
    start = CheckedStart(settings, SegmentPlan(settings, (), 0), {}, None, keys)
    adapters = Adapters(start, tmp_path, lambda _resources: store, store, Metrics(), AsyncExitStack())
    found = measuring(settings.streams, {}, adapters)
    together = {source: [other.strategy.stream for other in others] for source, others in found.items()}
    assert together == {"shop": ["a", "b", "c"], "file:three.ndjson": ["d", "e"], "file:four.ndjson": ["f"]}
    for source, others in found.items():
        for other in others:
            assert other.ledger is not None
            assert len(other.ledger.names(source)) == (2 if source == "shop" else 1)


def test_logs_of_one_group_are_told_apart_in_metrics(tmp_path: Path) -> None:
    """Under one label each would overwrite the lag and the closed streams of the other."""
    settings = settings_of(tmp_path, SOURCES)
    assert [label_of(streams, settings) for streams in by_log(settings.streams)] == [
        f"file:{name}.ndjson" for name in ("one", "two", "three", "four")
    ]


@pytest.mark.parametrize("other", ["file: one.ndjson", "file: one.ndjson, group: street"])
def test_one_log_has_one_source(tmp_path: Path, other: str) -> None:
    """Otherwise two ledgers would know a part of its cost each."""
    with pytest.raises(ConfigError, match=r"streams\.b reads the same log as a; give both the same source"):
        settings_of(tmp_path, {"a": SOURCES["a"], "b": other})


CONFIGURATION = """
redis: {{url: "{redis}"}}
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: s, bin: 1s, grace: 0s, epoch: 60s}}
    privacy: {{epsilon: 1}}
"""


def settings_in(folder: Path, redis: str) -> Settings:
    """Return a configuration as on another machine, where other files have the same names."""
    folder.mkdir()
    (folder / "clicks.ndjson").write_text(f'{{"at": {int(time.time())}}}\n')
    (folder / "app.yaml").write_text(CONFIGURATION.format(redis=redis))
    return load(folder / "app.yaml", {})


@pytest.mark.redis
@pytest.mark.slow
def test_a_second_machine_is_refused_and_the_first_one_moves_with_its_state(tmp_path: Path) -> None:
    async def run(redis: str) -> None:
        here, there = (settings_in(tmp_path / name, redis) for name in ("here", "there"))
        reader = RedisReader(redis)
        first = asyncio.create_task(run_worker(here))
        try:
            await asyncio.wait_for(_released(reader, 2), PATIENCE_S)
            with pytest.raises(
                OperatorError, match=r"^stream clicks: its file is counted from another state d"
            ):
                await asyncio.wait_for(run_worker(there), PATIENCE_S)
            assert not first.done()
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            (tmp_path / "here").rename(tmp_path / "moved")
            moved = asyncio.create_task(run_worker(load(tmp_path / "moved" / "app.yaml", {})))
            state = await reader.public_state("clicks")
            assert state is not None
            await asyncio.wait_for(_released(reader, state.visible_seq + 2), PATIENCE_S)
            moved.cancel()
            await asyncio.gather(moved, return_exceptions=True)
            state = await reader.public_state("clicks")
            assert state is not None
            assert all(epoch.end_reason is None for epoch in state.epochs), "noise was lost on the way"
        finally:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await reader.close()

    with EmbeddedRedis(tmp_path / "redis") as server:
        asyncio.run(run(server.worker_url))


async def _released(reader: RedisReader, seq: int) -> None:
    while True:
        state = await reader.public_state("clicks")
        if state is not None and state.visible_seq >= seq:
            return
        await asyncio.sleep(0.1)
