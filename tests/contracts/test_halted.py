"""The mark of a stream that a fault has stopped: readers see it, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stream_app.core.records import Reply
from tests.contracts.conftest import Stores
from tests.contracts.test_store import loaded, opened

pytestmark = pytest.mark.anyio


async def test_the_mark_comes_and_goes_and_changes_nothing_else(stores: Stores) -> None:
    assert await stores.store.mark_halted(stores.stream, True) == Reply.CONFLICT  # it was never opened
    assert await stores.store.load(stores.stream) is None
    await opened(stores)
    before = await loaded(stores)
    seen = await stores.reader.public_state(stores.stream)
    for mark, reply in (
        (True, Reply.DONE),
        (True, Reply.ALREADY),
        (False, Reply.DONE),
        (False, Reply.ALREADY),
    ):
        assert await stores.store.mark_halted(stores.stream, mark) == reply
        assert await loaded(stores) == replace(before, halted=mark)
        now = await stores.reader.public_state(stores.stream)
        assert now is not None
        assert now.halted == mark
        assert now == seen
