"""A running worker begins a generation by itself, at the instant from which on it cannot be taken back."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from functools import partial
from pathlib import Path

import pytest

from stream_app.config.load import load
from stream_app.core.instants import format_instant
from stream_app.wiring.workers import run_worker
from tests.patience import eventually_async

CONFIG = """
redis: {{url: "embedded:./redis"}}
publish_every: 250ms
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: s, bin: {bin}, grace: 0s, epoch: 16s, first: "{first}"}}
    privacy: {{epsilon: 1}}
"""


@pytest.mark.redis
def test_a_worker_starts_its_loops_again_when_a_generation_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The old settings can be put back for six seconds at least; then the worker needs no restart."""
    monkeypatch.setattr("stream_app.loops.generations.LEAD_US", 6_000_000)
    caplog.set_level(logging.WARNING)
    file, first_s = tmp_path / "app.yaml", int(time.time()) // 2 * 2  # an edge of the bins of both
    (tmp_path / "clicks.ndjson").write_text(json.dumps({"at": first_s}) + "\n")

    def rows(name: str) -> int:
        witness = tmp_path / "state" / "witness" / f"{name}.ndjson"
        return len(witness.read_text().splitlines()) if witness.exists() else 0

    async def has_released(name: str) -> bool:
        return rows(name) > 1

    async def run() -> None:
        starts = list[int]()
        for bin, name in (("1s", "clicks"), ("2s", "clicks%402")):
            file.write_text(CONFIG.format(bin=bin, first=format_instant(first_s * 10**6)))
            starts.append(0)

            def note() -> None:
                starts[-1] += 1

            running = asyncio.create_task(run_worker(load(file, {}), note))
            await eventually_async(partial(has_released, name), f"{name} has released")
            assert not running.done()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        said = caplog.text
        assert "on, as generation 2: time.bin 2s instead of 1s" in said
        # On a slow machine a start may come after its instant: it stores the change at once, or takes the
        # end of the next epoch.
        assert starts[1] > 1 or "a start stores this now" in said.partition("generation 2")[2][:200]

    asyncio.run(run())
