"""A row becomes visible at the first public instant after its release, and never before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.stream_app.declared import FIRST_BIN
from tests.stream_app.loops.test_sharing import EXACT, SharedSource, count_to, visible, witnessed, worker

EVERY_US = 1_000_000  # the default of ``publish_every_us``


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


@pytest.mark.parametrize("public", [True, False])
def test_a_row_released_after_an_instant_waits_even_if_the_loop_is_late(
    one: SharedSource, public: bool
) -> None:
    async def run() -> None:
        closer = one.closer(sharing={"witness_is_public": public})
        await count_to(one, closer, FIRST_BIN + 1, FIRST_BIN)
        await closer.close_due()
        instant_us = one.clock.now_us - one.clock.now_us % EVERY_US
        await closer.publisher.publish(instant_us)
        assert await visible(one) == 0
        await closer.publisher.publish(instant_us + EVERY_US)
        assert await visible(one) == 1

    asyncio.run(run())
