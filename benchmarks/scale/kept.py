"""What a released row takes in Redis, from rows of one day and of four: the other points have too few."""

from __future__ import annotations

import time
from pathlib import Path

import redis

from benchmarks.running import running
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.keys import StreamKeys

KEYS = (1, 200)
DAYS = (1, 4)
PATIENCE_S = 280.0
LOOK_EVERY_S, SETTLED_S = 0.2, 3.0
CONFIGURATION = """
redis: {{url: "{redis}"}}
state: {{dir: ./state}}
streams:
  kept:
    source: {{file: events.ndjson}}
    time: {{field: at, format: s, bin: 60s, grace: 0s, epoch: 1d, first: "{first}"}}
    privacy: {{epsilon: 1}}
    {keys}
"""


def kept(folder: Path) -> dict[str, float]:
    """Return the MB of a row, and of each key of a row. Args: folder, empty."""
    of_row = []
    for keys in KEYS:
        (rows, mb), (more_rows, more_mb) = (_held(folder / f"{keys}-{days}", keys, days) for days in DAYS)
        of_row.append((more_mb - mb) / (more_rows - rows))
    key = (of_row[1] - of_row[0]) / (KEYS[1] - KEYS[0])
    return {"row": float(f"{of_row[0] - key * KEYS[0]:.4g}"), "key_of_row": float(f"{key:.4g}")}


def _held(folder: Path, keys: int, days: int) -> tuple[int, float]:
    """Return how many rows a stream has released, and how many MB its Redis takes then."""
    folder.mkdir()
    now_s = int(time.time())
    first_s = (now_s // 86_400 - days) * 86_400
    (folder / "events.ndjson").write_text(
        f'{{"at": {first_s + 1}, "key": "k0"}}\n{{"at": {now_s}, "key": "k0"}}\n'
    )
    (folder / "keys.txt").write_text("".join(f"k{number}\n" for number in range(keys)))
    listed = "keys: {field: key, list_file: keys.txt}" if keys > 1 else ""
    first = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first_s))
    with EmbeddedRedis(folder / "redis") as server, redis.Redis.from_url(server.operator_url) as client:
        text = CONFIGURATION.format(redis=server.worker_url, first=first, keys=listed)
        (folder / "app.yaml").write_text(text)
        with running(folder):
            return _when_released(client, (now_s - first_s) // 60)


def _when_released(client: redis.Redis, rows: int) -> tuple[int, float]:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = int(client.xlen(StreamKeys("kept").chain))
        if found >= rows:
            return found, _settled_mb(client, deadline)
        time.sleep(LOOK_EVERY_S)
    raise TimeoutError(f"{rows} rows were not released in time")


def _settled_mb(client: redis.Redis, deadline: float) -> float:
    """Return the allocated memory once it falls no more: spent noise and buffers leave after a release."""
    least, since = float("inf"), time.monotonic()
    while time.monotonic() < min(since + SETTLED_S, deadline):
        mb = client.info("memory")["used_memory"] / 1e6
        if mb < 0.999 * least:
            least, since = mb, time.monotonic()
        time.sleep(LOOK_EVERY_S)
    return least
