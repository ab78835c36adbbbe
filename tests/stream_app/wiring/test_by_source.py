"""Which streams a worker restores together: all of one source, whatever logs they count."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from stream_app.config import ConfigError, Settings, load_text
from stream_app.config.source import by_log
from stream_app.loops.segments import SegmentPlan
from stream_app.monitoring.metrics import Metrics
from stream_app.state.redis_store import RedisStore
from stream_app.vault.key_files import KeyFiles
from stream_app.wiring.counted_log import Adapters, label_of
from stream_app.wiring.counted_logs import measuring
from stream_app.wiring.starting import CheckedStart

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
