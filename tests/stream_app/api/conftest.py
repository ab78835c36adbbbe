"""A fixture: one service per test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stream_app.api.browsing import Backstage


@pytest.fixture
def backstage() -> Iterator[Backstage]:
    behind = Backstage()
    yield behind
    behind.close()
