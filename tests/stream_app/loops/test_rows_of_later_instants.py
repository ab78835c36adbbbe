"""A row that is released while a public witness is written waits for the next public instant."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.stream_app.declared import FIRST_BIN
from tests.stream_app.loops.test_sharing import EXACT, SharedSource, count_to, visible, witnessed, worker


@pytest.fixture
def one(tmp_path: Path) -> Iterator[SharedSource]:
    """Yield a service with one stream, whose witness readers can see."""
    with closing(SharedSource(tmp_path, EXACT)) as one:
        yield one


@pytest.mark.parametrize("moment", ["head", "append"])
def test_a_row_released_while_the_witness_is_written_waits_for_the_next_instant(
    one: SharedSource, moment: str
) -> None:
    """How long closing takes depends on the events; it must not choose the instant of a row."""

    async def run() -> None:
        closer = worker(one, "a")
        await count_to(one, closer, FIRST_BIN + 1, FIRST_BIN)
        await closer.close_due()
        witness: Any = closer.publisher._witness
        call, bins = getattr(witness, moment), iter(range(FIRST_BIN + 2, FIRST_BIN + 7))

        async def meanwhile(*arguments: Any) -> Any:
            """Call the witness; before it answers, the closer releases one more bin."""
            reply = await call(*arguments)
            if (bin := next(bins, None)) is not None:
                setattr(witness, moment, call)  # the closer asks the witness, too
                one.clock.set_bin(bin)
                ingest = one.ingest()
                while await ingest.step():
                    pass
                await closer.close_due()
                setattr(witness, moment, meanwhile)
            return reply

        setattr(witness, moment, meanwhile)
        await closer.publisher.publish()  # at one public instant
        assert witnessed(one) == [(0, FIRST_BIN)]
        assert await visible(one) == 1
        setattr(witness, moment, call)
        await closer.publisher.publish()  # at the next
        assert await visible(one) == 2

    asyncio.run(run())
