"""Asks check-config, doctor and a worker about one configuration over one empty store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from redis import Redis

from deploy.ports import free_port
from stream_app.config import load
from stream_app.ports import OperatorError
from stream_app.shell.commands import main
from stream_app.state.embedded import EmbeddedRedis
from stream_app.wiring.workers import run_worker

BEGIN_S = 1_772_323_200  # 2026-03-01T00:00:00Z
DAY = 'replay: {from: "2026-03-01T00:00:00Z", to: "2026-03-02T00:00:00Z", speed: max}'
JSON = "".join(f'{{"at": "2026-03-01T{hour:02}:00:00Z", "k": "a"}}\n' for hour in range(20)).encode()
CSV = "id,at,k\n" + "".join(f"{hour},2026-03-01T{hour:02}:00:00Z,a\n" for hour in range(20))
OTHER = "id,k,at\n" + "".join(f"{hour},b,2026-03-01T{hour:02}:30:00Z\n" for hour in range(20))
Files = dict[str, bytes]


class Asked(NamedTuple):
    """What the three say. Args: run, why a run is refused, at its start or its end; None: it is not."""

    check: tuple[int, str]
    doctor: tuple[int, str]
    run: str | None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(autouse=True)
def empty_store(server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test use one server, which is empty at first."""
    with Redis.from_url(server.operator_url) as operator:
        operator.flushall()
    monkeypatch.setenv("STREAM_APP_REDIS_URL", server.worker_url)


def text(source: str, more: str = "", format: str = "iso8601", time_more: str = "", top: str = "") -> str:
    if "replay" not in source and "grace" not in time_more:
        time_more += ", grace: 5s"
    return f"""
api: {{port: {free_port()}}}
publish_every: 250ms
{top}
streams:
  a:
    source: {{{source}}}
    time: {{field: at, format: {format}, bin: 1h, epoch: 1d{time_more}}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
{more}"""


def command(config: Path, name: str) -> tuple[int, str]:
    found = CliRunner().invoke(main, [name, "--config", str(config)])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.output


def why_refused(config: Path, within_s: float = 0.3) -> str | None:
    """Run a worker until it is refused, all replays are complete, or it counts; return why it is refused.

    Args: within_s, how long it may count until it is refused, if its log is followed.
    """

    async def run() -> str | None:
        counts = asyncio.Event()
        worker = asyncio.create_task(run_worker(load(config), counts.set))
        settings = load(config)
        live = any(stream.declared.source.replay is None for stream in settings.streams)
        ready = asyncio.create_task(counts.wait())
        waited = {worker, ready} if live else {worker}
        await asyncio.wait(waited, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        if live and not worker.done():
            await asyncio.wait({worker}, timeout=within_s)
        for task in (ready, worker):
            task.cancel()
        [ended] = await asyncio.gather(worker, return_exceptions=True)
        return str(ended) if isinstance(ended, OperatorError) else None

    return asyncio.run(run())


def asked(config: Path, within_s: float = 0.3) -> Asked:
    """Ask all three. Args: as for ``why_refused``."""
    return Asked(command(config, "check-config"), command(config, "doctor"), why_refused(config, within_s))


def write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
