"""Each of the operator's metrics changes with what its name says, and with nothing else."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from deploy.ports import free_port
from stream_app.core.incoming import Reason, RecordBatch, Refusal
from stream_app.core.records import GENESIS, Cut, Reply, StreamState
from stream_app.listening import once_free
from stream_app.monitoring import listener
from stream_app.monitoring.listener import serving
from stream_app.monitoring.metrics import Metrics
from stream_app.monitoring.observed import watch_dead_letters, watch_source, watch_store
from stream_app.ports import OperatorError, Source
from stream_app.sinks.dead_letter_file import DeadLetterFiles, Keeping
from stream_app.sources.read_ahead import read_ahead
from tests.contracts.examples import EPOCH, FIRST_BIN, HASH, STRATEGY, TEXT, apply, release_of
from tests.models.memory import MemoryStore
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.anyio

CLOSING = STRATEGY.declared.time.closing


class Wall:
    """A clock in seconds that the test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Log:
    """A log with two partitions, one of which another worker takes over."""

    def __init__(self) -> None:
        self.known = {"0": 40, "1": 7}
        self.batches: list[RecordBatch] = []

    async def partitions(self) -> Sequence[str]:
        return tuple(self.known)

    async def owned(self) -> Sequence[str]:
        return tuple(self.known)

    async def first_position(self, partition: str, since_us: int | None) -> int:
        return 0

    async def kept_since_us(self) -> int | None:
        return None

    async def positions_at(
        self, partitions: Sequence[str], instants_us: Sequence[int]
    ) -> Mapping[str, Sequence[int]]:
        return {partition: [self.known[partition]] * len(instants_us) for partition in partitions}

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        return self.batches

    async def close(self) -> None: ...

    def ends(self) -> Mapping[str, int]:
        return self.known


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"stream_app_{name}", labels)


async def test_watched_store_times_and_counts_calls() -> None:
    wall, metrics = Wall(), None
    metrics = Metrics(wall)
    inner = MemoryStore()
    store = watch_store(inner, metrics, {"clicks"})
    assert await store.open_epoch("clicks", TEXT, EPOCH, GENESIS) is Reply.DONE
    await store.start_partition("clicks", HASH, "0", 0)
    change = apply(0, 5, [(FIRST_BIN, 0, 3), (FIRST_BIN + 1, 2, 4)])
    assert await store.apply("clicks", change) is Reply.DONE
    assert await store.apply("clicks", change) is Reply.ALREADY
    await store.take_cuts("clicks", HASH, "0", FIRST_BIN - 1, [Cut(FIRST_BIN, 5)])
    await store.seal("clicks", HASH, ["0"], FIRST_BIN)
    state = await store.load("clicks")
    assert state == await inner.load("clicks")
    assert state is not None
    wall.now_s = CLOSING.instant_us(FIRST_BIN) / 1e6 + 3
    assert value(metrics, "closing_overdue_seconds", stream="clicks") == pytest.approx(3)
    assert await store.release("clicks", release_of(state, 1)) is Reply.DONE
    await store.load("clicks")
    assert value(metrics, "closing_overdue_seconds", stream="clicks") == 0
    assert value(metrics, "redis_seconds_count", call="apply") == 2
    assert value(metrics, "redis_replies_total", call="apply", reply="done") == 1
    assert value(metrics, "redis_replies_total", call="apply", reply="already") == 1
    assert value(metrics, "apply_cells_sum") == 2
    assert value(metrics, "apply_cells_count") == 1
    assert value(metrics, "releases_total", stream="clicks") == 1
    assert value(metrics, "release_delay_seconds_sum") == pytest.approx(3)
    assert value(metrics, "redis_failures_total", call="apply") is None


@pytest.mark.parametrize(
    ("stopped", "until_bin", "told"), [(False, None, 0), (True, None, 1), (True, FIRST_BIN, 0)]
)
async def test_a_stream_is_told_as_stopped_unless_it_ended(
    stopped: bool, until_bin: int | None, told: int
) -> None:
    class Stopped(MemoryStore):
        async def load(self, stream: str) -> StreamState | None:
            state = await super().load(stream)
            return state and replace(state, stopped=stopped, until_bin=until_bin)

    metrics = Metrics()
    store = watch_store(Stopped(), metrics, {"clicks"})
    await store.open_epoch("clicks", TEXT, EPOCH, GENESIS)
    await store.load("clicks")
    assert value(metrics, "stopped", stream="clicks") == told


def test_failed_store_call_is_counted_and_raised() -> None:
    class Gone(MemoryStore):
        async def load(self, stream: str) -> None:
            raise ConnectionError("redis: no answer")

        async def publish(self, stream: str, seq: int) -> None:
            raise ConnectionError("redis: no answer")

    metrics = Metrics()
    store = watch_store(Gone(), metrics, {})
    for call in (store.load("clicks"), store.publish("clicks", 1)):
        with pytest.raises(ConnectionError):
            asyncio.run(call)
    assert value(metrics, "redis_failures_total", call="load") == 1
    assert value(metrics, "redis_failures_total", call="publish") == 1


@pytest.mark.parametrize("wrapped", [lambda log: log, read_ahead])
def test_lag_covers_the_partitions_of_this_worker(wrapped: Callable[[Source], Source]) -> None:
    metrics, log = Metrics(), Log()
    source = watch_source(wrapped(log), "topic:clicks", metrics)
    asyncio.run(source.read({"0": 15, "1": 7}, 0))
    labels = {"source": "topic:clicks"}
    assert value(metrics, "lag", partition="0", **labels) == 25
    assert value(metrics, "lag", partition="1", **labels) == 0
    del log.known["1"]
    asyncio.run(source.read({"0": 38}, 0))
    assert value(metrics, "lag", partition="0", **labels) == 2
    assert value(metrics, "lag", partition="1", **labels) is None


def test_batch_is_timed_until_the_next_read() -> None:
    metrics, log = Metrics(), Log()
    source = watch_source(log, "topic:clicks", metrics)
    labels = {"source": "topic:clicks"}

    async def read() -> None:
        await source.read({}, 0)
        await source.read({}, 0)
        assert value(metrics, "batch_seconds_count", **labels) == 0
        log.batches = [RecordBatch("0", 0, 5, np.arange(5), {})]
        assert await source.read({}, 0) is log.batches
        await asyncio.sleep(0.02)
        log.batches = []
        await source.read({}, 0)
        await source.read({}, 0)

    asyncio.run(read())
    assert value(metrics, "batch_seconds_count", **labels) == 1
    assert 0.02 <= (value(metrics, "batch_seconds_sum", **labels) or 0) < 5


def test_dead_letters_are_counted_once_per_stream_from_zero(tmp_path: Path) -> None:
    async def write() -> None:
        for _ in range(3):
            await letters.write([future, null], ("visits",))
        await letters.write([future], ("sales",))
        await letters.write([undecodable])

    def counted() -> dict[str, float | None]:
        return {
            stream: value(metrics, "dead_letters_total", source="topic:clicks", stream=stream)
            for stream in ("visits", "sales", "orders", "")
        }

    metrics = Metrics()
    future, null = Refusal("0", 3, Reason.FUTURE, b"x"), Refusal("0", 4, Reason.NULL, b"")
    undecodable = Refusal("0", 5, Reason.UNDECODABLE, b"")
    with closing(DeadLetterFiles(tmp_path, Keeping(60, 10**6, False))) as file:
        letters = watch_dead_letters(file, "topic:clicks", ["visits", "sales", "orders"], metrics)
        assert counted() == {"visits": 0, "sales": 0, "orders": 0, "": 0}
        asyncio.run(write())
    assert counted() == {"visits": 2, "sales": 1, "orders": 0, "": 1}


@pytest.mark.slow
async def test_endpoint_serves_metrics_and_refuses_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "once_free", partial(once_free, patience_s=0.1))
    metrics, port = Metrics(), free_port()
    metrics.lag.labels("topic:clicks", "0").set(12)

    def scrape() -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
            body: bytes = answer.read()
        return body

    async with serving(metrics, "127.0.0.1", port):
        scraped = await asyncio.to_thread(scrape)
        assert b'stream_app_lag{partition="0",source="topic:clicks"} 12.0' in scraped
        with pytest.raises(OperatorError, match=r"^operator\.port: 127\.0\.0\.1:\d+ cannot be served"):
            async with serving(Metrics(), "127.0.0.1", port):
                pass


async def test_metrics_with_a_token_require_it() -> None:
    metrics, port, token = Metrics(), free_port(), "0123456789abcdef"
    metrics.lag.labels("topic:clicks", "0").set(12)

    def ask(authorization: str | None) -> tuple[int, bytes]:
        headers = {} if authorization is None else {"Authorization": authorization}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read()

    async with serving(metrics, "127.0.0.1", port, token):
        status, told = await asyncio.to_thread(ask, f"Bearer {token}")
        assert status == 200
        assert b"stream_app_lag" in told
        for wrong in (None, "", "Bearer ", f"Bearer {token}0", f"Basic {token}", token, "Bearer \xe9"):
            status, told = await asyncio.to_thread(ask, wrong)
            assert status == 401
            assert told == b"operator.token is needed: send Authorization: Bearer TOKEN\n"


def test_a_thousand_streams_have_forty_series_each() -> None:
    def series(streams: int) -> int:
        metrics = Metrics()
        for number in range(streams):
            name = f"stream-{number:04}"
            metrics.know(name, 3_600.0)
            metrics.stored.show(name, {})
            metrics.next_bin(name, CLOSING, None)
            metrics.stopped.labels(name).set(0)
            metrics.releases.labels(name).inc()
            metrics.release_delay.observe(0.1)
            metrics.apply_cells.observe(100_000)
            metrics.dead_letters.labels("clicks.ndjson", name).inc()
        return sum(not line.startswith(b"#") for line in metrics.exposition().splitlines())

    alone = series(0)
    assert series(1_000) - alone <= 40 * 1_000


class OtherVersion(MemoryStore):
    """A store whose stream has a strategy that this build cannot read."""

    async def load(self, stream: str) -> StreamState | None:
        state = await super().load(stream)
        return None if state is None else replace(state, strategy=b'{"v":9}')


def test_a_strategy_of_another_version_is_passed_on_to_the_caller() -> None:
    async def loaded() -> StreamState | None:
        store = watch_store(OtherVersion(), Metrics(), {"clicks"})
        await store.open_epoch("clicks", TEXT, EPOCH, GENESIS)
        return await store.load("clicks")

    state = asyncio.run(loaded())
    assert state is not None
    assert state.strategy == b'{"v":9}'
