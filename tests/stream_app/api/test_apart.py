"""The process for long questions computes outside the service's process, and ends with the service."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stream_app.api.admission.apart import Apart
from tests.patience import PATIENCE_S

SERVICE = """
import asyncio, os, sys
from stream_app.api.admission.apart import Apart
async def run():
    print(await Apart().of(os.getpid), flush=True)
    await asyncio.sleep(60)
if __name__ == "__main__":
    asyncio.run(run())
"""


def is_there(pid: int) -> bool:
    """Return whether a process is running."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().split()[2] != "Z"


def gone(pid: int) -> bool:
    """Wait until a process has ended; fail if it takes too long."""
    return _until(lambda: not is_there(pid))


def _until(true: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + PATIENCE_S
    while not true() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return true()


async def test_process_apart_computes_until_it_is_closed() -> None:
    apart = Apart()
    first = await apart.of(os.getpid)
    assert first not in (os.getpid(), None)
    for number in (signal.SIGINT, signal.SIGHUP):  # sent to all processes of a service
        os.kill(first, number)
    assert await apart.of(os.getpid) == first
    with pytest.raises(ZeroDivisionError):
        await apart.of(divmod, 1, 0)
    loaded = await apart.of(eval, "list(__import__('sys').modules)")
    of_questions = ("counts", "streams", "sums", "values", "windows")
    assert {f"stream_app.api.answers.{module}" for module in of_questions} <= set(loaded)
    process = apart.begun()
    os.kill(first, signal.SIGKILL)
    assert _until(lambda: process.has_ended)  # a question before that fails and says to ask again
    second = await apart.of(os.getpid)
    assert second != first
    apart.close()
    assert gone(second)


async def test_answer_is_computed_once_even_if_all_readers_leave(tmp_path: Path) -> None:
    apart, answers, key = Apart(), dict[tuple[object, ...], None](), (str(tmp_path / "made"),)
    for _ in range(3):  # they are cancelled before the other process has begun
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(apart.fill(answers, os.mkdir, key), 0.001)
    await apart.fill(answers, os.mkdir, key)  # making it twice would raise an error
    assert answers == {key: None}
    with pytest.raises(FileExistsError):
        await apart.of(os.mkdir, *key)
    apart.close()


def test_process_apart_ends_when_the_service_is_killed() -> None:
    command = [sys.executable, "-c", SERVICE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        pid = int(service.stdout.readline())
        assert is_there(pid)
        service.kill()
        service.wait()
        assert gone(pid)
