"""One run: traffic, faults, somebody who writes down everything that is published, and the comparison."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.chaos.processes import GRACE_S, RELEASES, STREAM, TOPIC, Deployment
from tests.chaos.schedule import AFTER_CLOSING_S, WORKERS, Fault, Step
from tests.chaos.traffic import BIN_MS, Traffic, make_topic, recount
from tests.e2e.service import Follower
from tests.simulator.checks import Broken, Watch

PATIENCE_S = 180.0
FAULTS_A_BREATH = 4
Tell = Callable[[str], None]


class Collector:
    """Reads the topic of releases from its beginning, for ever, and holds every value against the first."""

    def __init__(self, servers: str) -> None:
        self.watch = Watch()
        self.broken: Broken | None = None
        self._ended = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "collector",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1_000,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(RELEASES, 0, 0)])
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    @property
    def last_bin(self) -> int:
        """Return the bin of the last row seen, or -1."""
        rows = self.watch.rows
        return int(json.loads(rows[max(rows)])["bin"]) if rows else -1

    def _collect(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            fields = json.loads(message.value() or b"{}")
            if "nodes" in fields:
                try:
                    self.watch.see_rows([(fields["seq"], message.value() or b"")], "releases topic")
                except Broken as broken:
                    self.broken = self.broken or broken

    def close(self) -> None:
        """Stop reading."""
        self._ended.set()
        self._thread.join(10)
        self._consumer.close()


class World:
    """A deployment under one schedule. Args: load, see ``Traffic``."""

    def __init__(self, folder: Path, seed: int, steps: Iterable[Step], tell: Tell, load: int = 1) -> None:
        self._folder = folder
        self._seed = seed
        self._steps = list(steps)
        self._tell = tell
        self._load = load

    def run(self) -> str:
        """Run the schedule; return what happened in one line. Raises: Broken, with a readable line."""
        deployment = Deployment(self._folder, WORKERS)
        collector: Collector | None = None
        follower: Follower | None = None
        try:
            make_topic(deployment.servers, TOPIC)
            deployment.start()
            traffic = Traffic(deployment.servers, TOPIC, self._seed, GRACE_S, self._load)
            traffic.start()
            collector = Collector(deployment.servers)
            follower = Follower(deployment.port, STREAM)
            self._await(deployment, collector, lambda: collector.last_bin >= 0, "anything is released")
            deployment.restart_redis(0.0)  # leaves a file that is older than all that follows
            for number, step in enumerate(self._steps, start=1):
                if number % FAULTS_A_BREATH == 0:
                    self._await_progress(deployment, collector)
                self._pause(deployment, step.pause_s)
                self._tell(
                    f"fault {number} of {len(self._steps)}: {step.fault} {_whom(step)}; {_seen(collector)}"
                )
                self._strike(deployment, traffic, step)
                _check(collector, follower)
            for worker in deployment.workers:
                worker.await_waking()
            traffic.end()
            last_bin = int(time.time() * 1000) // BIN_MS
            self._tell(f"settling; {_seen(collector)}")
            self._await(deployment, collector, lambda: collector.last_bin >= last_bin, f"bin {last_bin}")
            self._await(
                deployment,
                collector,
                lambda: max(follower.seen, default=0) >= max(collector.watch.rows),
                "the API shows what is witnessed",
            )
            _check(collector, follower)
            self._await_history(deployment, collector)
            return self._compare(deployment, collector, follower)
        finally:
            if follower is not None:
                follower.close()
            if collector is not None:
                collector.close()
            deployment.close()

    def _strike(self, deployment: Deployment, traffic: Traffic, step: Step) -> None:
        worker = deployment.workers[step.worker]
        match step.fault:
            case Fault.KILL_WORKER:
                worker.start_again(signal.SIGKILL, step.down_s)
            case Fault.STOP_WORKER:
                worker.start_again(signal.SIGTERM, step.down_s)
            case Fault.FREEZE_WORKER | Fault.NAP_WORKER:
                worker.freeze(step.down_s)
            case Fault.FREEZE_AT_CLOSING:
                worker.await_waking()
                # Bins and grace are whole seconds, so a bin closes at every whole second of the clock.
                now_s = time.time()
                time.sleep(math.ceil(now_s) - now_s + step.choice * AFTER_CLOSING_S)
                worker.freeze(step.down_s)
            case Fault.KILL_REDIS:
                deployment.restart_redis(step.down_s)
            case Fault.SET_REDIS_BACK:
                deployment.restart_redis(step.down_s, restore=step.choice)
            case Fault.EMPTY_REDIS:
                deployment.empty_redis(step.down_s)
            case Fault.STOP_BROKER | Fault.KILL_BROKER:
                traffic.pause()
                killed = step.fault is Fault.KILL_BROKER
                deployment.restart_broker(signal.SIGKILL if killed else signal.SIGTERM, step.down_s)
                traffic.resume()

    def _pause(self, deployment: Deployment, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            deployment.watch()
            time.sleep(0.05)

    def _await_progress(self, deployment: Deployment, collector: Collector) -> None:
        """Let something be released: faults upon processes that only start would prove little."""
        bin = collector.last_bin
        self._await(deployment, collector, lambda: collector.last_bin > bin, f"anything after bin {bin}")

    def _await_history(self, deployment: Deployment, collector: Collector) -> None:
        """Hold the API, asked from the first row on, against all rows that the releases topic ever showed."""
        history = Follower(deployment.port, STREAM)
        try:
            self._await(
                deployment,
                collector,
                lambda: history.seen.keys() >= collector.watch.rows.keys(),
                "the API shows the whole history again",
            )
        finally:
            history.close()

    def _await(
        self, deployment: Deployment, collector: Collector, condition: Callable[[], bool], what: str
    ) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if collector.broken is not None:
                raise collector.broken
            if time.monotonic() > deadline:
                words = "\n".join(f"{each.name}: {each.last_words()}" for each in deployment.workers)
                raise Broken(f"stuck: waited {PATIENCE_S:.0f} s until {what}; {_seen(collector)}\n{words}")
            self._pause(deployment, 0.2)

    def _compare(self, deployment: Deployment, collector: Collector, follower: Follower) -> str:
        """Hold the released bins against the topic, and the API's rows against the topic of releases."""
        rows = collector.watch.rows
        foreign = [seq for seq, row in follower.seen.items() if rows.get(seq) != row]
        if foreign:
            raise Broken(f"rows {foreign} of the API are not those of the releases topic")
        released = released_bins(rows)
        expected = recount(deployment.servers, TOPIC)
        wrong = {bin: (n, expected[bin]) for bin, n in released.items() if n != expected[bin]}
        if wrong:
            lost = sum(max(recounted - n, 0) for n, recounted in wrong.values())
            raise Broken(
                f"{lost} of {sum(expected.values())} on-time records are not counted in their own bins; "
                f"bins (released, recounted) differ: {wrong}"
            )
        missing = sorted(set(expected) - set(released))
        # Events before the first bin are refused: the stream begins when its first worker starts.
        if [bin for bin in missing if bin > min(released)]:
            raise Broken(f"bins {missing} hold events and were never released")
        epochs = {json.loads(row)["epoch"] for row in rows.values()}
        ends = sum(process.ends for process in deployment.workers)
        events, nodes = sum(released.values()), len(collector.watch.nodes)
        return (
            f"{len(self._steps)} faults: {events} events in {len(released)} bins, each in its own as "
            f"recounted; {nodes} nodes with one value each, {len(epochs)} epochs, {ends} processes "
            "ended by themselves"
        )


def released_bins(rows: dict[int, bytes]) -> Counter[int]:
    """Return the count of every released bin: running counts minus the one before, anew in each epoch."""
    counts, before, epoch, last_bin = Counter[int](), 0.0, -1, None
    for seq in sorted(rows):
        row = json.loads(rows[seq])
        if last_bin is not None and row["bin"] != last_bin + 1:
            raise Broken(f"row {seq} is of bin {row['bin']}, after bin {last_bin}")
        last_bin = row["bin"]
        if row["epoch"] != epoch:
            epoch, before = row["epoch"], 0.0
        (running,) = row["estimate"]
        counts[row["bin"]] = round(running - before)
        before = running
    return counts


def _check(collector: Collector, follower: Follower) -> None:
    if collector.broken is not None:
        raise collector.broken
    if follower.changed:
        raise Broken(f"the API has shown two values of rows {follower.changed}")


def _whom(step: Step) -> str:
    return str(step.worker) if "worker" in step.fault else ""


def _seen(collector: Collector) -> str:
    return f"{len(collector.watch.rows)} rows, {len(collector.watch.nodes)} nodes"


__all__ = ["World", "released_bins"]
