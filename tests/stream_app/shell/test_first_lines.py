"""The first lines of ``run`` describe what was released, also if a setting was changed since."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from stream_app.config import load_text
from stream_app.shell.first_lines import first_lines, progress_of
from tests.models.memory import MemoryStore
from tests.stream_app.published import FIRST_BIN, HOUR_US, Published

BINS = 64


def configured(bin_length: str, epoch: str) -> str:
    time = {"field": "scheduled", "format": "iso8601", "grace": "0s", "bin": bin_length, "epoch": epoch}
    stream = {"source": {"file": "flights.ndjson"}, "time": time, "privacy": {"epsilon": 1}}
    return json.dumps({"streams": {"departures": stream}})


@pytest.mark.parametrize(
    ("bin_length", "epoch"), [("1h", "64h"), ("30m", "32h"), ("1d", "64d"), ("30d", "360d")]
)
def test_progress_is_of_the_bins_that_the_stream_began_with(bin_length: str, epoch: str) -> None:
    async def lines() -> tuple[list[str], str]:
        to_us = (FIRST_BIN + BINS) * HOUR_US
        published = Published(MemoryStore(), epoch_bins=BINS, replay=(FIRST_BIN * HOUR_US, to_us))
        await published.open()
        await published.close([100] * 41)
        reader = published.store.reader()
        text = configured(bin_length, epoch)
        settings = load_text(text, Path("app.yaml"), {})
        first = await first_lines(settings, reader, serves=False)
        return first, (await progress_of(settings.streams[0], reader)).describe()

    first, line = asyncio.run(lines())
    assert first == [
        "departures: going on from 2013-01-02T17:00:00Z; nothing is measured again",
        f"refused records are listed with their reasons below {Path.cwd() / 'state'}, in dead_letters",
    ]
    assert line.startswith("departures: 41 of 64 bins closed, released until 2013-01-02T17:00:00Z, ")
    assert "count since 2013-01-01T00:00:00Z: " in line
