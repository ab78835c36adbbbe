"""A real Redis for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream_app.state.embedded import EmbeddedRedis


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path_factory.mktemp("redis")) as running:
        yield running
