"""A real Kafka broker for tests: the one in KAFKA_BOOTSTRAP_SERVERS, else one for each test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.kafka.broker import running


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a broker."""
    with running(tmp_path_factory.mktemp("kafka")) as servers:
        yield servers
