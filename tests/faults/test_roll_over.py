"""Kill -9 of worker or Redis between every two steps of an epoch's roll-over; lost or damaged noise pages.

Whichever process dies: no noise is drawn again for an epoch that has begun, each bin is released once, and
every epoch is in the ledger.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from dphist.tree.decoder import decode_noise
from stream_app.loops.closer import NOISE_LOST
from stream_app.ports import OperatorError
from stream_app.sinks.witness_file import WitnessFile
from stream_app.state.connection import connect, execute
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.keys import StreamKeys
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from tests.faults.roll_over import BINS, DESIGN, Death, Victim, run, strategy
from tests.patience import PATIENCE_S
from tests.stream_app.declared import BIN_US, FIRST_BIN

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(900)]

# Every worker is a copy of one clean process that has imported everything. A copy takes 0.01 s.
WORKERS = multiprocessing.get_context("forkserver")
WORKERS.set_forkserver_preload(["tests.faults.roll_over"])
NO_SUCH_CALL = 4
LEAST_STEPS = 12  # calls of a roll-over and of the release after it


@pytest.fixture
def directory() -> Iterator[Path]:
    """Yield a directory, in memory if possible: processes are killed here, not machines."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


@pytest.fixture
def server(directory: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(directory / "redis") as server:
        yield server


def work(server: EmbeddedRedis, directory: Path, stream: str, death: Death | None = None) -> int | None:
    """Run a worker until it ends or dies; if Redis dies, start it again at once.

    Returns: the worker's exit status, negative if a signal ended it.
    """
    process = WORKERS.Process(target=run, args=(server.worker_url, str(directory), stream, death))
    process.start()
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        process.join(0.01)
        if not server.running:
            restart(server)
        elif process.exitcode is not None:
            return process.exitcode
    raise AssertionError(f"{stream}: a worker that neither ends nor dies")


def restart(server: EmbeddedRedis) -> None:
    """Start a server again that has died; its lock may be free a moment later."""
    until = time.monotonic() + PATIENCE_S
    while not server.running:
        with suppress(OperatorError):
            server.restart()
        assert time.monotonic() < until
        time.sleep(0.01)


def rows_of(directory: Path, stream: str) -> list[bytes]:
    witness = WitnessFile(directory / "witness")
    rows = asyncio.run(witness.rows(stream, 0))
    witness.close()
    return [row.row for row in rows]


def drawings(directory: Path) -> list[list[int]]:
    """Return, for each drawing of an epoch's noise, the errors of the running counts."""
    drawn = [np.array(json.loads(line), np.int64) for line in (directory / "draws").read_text().splitlines()]
    pairs = zip(drawn[::2], drawn[1::2], strict=False)
    return [decode_noise(DESIGN, pair)[:, 0].tolist() for pair in pairs]


def check(server: EmbeddedRedis, directory: Path, stream: str, epochs: list[tuple[int, int]]) -> None:
    """Check the result: each bin is released once, and each epoch has its own drawing and a ledger entry."""
    rows = [json.loads(row) for row in rows_of(directory, stream)]
    assert [row["bin"] for row in rows] == list(range(FIRST_BIN, FIRST_BIN + BINS))
    first_bins = {row["epoch"]: row["bin"] for row in reversed(rows)}
    assert sorted(first_bins.items()) == epochs
    errors, used = drawings(directory), list[set[int]]()
    for epoch, first_bin in epochs:
        published = {row["bin"] - first_bin: row["published"][0] for row in rows if row["epoch"] == epoch}
        used.append(
            {
                number
                for number, own in enumerate(errors)
                if all(own[bin] == value for bin, value in published.items())
            }
        )
    assert all(len(one) == 1 for one in used), used
    assert len(set.union(*used)) == len(epochs)
    held: Any = asyncio.run(_held(server, stream))
    assert held["ledger"] == epochs
    assert held["nonces"] <= {held["noise"]}, "noise that no epoch began with is still there"


async def _held(server: EmbeddedRedis, stream: str) -> dict[str, Any]:
    store = RedisStore(server.worker_url)
    state, ledger = await store.load(stream), await store.ledger(strategy(stream).source)
    await store.close()
    assert state is not None
    redis = connect(server.operator_url)
    fields = await execute(redis, "HKEYS", StreamKeys(stream).noise)
    await redis.aclose()
    return {
        "ledger": [(e.epoch, e.start_us // BIN_US) for e in ledger if e.stream == stream],
        "noise": state.noise,
        "nonces": {field.decode().rsplit(":", 1)[0] for field in fields},
        "reason": state.epoch.end_reason,
    }


def die_and_go_on(server: EmbeddedRedis, directory: Path, victim: Victim, call: int) -> bool:
    """Kill a process after a call took effect, then start a worker; return whether that call existed."""
    stream, own = f"{victim}{call}", directory / str(call)
    own.mkdir()
    redis = server.process
    assert redis is not None
    status = work(server, own, stream, Death(victim, call, redis.pid))
    if status == NO_SUCH_CALL:
        return False
    assert status == -9 if victim == "worker" else status in (0, 3)
    if victim == "redis" and server.process is redis:
        redis.wait(PATIENCE_S)  # a worker may notice the loss before the server has died
        restart(server)
    seen = rows_of(own, stream)
    assert work(server, own, stream) == 0
    assert rows_of(own, stream)[: len(seen)] == seen
    check(server, own, stream, [(0, FIRST_BIN), (1, FIRST_BIN + 4)])
    return True


def test_kill_9_of_the_worker_between_every_two_steps(server: EmbeddedRedis, directory: Path) -> None:
    with ThreadPoolExecutor(4) as side_by_side:
        for first in range(0, 1_000, 8):
            calls = range(first, first + 8)
            if not all(side_by_side.map(lambda n: die_and_go_on(server, directory, "worker", n), calls)):
                break
    assert first >= LEAST_STEPS


def test_kill_9_of_redis_between_every_two_steps(server: EmbeddedRedis, directory: Path) -> None:
    call = 0
    while die_and_go_on(server, directory, "redis", call):
        call += 1
    assert call >= LEAST_STEPS


@pytest.mark.parametrize("loss", ["missing", "damaged"])
def test_a_page_lost_from_redis_ends_the_epoch(server: EmbeddedRedis, directory: Path, loss: str) -> None:
    # The worker dies after three bins, before its next call. So the page of the fourth bin is still stored.
    assert work(server, directory, "visits", Death("worker", 0, quiet_bins=3)) == -9
    asyncio.run(_lose(server, "visits", loss))
    assert work(server, directory, "visits") == 0
    check(server, directory, "visits", [(0, FIRST_BIN), (1, FIRST_BIN + 3)])
    assert asyncio.run(_reasons(server, "visits"))[0] == NOISE_LOST


async def _lose(server: EmbeddedRedis, stream: str, loss: str) -> None:
    redis, key = connect(server.operator_url), StreamKeys(stream).noise
    for field in await execute(redis, "HKEYS", key):
        data = await execute(redis, "HGET", key, field)
        if loss == "missing":
            await execute(redis, "HDEL", key, field)
        else:
            await execute(redis, "HSET", key, field, data[:-1] + bytes([data[-1] ^ 1]))
    await redis.aclose()


async def _reasons(server: EmbeddedRedis, stream: str) -> list[str | None]:
    reader = RedisReader(server.api_url)
    state = await reader.public_state(stream)
    await reader.close()
    assert state is not None
    return [epoch.end_reason for epoch in state.epochs]
