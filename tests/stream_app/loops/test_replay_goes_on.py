"""An interrupted replay continues after its released bins, even if more of its file was counted."""

from __future__ import annotations

from pathlib import Path

from stream_app.sources.replay import ReplaySource
from tests.stream_app.files import AT, write_events


async def test_a_position_ahead_of_the_clock_waits_for_it(tmp_path: Path) -> None:
    path = write_events(tmp_path / "events.ndjson", [1_000, 2_000, 3_000, 4_000])
    reached_us = 3_500
    source = ReplaySource(path, "ndjson", AT, tmp_path / "notes", lambda: reached_us)
    [counted] = await source.read({"0": 0}, 0.0)
    assert counted.columns["at"].tolist() == [1_000, 2_000, 3_000]
    reached_us = 1_500  # where its released bins end
    assert await source.read({"0": counted.end}, 0.0) == ()
    reached_us = 4_500
    [rest] = await source.read({"0": counted.end}, 0.0)
    assert rest.columns["at"].tolist() == [4_000]
    await source.close()
