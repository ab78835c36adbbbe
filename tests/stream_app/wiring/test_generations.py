"""A running worker begins a generation by itself, at the instant from which on it cannot be taken back."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.ports import free_port
from stream_app.config.load import load
from stream_app.core.counting.bins import Binning, Closing
from stream_app.core.instants import format_instant
from stream_app.loops.clocks import LiveClock, own_clock_us
from stream_app.loops.segments import SegmentPlan
from stream_app.monitoring.metrics import Metrics
from stream_app.ports import OperatorError
from stream_app.shell.checks.stored import Compared, check_stored
from stream_app.wiring.counted_log import CountedLog
from stream_app.wiring.workers import run_worker
from tests.patience import eventually_async

CONFIG = """
redis: {{url: "embedded:./redis"}}
publish_every: 250ms
operator: {{port: {port}}}
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: s, bin: {bin}, grace: 0s, epoch: {epoch}, first: "{first}"}}
    privacy: {{epsilon: 1}}
"""
KEYS = "    keys: {field: plan, list: [free, paid]}\n"  # a field that nothing else reads


class Service:
    """A worker over one file, which is started with one configuration after the other."""

    def __init__(self, directory: Path, epoch: str) -> None:
        self.directory = directory
        self.first_s = int(time.time()) // 2 * 2  # an edge of the bins of both
        self._epoch, self._port = epoch, free_port()
        (directory / "clicks.ndjson").write_text(json.dumps({"at": self.first_s}) + "\n")

    def rows(self, name: str) -> int:
        """Return how many rows a generation's witness has."""
        witness = self.directory / "state" / "witness" / f"{name}.ndjson"
        return len(witness.read_text().splitlines()) if witness.exists() else 0

    @asynccontextmanager
    async def runs(self, bin: str, name: str, more: str = "") -> AsyncIterator[list[None]]:
        """Run a worker until it has released two rows of a generation; yield its starts, one entry each."""
        file, starts, before = self.write(bin, more), list[None](), self.rows(name)
        running = asyncio.create_task(run_worker(load(file, {}), lambda: starts.append(None)))

        async def has_released() -> bool:
            assert not running.done()
            return self.rows(name) > before + 1

        await eventually_async(has_released, f"{name} has released")
        yield starts
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    def write(self, bin: str, more: str = "") -> Path:
        """Write the configuration. Args: more, lines of the stream."""
        file = self.directory / "app.yaml"
        file.write_text(self._text(bin) + more)
        return file

    async def compared(self, bin: str) -> Compared:
        """Return what ``doctor`` finds in the store for a configuration."""
        file = self.directory / "other.yaml"
        file.write_text(self._text(bin))
        return await check_stored(load(file, {}))

    def _text(self, bin: str) -> str:
        first = format_instant(self.first_s * 10**6)
        return CONFIG.format(bin=bin, epoch=self._epoch, first=first, port=self._port)

    async def refused(self) -> list[str]:
        """Return the worker's series about settings that cannot begin."""
        return await self.series("stream_app_generation_refused")

    async def series(self, name: str) -> list[str]:
        """Return the worker's series of one metric."""
        async with httpx.AsyncClient() as client:
            text = (await client.get(f"http://127.0.0.1:{self._port}/metrics")).text
        return re.findall(rf"^{name}.*", text, re.MULTILINE)


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what makes a running worker begin the next segment now; no start begins it."""
    monkeypatch.setattr("stream_app.core.segments.plan.LEAD_US", 0)
    asked = asyncio.Event()

    async def until_next(*_asked: Any) -> None:
        await asked.wait()
        asked.clear()

    monkeypatch.setattr(SegmentPlan, "until_next", until_next)

    def begin() -> None:
        monkeypatch.setattr("stream_app.core.segments.plan.LEAD_US", 7_200_000_000)
        asked.set()

    return begin


@pytest.mark.redis
@pytest.mark.parametrize("decodes_all", [True, False])
async def test_a_segment_joins_the_running_loops(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    begin: Callable[[], None],
    decodes_all: bool,
) -> None:
    """Only a log that is decoded without a new field is opened anew, as where another worker began it."""
    caplog.set_level(logging.WARNING)
    answers = [] if decodes_all else [False]
    can_read = CountedLog.can_read
    monkeypatch.setattr(
        *(CountedLog, "can_read"), lambda *asked: answers.pop() if answers else can_read(*asked)
    )
    service = Service(tmp_path, "16s")
    async with service.runs("1s", "clicks"):
        pass
    async with service.runs("2s", "clicks", KEYS) as starts:
        begin()

        async def has_begun() -> bool:
            return service.rows("clicks%402") > 1

        await eventually_async(has_begun, "the segment has released")
        assert len(starts) == (1 if decodes_all else 2)
    assert "on, as generation 2: keys" in caplog.text


@pytest.mark.redis
async def test_a_segment_that_cannot_join_stops_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    begin: Callable[[], None],
) -> None:
    monkeypatch.setattr("stream_app.wiring.counted_logs.REFUSED_S", 0.1)
    service = Service(tmp_path, "1h")
    async with service.runs("1s", "clicks"):
        pass
    async with service.runs("2s", "clicks") as starts:
        with monkeypatch.context() as patch:
            patch.setattr("stream_app.wiring.starting.check_streams", _refuse)
            begin()

            async def is_refused() -> bool:
                return "a segment cannot begin, so the settings so far hold: no room" in caplog.text

            await eventually_async(is_refused, "the segment is refused")
            before = service.rows("clicks")

            async def goes_on() -> bool:
                return service.rows("clicks") > before + 1

            await eventually_async(goes_on, "the old settings hold")

        async def is_stored() -> bool:
            return "this is stored" in str((await service.compared("2s")).changes)

        await eventually_async(is_stored, "it is stored as soon as it may be")
        assert len(starts) == 1


async def _refuse(*_asked: Any) -> None:
    raise OperatorError("no room")


@pytest.mark.redis
async def test_settings_that_are_put_back_in_time_leave_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    service = Service(tmp_path, "1h")
    async with service.runs("1s", "clicks"):
        pass
    async with service.runs("2s", "clicks") as starts:
        assert len(starts) == 1
        # The other settings are wanted, and nothing of them is stored.
        assert "on, as generation 2: time.bin 2s instead of 1s" in caplog.text
        [change] = (await service.compared("2s")).changes
        assert "the old settings can be put back" in change
    caplog.clear()
    async with service.runs("1s", "clicks"):
        assert (await service.compared("1s")).changes == []
    assert "generation" not in caplog.text
    assert "ends" not in caplog.text
    assert service.rows("clicks%402") == 0


@pytest.mark.redis
async def test_what_is_stored_is_said_until_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """``doctor``, ``check-config`` and each start name the coming generation, and that it stays."""
    monkeypatch.setattr("stream_app.core.segments.plan.LEAD_US", 7_200_000_000)
    service = Service(tmp_path, "1h")
    async with service.runs("1s", "clicks"):
        pass
    async with service.runs("2s", "clicks"):
        caplog.clear()
    async with service.runs("2s", "clicks"):
        [change] = (await service.compared("2s")).changes
    said = r"clicks: from \S+ on, as generation 2; this is stored, and it cannot be taken back"
    assert re.fullmatch(said, change)
    assert re.search(said, caplog.text)


@pytest.mark.redis
async def test_a_start_that_is_refused_or_has_a_wrong_clock_stores_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The epoch ends soon, so a start stores the change at once."""
    service = Service(tmp_path, "2m")
    async with service.runs("1s", "clicks"):
        pass
    file, number = service.write("2s"), tmp_path / "state" / "id"
    begun = number.read_text()
    number.write_text("0123456789abcdef")
    with pytest.raises(OperatorError, match="its file is counted from another state directory"):
        await run_worker(load(file, {}))
    number.write_text(begun)

    with monkeypatch.context() as patch:
        ahead = partial(LiveClock, own_us=lambda: own_clock_us() + 60_000_000)
        patch.setattr("stream_app.wiring.workers.LiveClock", ahead)
        waiting = asyncio.create_task(run_worker(load(file, {})))

        async def has_waited() -> bool:
            return "is 60 s behind this worker's" in caplog.text

        await eventually_async(has_waited, "the worker waits for right clocks")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    # A change that finds no instant: the worker counts on, and ``check-config`` and ``doctor`` refuse it.
    monkeypatch.setattr("stream_app.core.segments.plan.common_edge", lambda *_asked: None)
    async with service.runs("2s", "clicks"):
        [refused] = (await service.compared("2s")).refused
        assert refused.said.startswith("stream clicks: generation 2 cannot begin, so the settings so far")
        assert await service.refused() == ['stream_app_generation_refused{stream="clicks"} 1.0']
    assert "stream clicks: generation 2 cannot begin, so the settings so far hold" in caplog.text
    async with service.runs("1s", "clicks"):
        assert await service.refused() == []
    assert "does not say how it goes on" not in caplog.text  # no end is stored


@pytest.mark.redis
async def test_no_metric_says_that_a_stream_is_late_that_has_left_the_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a generation that another worker has released to its end: this one last saw an early bin."""
    metrics = Metrics()
    metrics.next_bin("clicks@9", Closing(Binning(1_000_000), 0), 0)
    monkeypatch.setattr("stream_app.wiring.workers.Metrics", lambda: metrics)
    service = Service(tmp_path, "1h")
    async with service.runs("1s", "clicks"):
        [series] = await service.series("stream_app_closing_overdue_seconds")
        assert 'stream="clicks"' in series
