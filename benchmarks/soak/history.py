"""What the rows of a soak that ended take in an API: ``python -m benchmarks.soak.history FOLDER``.

An API starts over a copy of the folder's Redis, and another one over an empty Redis. What the first one takes
more is what it keeps for the rows: in a soak an API grows by so much for each row, whatever is asked.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import httpx
import redis

from benchmarks.machine import commit, memory_mb, running
from benchmarks.soak.deployment import STREAMS, configuration
from deploy.ports import free_port
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.keys import StreamKeys

PATIENCE_S, LOOK_EVERY_S, SETTLED_S = 120.0, 0.5, 5.0
NO_BROKER = "127.0.0.1:9"  # an API asks none
OF_A_PROCESS = shutil.ignore_patterns("*.lock", "socket.path")


def main() -> None:
    """Print the memory of both, and the bytes of a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="history-") as name:
        folder = Path(name)
        (folder / "empty").mkdir()
        shutil.copytree(asked.folder / "redis", folder / "kept" / "redis", ignore=OF_A_PROCESS)
        (no_rows, least_mb), (rows, mb) = (api_memory(folder / which) for which in ("empty", "kept"))
    found = {"rows": rows, "api_mb": round(mb, 1), "api_without_rows_mb": round(least_mb, 1)}
    if rows:
        found["bytes_of_a_row"] = round(1e6 * (mb - least_mb) / (rows - no_rows))
    print(json.dumps({"commit": commit()} | found))


def api_memory(folder: Path) -> tuple[int, float]:
    """Return how many rows the Redis of a folder shows, and the MB of an API that has read them."""
    with EmbeddedRedis(folder / "redis") as server:
        with redis.Redis.from_url(server.operator_url) as client:
            rows = sum(int(client.get(StreamKeys(name).visible) or 0) for name in STREAMS)
        port = free_port()
        (folder / "app.yaml").write_text(configuration(NO_BROKER, server, port, free_port()))
        with running(folder, "api") as api:
            _until_ready(f"http://127.0.0.1:{port}/readyz")
            time.sleep(SETTLED_S)
            return rows, memory_mb(api.pid, "VmRSS")


def _until_ready(url: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(LOOK_EVERY_S)
    raise TimeoutError(f"{url} did not become ready")


if __name__ == "__main__":
    main()
