"""While one address attacks the API, a reader at another address is answered (short ``bench-api``)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from benchmarks.attacks import attacked, described, reader_times_s, service
from deploy.ports import free_port
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.redis, pytest.mark.slow]

SECONDS, ASKS_PER_S = 1.5, 10.0
# make bench-api measures on an idle machine (docs/readers.md). Here a reader must only be answered. An attack
# may cost a reader this much, or a hundred times what an answer takes here without an attack.
MOST_MS, MOST_TIMES = 30_000, 100


def median_ms(port: int) -> float:
    """Ask at a fixed pace; return the median time of the answers, all of which must come."""
    seen = described(asyncio.run(reader_times_s(port, SECONDS, ASKS_PER_S, PATIENCE_S)))
    assert seen["counts"] == int(SECONDS * ASKS_PER_S)
    return float(seen["median_ms"])


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = free_port()
    with service(tmp_path_factory.mktemp("attacked"), port):
        yield port


@pytest.fixture(scope="module")
def calm_ms(port: int) -> float:
    """Return the median time of an answer without an attack."""
    return median_ms(port)


@pytest.mark.parametrize(
    "attack", ["match[]", "every long question", "half-open connections", "keep-alive flood"]
)
def test_a_reader_at_another_address_is_answered(port: int, calm_ms: float, attack: str) -> None:
    with attacked(port, attack):
        attacked_ms = median_ms(port)
    assert attacked_ms < max(MOST_MS, MOST_TIMES * calm_ms)
