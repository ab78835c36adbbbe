"""While one address attacks the API, a reader at another address is answered (short ``bench-api``)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from benchmarks.attacks import attacked, described, reader_times_s, service
from deploy.ports import free_port

pytestmark = [pytest.mark.redis, pytest.mark.slow]

SECONDS, ASKS_PER_S = 1.5, 10.0
# make bench-api measures on an idle machine (docs/readers.md). Here a reader must only be answered.
MOST_MS = 30_000


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = free_port()
    with service(tmp_path_factory.mktemp("attacked"), port):
        yield port


@pytest.mark.parametrize(
    "attack", ["match[]", "every long question", "half-open connections", "keep-alive flood"]
)
def test_a_reader_at_another_address_is_answered(port: int, attack: str) -> None:
    with attacked(port, attack):
        seen = described(asyncio.run(reader_times_s(port, SECONDS, ASKS_PER_S)))
    assert seen["counts"] == int(SECONDS * ASKS_PER_S)
    assert seen["median_ms"] < MOST_MS, seen
