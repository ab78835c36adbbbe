"""Fixtures: one headless Chromium per module, and one service per test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.stream_app.api.browsing import Backstage, launched


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as chromium:
        yield chromium


@pytest.fixture
def backstage() -> Iterator[Backstage]:
    behind = Backstage()
    yield behind
    behind.close()
