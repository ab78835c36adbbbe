"""The file of API keys is read again while a service runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from stream_app.config import key_file
from stream_app.config.key_file import add_key, follow_keys


def test_key_is_taken_away_by_a_file_of_equal_size_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_file, "LOOK_EVERY_S", 0.01)
    path, taken = tmp_path / "keys.ndjson", asyncio.Queue[tuple[str, ...]]()
    add_key(path, "ann", [])
    before = path.stat()

    async def run() -> None:
        following = asyncio.create_task(
            follow_keys(path, lambda keys: taken.put_nowait(tuple(key.name for key in keys)))
        )
        assert await taken.get() == ("ann",)
        with path.open("r+") as file:
            file.write(path.read_text().replace("ann", "bob"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert await taken.get() == ("bob",)
        following.cancel()

    asyncio.run(asyncio.wait_for(run(), 60))
