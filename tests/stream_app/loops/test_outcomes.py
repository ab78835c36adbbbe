"""The operator's counters hold each record once, whatever breaks between counting and its confirmation."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_app.core.records import Apply, Reply
from stream_app.ports import Store
from tests.stream_app.declared import STREAM, changed, strategy_of
from tests.stream_app.one_source import OneSource


class LosesReplies:
    """A store whose first replies to ``apply`` are lost after the change took effect."""

    def __init__(self, store: Store, lost: int) -> None:
        self._store, self._lost = store, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def apply(self, stream: str, change: Apply) -> Reply:
        reply = await self._store.apply(stream, change)
        if self._lost and reply is Reply.DONE:
            self._lost -= 1
            raise ConnectionError("redis: the reply was lost")
        return reply


@pytest.mark.parametrize("goes_on", ["the same worker", "another worker"])
def test_refused_records_are_counted_once_if_a_reply_is_lost(tmp_path: Path, goes_on: str) -> None:
    strategy = strategy_of()
    strategy = replace(strategy, declared=changed(strategy.declared, late="drop"))
    with closing(OneSource(tmp_path, strategy)) as one:

        async def count() -> None:
            await one.closer().reconcile()
            ingest = one.ingest(LosesReplies(one.store, lost=1))
            one.clock.set_bin(101)
            one.append(99, 100, 100)
            with one.path.open("ab") as file:
                file.write(b"nonsense\n")
            with pytest.raises(ConnectionError):
                await ingest.step()
            if goes_on == "another worker":
                ingest = one.ingest()
            one.append(101)
            await ingest.step()
            await ingest.step()

        asyncio.run(count())
        counts = asyncio.run(one.store.operator_counts(STREAM))
    refused = {name: counts.get(name) for name in ("before_first_bin", "undecodable")}
    assert refused == {"before_first_bin": 1, "undecodable": 1}
