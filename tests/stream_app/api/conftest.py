"""A headless Chromium for the whole module, and a service for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.stream_app.api.browsing import Backstage

DEBIAN_CHROMIUM = Path("/usr/bin/chromium")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = str(DEBIAN_CHROMIUM) if DEBIAN_CHROMIUM.exists() else None
        chromium = playwright.chromium.launch(executable_path=found, args=QUIET)
        yield chromium
        chromium.close()


@pytest.fixture
def backstage() -> Iterator[Backstage]:
    behind = Backstage()
    yield behind
    behind.close()
