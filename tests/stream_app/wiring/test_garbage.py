"""A process that exempts its live objects from searches for garbage still finds new garbage soon."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Objects live through some searches before they become garbage, like those of a connection that is closed.
CODE = """
import gc
from collections import deque
from stream_app.wiring.garbage import exempt_live_objects

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
