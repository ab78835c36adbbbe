"""Lines of an access log per second, through one worker into the three streams that ``init`` declares.

    python -m benchmarks.web_log

Worker and Redis are separate processes. The measurement begins with the first counts that are durable, and
ends when all streams have counted the last line, so the start of the programs is not in it. The log is
made by ``tests/stream_app/web_traffic.py``: nearly every visitor comes once, and half of the lines are page
views. On a busy machine only seconds of CPU mean something.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.machine import commit, cpu_s, machine, memory_mb, running
from stream_app.state.connection import batch, connect
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.keys import StreamKeys
from tests.stream_app.web_traffic import SITE, made

RESULTS = Path(__file__).parent / "results" / "web_log.json"
LINES, DAYS = 1_000_000, 14
STREAMS = ("visitors", "pages", "referrers")
PATIENCE_S, LOOK_EVERY_S = 600.0, 0.05


def measured(folder: Path, lines: int) -> dict[str, float]:
    """Count an access log in this folder; return what it took."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first = today - timedelta(days=DAYS)
    with (folder / "access.log").open("wb") as log:
        log.writelines(made(lines, DAYS, first)[0])
    options = ["--site", SITE, "--first", first.strftime("%Y-%m-%d"), "--epsilon", "1"]
    init = [sys.executable, "-m", "stream_app", "init", "access.log", *options]
    subprocess.run(init, cwd=folder, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    written = folder / "stream-app.yaml"
    with EmbeddedRedis(folder / "redis") as redis:
        urls = json.dumps({"url": redis.worker_url, "api_url": redis.api_url})
        written.write_text(f"redis: {urls}\n{written.read_text()}")
        assert redis.process is not None
        with running(folder, configuration=written.name) as worker:
            return asyncio.run(_counted(redis.worker_url, (worker, redis.process), folder, lines))


async def _counted(
    url: str, processes: tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]], folder: Path, lines: int
) -> dict[str, float]:
    """Observe from the first durable counts until all lines are counted."""
    size, began, deadline_s = (folder / "access.log").stat().st_size, None, time.monotonic() + PATIENCE_S
    worker, redis = (process.pid for process in processes)
    client = connect(url)
    try:
        while time.monotonic() < deadline_s:
            assert processes[0].poll() is None, (folder / "worker.log").read_text()[-3_000:]
            replies = await batch(client, [("HVALS", StreamKeys(name).positions) for name in STREAMS])
            position = min(sum(map(int, reply)) for reply in replies)
            now = time.monotonic(), cpu_s(worker), cpu_s(redis), position
            if began is None and position:
                began = now
            if position == size and began is not None:
                seconds, worker_s, redis_s, read = (
                    after - before for after, before in zip(now, began, strict=True)
                )
                counted = lines * read / size
                return {
                    "lines": lines,
                    "lines_per_s": round(counted / seconds),
                    "lines_per_cpu_s": round(counted / (worker_s + redis_s)),
                    "lines_per_cpu_s_of_worker": round(counted / worker_s),
                    "worker_mb": round(memory_mb(worker, "VmHWM")),
                    "redis_mb": round(memory_mb(redis, "VmHWM")),
                }
            await asyncio.sleep(LOOK_EVERY_S)
    finally:
        await client.aclose()
    raise TimeoutError("the log was not counted in time")


def main() -> None:
    """Measure, print and store."""
    with tempfile.TemporaryDirectory(prefix="web-log-") as name:
        result = measured(Path(name), LINES)
    found = {"command": "python -m benchmarks.web_log", "commit": commit(), "machine": machine(), **result}
    if RESULTS.exists():
        found["before"] = json.loads(RESULTS.read_text()).get("before")  # an older measurement; it is kept
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
