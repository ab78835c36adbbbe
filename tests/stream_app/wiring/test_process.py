"""A process imports what its work needs, finds garbage soon, and gives freed memory back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_a_service_over_files_imports_no_kafka_client() -> None:
    modules = ("stream_app.shell.supervision", "stream_app.wiring.workers", "stream_app.wiring.public")
    asked = f"import sys, {', '.join(modules)}; print({{'kafka', 'aiokafka'}} & sys.modules.keys() or 'none')"
    assert subprocess.check_output([sys.executable, "-c", asked], text=True) == "none\n"


# Objects live through some searches before they become garbage, like those of a connection that is closed.
CODE = """
import gc
from collections import deque
from stream_app.wiring.process import exempt_live_objects

class Cycle:
    def __init__(self):
        self.itself = self

open_now = [[] for _ in range({live})]
exempt_live_objects()
gc.set_threshold(100, 5, 5)
most = 0
young = deque(maxlen=2_000)
for step in range(100_000):
    young.append(Cycle())
    if step % 1_000 == 0:
        most = max(most, sum(type(one) is Cycle for one in gc.get_objects()))
print(most)
"""


@pytest.mark.parametrize("live", [0, 200_000])
def test_garbage_does_not_grow_with_the_objects_that_are_exempt(live: int) -> None:
    command = [sys.executable, "-c", CODE.format(live=live)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 10_000


# What a service does all the time: short-lived buffers, and small objects between them that stay.
HOLES = """
import asyncio
from stream_app.wiring.process import freed_memory_returned

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

async def main():
    async with freed_memory_returned({every_s}):
        before = resident_mb()
        stay = []
        for number in range(400):
            buffer = bytes([number % 256]) * 100_000
            stay.append((buffer, bytes(600)))
        high = resident_mb()
        stay = [small for _, small in stay]
        del buffer
        for _ in range(200):
            await asyncio.sleep(0.05)
            if resident_mb() < before + (high - before) / 4:
                break
        print(round(high - before), round(resident_mb() - before))

asyncio.run(main())
"""


def test_memory_that_was_freed_between_live_objects_leaves_the_process() -> None:
    command = [sys.executable, "-c", HOLES.format(every_s=0.1)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    high_mb, left_mb = map(int, done.stdout.split())
    assert high_mb > 30
    assert left_mb < high_mb / 4
