"""A browser for tests: one Chromium for all tests of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


class SharedBrowser:
    """One Chromium for all tests of a process, because its start costs as much as a page.

    Playwright's event loop lives as long. While no test has the browser, the loop is not marked as running,
    so that tests can run loops of their own.
    """

    def __init__(self) -> None:
        self.started = ExitStack()
        self.browser: Browser | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def lent(self) -> Iterator[Browser]:
        """Yield the browser without pages, and close afterwards what a failed test left open."""
        with self._awake():
            if self.browser is None or not self.browser.is_connected():
                from tests.stream_app.api.browsing import launched  # here, because few tests need a browser

                self.started.close()
                self.browser = self.started.enter_context(launched())
            yield self.browser
            if self.browser.is_connected():
                for context in self.browser.contexts:
                    context.close()

    def close(self) -> None:
        """End the browser."""
        with self._awake():
            self.started.close()

    @contextmanager
    def _awake(self) -> Iterator[None]:
        asyncio._set_running_loop(self.loop)
        try:
            yield
        finally:
            self.loop = asyncio._get_running_loop()
            asyncio._set_running_loop(None)


@pytest.fixture(scope="session")
def shared_browser() -> Iterator[SharedBrowser]:
    """Yield the browser of this process's tests; it starts when the first of them needs it."""
    shared = SharedBrowser()
    yield shared
    shared.close()


@pytest.fixture(scope="module")
def browser(shared_browser: SharedBrowser) -> Iterator[Browser]:
    """Lend a module the browser."""
    with shared_browser.lent() as lent:
        yield lent
