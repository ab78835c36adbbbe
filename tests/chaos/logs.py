"""Logs beside the topic: a spool and a list of files, which one more worker counts; their own faults."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.collector import closes_s, released_bins
from tests.chaos.processes import POSTED, ROTATED, Deployment
from tests.chaos.traffic import BIN_MS
from tests.e2e.log_traffic import LogTraffic
from tests.simulator.checks import Broken

EVERY_STEPS = 4  # every fourth fault is followed by one of these
FROZEN_S = 3.0  # at most: what is sent meanwhile must arrive within the grace
PAUSE_S = 0.2  # of the programs that write


class LogFault(StrEnum):
    """What the run does to the processes of these logs."""

    KILL_LISTENER = "kill -9 listener"
    FREEZE_LISTENER = "freeze listener"
    KILL_LOG_WORKER = "kill -9 log worker"
    FREEZE_LOG_WORKER = "freeze log worker"


@dataclass(frozen=True, slots=True)
class LogStep:
    """One of these faults. Args: down_s, how long the process is gone or frozen."""

    fault: LogFault
    down_s: float

    def strike(self, deployment: Deployment) -> None:
        """Let it happen."""
        is_listener = self.fault in (LogFault.KILL_LISTENER, LogFault.FREEZE_LISTENER)
        process = deployment.listener if is_listener else deployment.log_worker
        assert process is not None
        if self.fault in (LogFault.FREEZE_LISTENER, LogFault.FREEZE_LOG_WORKER):
            process.freeze(self.down_s)
        else:
            process.await_waking()
            process.start_again(signal.SIGKILL, self.down_s / 3)


def draw_log_steps(seed: int) -> Iterator[LogStep | None]:
    """Yield what follows each fault: mostly nothing. Every kind comes once early."""
    rng = random.Random(f"logs {seed}")
    first = list(LogFault)
    rng.shuffle(first)
    while True:
        yield from [None] * (EVERY_STEPS - 1)
        yield LogStep(first.pop() if first else rng.choice(list(LogFault)), rng.uniform(0.1, FROZEN_S))


def written(traffic: LogTraffic) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """Return in which bins posted events must count, in which they may, and in which those of files must.

    A request that was confirmed only after its bin may have closed may be late, or not: a late event is
    dropped.
    """
    posted, late = Counter[int](), Counter[int]()
    for one in traffic.confirmed:
        bin = one.at_ms // BIN_MS
        (late if one.confirmed_s > closes_s(bin) - 1.0 else posted)[bin] += 1
    return posted, late, Counter(at_ms // BIN_MS for at_ms in traffic.written_ms)


def compare_logs(traffic: LogTraffic, rows: Mapping[str, Mapping[int, bytes]]) -> dict[str, int]:
    """Compare released bins with what was written; return how much each stream counted. Raises: Broken."""
    released = {stream: released_bins(dict(rows[stream])) for stream in (POSTED, ROTATED)}
    posted, late, rotated = written(traffic)
    _compare(POSTED, released[POSTED], posted, late)
    _compare(ROTATED, released[ROTATED], rotated, Counter())
    if 10 * late.total() > posted.total():
        raise Broken(f"{late.total()} of {posted.total()} posted events may be late")
    return {stream: counts.total() for stream, counts in released.items()}


def _compare(stream: str, released: Counter[int], on_time: Counter[int], late: Counter[int]) -> None:
    wrong = {
        bin: (found, on_time[bin], late[bin])
        for bin, found in released.items()
        if not on_time[bin] <= found <= on_time[bin] + late[bin]
    }
    if wrong:
        raise Broken(f"{stream}: bins (released, written on time, perhaps late) differ: {wrong}")
    if missing := [bin for bin in on_time if bin > min(released) and bin not in released]:
        raise Broken(f"{stream}: bins {missing} hold events and were never released")
    if not released.total():
        raise Broken(f"{stream} has counted nothing")
