"""Streams are exported and retired, with real stores and workers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from msgspec import structs
from redis import Redis

from deploy.ports import free_port
from stream_app.api.app import create_app
from stream_app.config import load
from stream_app.core.declaration import Declaration
from stream_app.core.records import History
from stream_app.core.segments.history import HISTORY_HASH, history_text, read_strategy
from stream_app.core.segments.strategies import last_text, source_of, strategies_text
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError
from stream_app.shell.commands import main
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.keys import STORED_FORMAT, StreamKeys
from stream_app.state.reader import RedisReader
from stream_app.stored_format import ENTRIES
from stream_app.wiring.exporting import named_segments
from stream_app.wiring.storage import no_worker
from stream_app.wiring.workers import run_worker
from tests.patience import PATIENCE_S
from tests.stream_app.api.client import SHARED
from tests.stream_app.declared import strategy_of

pytestmark = pytest.mark.redis

DAY = "{from: 2024-01-01T00:00:00Z, to: 2024-01-02T00:00:00Z}"
SOURCE = f"source: {{file: events.ndjson, replay: {DAY}}}"
TIME = "time: {field: at, format: iso8601, bin: 1h, epoch: 6h}"
AGAIN = "{epsilon: 1, accept: measured again}"
# Streams whose rows hold all values, and streams whose rows hold hashes of them.
STREAMS = {
    "clicks": "privacy: {epsilon: 1}",
    "keys": f"keys: {{field: country, list: [FR, DE], other: true}}\n    privacy: {AGAIN}",
    "levels": f"tree: {{release: causal, epochs: 4}}\n    privacy: {AGAIN}",
    "found": "keys: {field: country, discover: {epsilon: 3, delta: 0.001}}\n    tree: {release: causal}\n"
    "    privacy: {epsilon: 7, accept: measured again}",
    "roughly": "keys: {field: country, discover: {epsilon: 3, delta: 0.0005}}\n"
    "    privacy: {epsilon: 7, delta: 0.001, accept: measured again}",
    "people": "privacy: {epsilon: 1, unit: {user: name, max_events: 3}, accept: measured again}",
}


def text(url: str, streams: dict[str, str], more: str = "") -> str:
    bodies = "".join(f"  {name}:\n    {SOURCE}\n    {TIME}\n    {body}\n" for name, body in streams.items())
    return f"""
redis: {{url: "{url}", api_url: "{url}", alerts_url: "{url}"}}
api: {{port: {free_port()}}}
publish_every: 250ms
{more}
streams:
{bodies}"""


def write_events(directory: Path) -> None:
    directory.mkdir()
    lines = [
        json.dumps(
            {"at": f"2024-01-01T{n % 24:02}:30:00Z", "country": "FRDE"[n % 2 * 2 :][:2], "name": f"u{n % 7}"}
        )
        for n in range(200)
    ]
    (directory / "events.ndjson").write_text("\n".join(lines) + "\n")


def count_a_day(directory: Path, url: str, streams: dict[str, str]) -> Path:
    """Count a day; return the configuration."""
    write_events(directory)
    config = directory / "app.yaml"
    config.write_text(text(url, streams))
    asyncio.run(run_worker(load(config)))
    return config


def command(*words: str | Path) -> str:
    """Run a command; return what it prints. Raises: AssertionError if it refuses."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


def refused(*words: str | Path) -> str:
    """Return the one line with which a command refuses."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 2, result.output
    [line] = result.stderr.splitlines()
    return line


def admin(server: EmbeddedRedis) -> Redis:
    return Redis.from_url(server.operator_url)


def contents(server: EmbeddedRedis, pattern: str = "*") -> dict[object, object]:
    redis = admin(server)
    # The clock moves, and a set's bytes depend on the order in which it grew.
    keys = (key for key in redis.scan_iter(pattern) if b"{clock}" not in key and b"pub:names" not in key)
    return {key: redis.dump(key) for key in keys}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedRedis, EmbeddedRedis]]:
    with (
        EmbeddedRedis(tmp_path_factory.mktemp("here")) as here,
        EmbeddedRedis(tmp_path_factory.mktemp("there")) as there,
    ):
        yield here, there


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory, servers: Any) -> Path:
    """Return the configuration of a service that has counted a day with every kind of stream."""
    config = count_a_day(tmp_path_factory.mktemp("counted") / "service", servers[0].worker_url, STREAMS)
    command("export", config.parent / "all.ndjson", "--config", config)
    return config


def answers(server: EmbeddedRedis, stream: str) -> dict[str, Any]:
    """Return what the API answers about a stream, without what depends on the moment."""

    async def asked() -> dict[str, Any]:
        reader = RedisReader(server.api_url)
        app = create_app(reader, apart=SHARED)
        transport = httpx.ASGITransport(app=app)
        await app.state.replicas.refresh()
        found = {}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for path in ("", "/count", "/series", "/privacy"):
                response = await client.get(f"/v1/streams/{stream}{path}")
                assert response.status_code == 200, (path, response.text)
                found[path] = response.json()
        await reader.close()
        return found

    return asyncio.run(asked())


def test_an_export_holds_no_secret(counted: Path, servers: Any) -> None:
    exported = (counted.parent / "all.ndjson").read_bytes()
    redis = admin(servers[0])
    assert list(redis.scan_iter("dp:*:sec:*"))
    for stream in STREAMS:
        counter = redis.hget(StreamKeys(stream).state, "counter")
        assert not counter or (isinstance(counter, bytes) and counter not in exported)
    # It is made with the rights of the API, who can read public keys only.
    config = counted.parent / "reader.yaml"
    config.write_text(counted.read_text().replace(servers[0].worker_url, servers[0].api_url))
    command("export", counted.parent / "public.ndjson", "--config", config)
    assert (counted.parent / "public.ndjson").read_bytes() == exported


async def series_of(server: EmbeddedRedis, stream: str, **asked: str) -> dict[float, tuple[float, ...]]:
    """Return what the API answers for each bin, by its start."""
    reader = RedisReader(server.api_url)
    app = create_app(reader, apart=SHARED)
    await app.state.replicas.refresh()
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://localhost"
    ) as client:
        answer = await client.get(f"/v1/streams/{stream}/series", params={"kind": "bin"} | asked)
    await reader.close()
    found = answer.json()
    rows = zip(*(found[name] for name in ("value", "stderr", "lower", "upper")), strict=True)
    return dict(zip(found["start"], rows, strict=True))


def test_days_have_the_numbers_of_the_api(counted: Path, servers: Any) -> None:
    from pyarrow import parquet

    # They are written with the rights of the API.
    config = counted.parent / "public.yaml"
    config.write_text(counted.read_text().replace(servers[0].worker_url, servers[0].api_url))
    days = counted.parent / "days"
    said = command("export", days, "--format", "parquet", "--config", config).splitlines()
    assert said == [
        *(f"{name}: 1 new days, until 2024-01-01" for name in sorted(STREAMS)),
        f"{days}: 9 new files, 9 in all",
    ]
    again = command("export", days, "--format", "parquet", "--config", config).splitlines()
    assert again[-1] == f"{days}: 0 new files, 9 in all"
    for stream in STREAMS:
        for table in ("bin", "key_bin"):
            file = days / stream / table / "2024-01-01.parquet"
            assert file.exists() == (table == "bin" or stream in ("keys", "found", "roughly"))
            rows = parquet.read_table(file).to_pylist() if file.exists() else []
            for key in {row.get("key") for row in rows}:
                own = {row["start"].timestamp(): row for row in rows if row.get("key") == key}
                asked = asyncio.run(series_of(servers[0], stream, **({} if key is None else {"key": key})))
                assert asked.keys() <= own.keys()
                assert stream in ("found", "roughly") or len(asked) == 24
                for start, numbers in asked.items():
                    row = own[start]
                    assert (row["value"], row["stderr"]) == pytest.approx(numbers[:2])
                    assert (row["lower"], row["upper"]) == pytest.approx(numbers[2:], abs=1e-6)
                    assert (row["stream"], row["generation"], row["private"]) == (stream, 1, True)
        whole = {row["start"]: row["value"] for row in parquet.read_table(days / stream / "bin").to_pylist()}
        assert len(whole) == 24
        if stream in ("keys", "found", "roughly"):  # what a list does not name is in no key, and in the total
            keys = parquet.read_table(days / stream / "key_bin").to_pylist()
            for start, value in whole.items():
                assert sum(row["value"] for row in keys if row["start"] == start) == pytest.approx(value)


def test_a_retired_stream_has_no_secrets_and_stays_readable(tmp_path: Path, servers: Any) -> None:
    there = servers[1]
    admin(there).flushall()
    directory = tmp_path / "service"
    write_events(directory)
    config = directory / "app.yaml"
    live = "privacy: {epsilon: 1, unit: {user: name, max_events: 3}}"
    config.write_text(
        text(there.worker_url, {"visits": live})
        .replace("iso8601, bin: 1h, epoch: 6h", "s, bin: 1s, grace: 0s, epoch: 1h")
        .replace(SOURCE, "source: {file: now.ndjson}")
    )
    _count_some_bins(config, directory, there)
    redis, keys = admin(there), StreamKeys("visits")
    public = contents(there, "dp:{visits}:pub:*")
    assert redis.exists(keys.operator_counts, keys.positions) == 2
    assert list((directory / "state" / "noise_keys" / "visits").glob("*.key"))
    ledger = contents(there, "dp:*:pub:ledger")
    before = answers(there, "visits")

    with no_worker(directory / "state"):  # as a worker holds it
        line = refused("retire", "visits", "--config", config)
        assert "is in use by a worker; stop it, and run this again" in line
    said = command("retire", "visits", "--config", config)
    assert said.startswith("visits: retired; ")
    assert list(redis.scan_iter("dp:{visits}:sec:*")) == [keys.state.encode()]
    state = redis.hgetall(keys.state)
    assert (state[b"counter"], state[b"noise"], state[b"strategy_hash"]) == (b"", b"", HISTORY_HASH.encode())
    assert not list((directory / "state" / "noise_keys" / "visits").glob("*.key"))
    assert contents(there, "dp:*:pub:ledger") == ledger
    assert redis.get(STORED_FORMAT) == b"%d" % ENTRIES
    kept = contents(there, "dp:{visits}:pub:*")
    changed = {key for key in kept if kept[key] != public.get(key)}
    assert changed <= {keys.strategy.encode(), keys.epochs.encode(), keys.visible.encode()}

    after = answers(there, "visits")
    assert after[""]["retired"].startswith("20")
    assert after[""]["next_release"] is None
    assert after[""]["ends"] == after[""]["released_until"]
    assert after[""]["epochs"][-1]["end_reason"] == "retired"
    assert after["/privacy"]["next_epoch"] == ""
    assert after["/count"]["seq"] >= before["/count"]["seq"]

    # A configuration that still names it is refused in one line, by a start and by check-config.
    line = (
        f"stream visits: it was retired on {after['']['retired'][:10]}; take visits out of the configuration"
    )
    stored = contents(there)
    with pytest.raises(OperatorError, match=f"^{line}"):
        asyncio.run(run_worker(load(config)))
    assert line in refused("check-config", "--config", config)
    over_topic = directory / "topic.yaml"  # of a topic, nothing but the store knows the identity
    over_topic.write_text(
        'kafka: {bootstrap_servers: "127.0.0.1:1"}\n'
        + config.read_text().replace("{file: now.ndjson}", "{topic: now}")
    )
    assert line in refused("check-config", "--config", over_topic)
    assert contents(there) == stored
    # Retired again, it stays what it is.
    command("retire", "visits", "--config", config)
    assert answers(there, "visits") == after
    # Builds up to 0.2.0 could import streams of another store. They stay readable, and nobody counts them.
    told = redis.get(keys.strategy)
    assert isinstance(told, bytes)
    redis.set(keys.strategy, told.replace(b'"imported_us":null', b'"imported_us":1700000000000000'))
    assert answers(there, "visits")[""]["imported"] == "2023-11-14T22:13:20Z"
    imported = "stream visits: it was imported on 2023-11-14 and is history only; take visits out of the"
    assert imported in refused("check-config", "--config", config)


def _count_some_bins(config: Path, directory: Path, server: EmbeddedRedis) -> None:
    """Run a worker as a process until it has shown three bins with events; end it."""
    import time

    events = (directory / "now.ndjson").open("ab", buffering=0)
    process = subprocess.Popen([sys.executable, "-m", "stream_app", "worker", "--config", str(config)])
    try:
        deadline = time.monotonic() + PATIENCE_S
        while int(admin(server).get(StreamKeys("visits").visible) or 0) < 3:
            assert time.monotonic() < deadline
            assert process.poll() is None
            events.write(json.dumps({"at": int(time.time()), "name": "ann"}).encode() + b"\n")
            time.sleep(0.05)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        while admin(server).exists(StreamKeys("visits").lease):  # it may outlive the worker
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
        events.close()


def test_a_stream_that_a_worker_runs_is_not_retired(tmp_path: Path, servers: Any) -> None:
    there = servers[1]
    admin(there).flushall()
    config = count_a_day(tmp_path / "service", there.worker_url, {"clicks": "privacy: {epsilon: 1}"})
    admin(there).set(StreamKeys("clicks").lease, "another worker")
    assert "clicks: a worker closes it now" in refused("retire", "clicks", "--config", config)
    assert "nobody: the store has no such stream" in refused("retire", "nobody", "--config", config)
    admin(there).delete(StreamKeys("clicks").lease)
    command("retire", "clicks", "--config", config)


TOTAL = (
    "privacy: {epsilon: 1, unit: {user: name, max_events: 3}, accept: measured again, total: {epsilon: 9%s}}"
)


def test_history_beside_a_total_needs_a_ledger_elsewhere(counted: Path, tmp_path: Path, servers: Any) -> None:
    admin(servers[1]).flushall()
    directory, url = tmp_path / "service", servers[1].worker_url
    config = count_a_day(directory, url, {"people": STREAMS["people"], "limited": TOTAL % ""})
    before = contents(servers[1])
    said = refused("retire", "people", "--config", config)
    assert "people: streams.limited.privacy.total counts what it measured, and as history it has no" in said
    assert said.endswith("first write ledger: {file: ...} or {topic: ...}, or per: stream in the total")
    assert contents(servers[1]) == before


@pytest.mark.parametrize(
    ("name", "meant"),
    [("clicks", ["clicks", "clicks@2", "clicks@10"]), ("clicks@1", ["clicks"]), ("clicks@2", ["clicks@2"])],
)
def test_a_name_exports_all_generations_of_its_stream(name: str, meant: list[str]) -> None:
    assert named_segments(name, ["clicks@10", "clicks", "other", "clicks@2"]) == meant


def test_no_other_name_is_exported() -> None:
    for name in ("click", "clicks@3", "clicks@x"):
        with pytest.raises(OperatorError, match="the store has no such stream; it has clicks, clicks@2"):
            named_segments(name, ["clicks", "clicks@2"])


def test_a_history_is_told_from_a_strategy() -> None:
    text = history_text(b'{"v":1}', History(retired_us=0))
    assert read_strategy(text) == (b'{"v":1}', History(retired_us=0))
    assert read_strategy(b'{"v":1}') == (b'{"v":1}', None)


def test_older_builds_refuse_a_history() -> None:
    """Builds before the stored format had a number read a strategy's version at every load."""
    with pytest.raises(ValueError, match=r"^strategy version 2 is not known here; use the release"):
        Strategy.from_json(history_text(b"{}", History(retired_us=0)))


@pytest.mark.parametrize("changes", [0, 1, 2])
def test_a_history_tells_its_last_strategy_whatever_it_changed_before(changes: int) -> None:
    """A stream whose grace changed keeps several strategies, and they may be history."""
    texts = [replace(strategy_of(), declared=_with_grace(grace)).to_json() for grace in range(changes + 1)]
    stored = history_text(strategies_text(texts), History(retired_us=0))
    for text in (stored, strategies_text(texts)):
        assert Strategy.from_json(last_text(text)).declared.time.grace_us == changes * 1_000_000
        assert source_of(text) == strategy_of().source


def _with_grace(seconds: int) -> Declaration:
    declared = strategy_of().declared
    return structs.replace(declared, time=structs.replace(declared.time, grace_us=seconds * 1_000_000))
