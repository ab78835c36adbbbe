"""One chaos run: events are written, faults strike, all published rows are kept and then compared."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from stream_app.shell.processes import REFUSED
from stream_app.state.reader import RedisReader
from tests.chaos.collector import Collector, last_bin_of, last_closed_bin, released_bins
from tests.chaos.found_terms import FOUND, Answer, FoundRecount, ask_keys, check_hidden
from tests.chaos.logs import PAUSE_S, compare_logs, draw_log_steps
from tests.chaos.processes import APART, GRACE_S, POSTED, STREAM, STREAMS, TOPIC, Deployment
from tests.chaos.recount import Recount
from tests.chaos.schedule import AFTER_CLOSING_S, WORKERS, Fault, Step
from tests.chaos.side_streams import check_side_streams
from tests.chaos.surfaces import everything_said
from tests.chaos.traffic import BIN_MS, Traffic, make_topic
from tests.e2e.log_traffic import LogTraffic
from tests.e2e.service import Follower
from tests.patience import PATIENCE_S, eventually
from tests.simulator.checks import Broken

# After faults, from the moment at which all processes run again. The broker finds out after 10 s that a
# worker was killed; until then, nobody may read what that one read.
RECOVERY_S = 15.0
FAULTS_A_BREATH = 4
KEPT_BINS = 30  # released bins whose records retention keeps; more than a frozen worker may still read
CLOCK_IS_WRONG = "clocks: the clock of redis is"
LOOPS, SAID_AGAIN_S = 4, 10.0  # each loop of a worker logs it once, and again only after this time
RECORDS_ARE_GONE = "they were deleted before they were counted"
BINS_ARE_GONE = "some of their records are no longer in the log"
Tell = Callable[[str], None]


class World:
    """A deployment under one schedule of faults. For even seeds, counts of found keys have a delta.

    Args: load, as for ``Traffic``; recovery_s, the longest recovery that is allowed, after which a run that
        others disturb only waits as long as for anything else.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        steps: Iterable[Step],
        tell: Tell,
        load: int = 1,
        recovery_s: float = RECOVERY_S,
    ) -> None:
        self.folder = folder
        self.seed = seed
        self.steps = list(steps)
        self.tell = tell
        self.load = load
        self.recovery_s = recovery_s
        self.recovered_s: list[float] = []
        self.answers: list[Answer] = []  # of the API after each fault, about the keys that are shown
        self.traffic: Traffic | None = None
        self.logs: LogTraffic | None = None
        self.set_back_at_bin = -1  # the last bin that was seen when Redis was last set back

    def run(self) -> str:
        """Run the schedule; return one line that says what happened. Raises: Broken, with a readable line."""
        deployment = Deployment(self.folder, WORKERS, approximate=self.seed % 2 == 0)
        collector: Collector | None = None
        followers: dict[str, Follower] = {}
        try:
            make_topic(deployment.servers, TOPIC)
            deployment.start()
            traffic = Traffic(deployment.servers, TOPIC, self.seed, GRACE_S, self.load)
            traffic.start()
            self.traffic = traffic
            posts_to = f"http://127.0.0.1:{deployment.ingest_port}/v1/ingest/{POSTED}"
            logs = LogTraffic(self.folder, posts_to, self.seed, PAUSE_S)
            logs.start()
            self.logs = logs
            recount = Recount(deployment.servers, TOPIC)
            collector = Collector(deployment.servers)
            followers |= {stream: Follower(deployment.port, stream) for stream in (*STREAMS, APART)}
            self._await(deployment, collector, lambda: collector.last_bin >= 0, "anything is released")
            deployment.restart_redis(0.0)  # leaves a backup that is older than all later ones
            beside = draw_log_steps(self.seed)
            for number, (step, log_step) in enumerate(zip(self.steps, beside, strict=False), start=1):
                self._pause(deployment, step.pause_s)
                self.tell(
                    f"fault {number} of {len(self.steps)}: {step.fault} {_whom(step)}; {_seen(collector)}"
                )
                self._strike(deployment, traffic, collector, recount, step)
                if log_step is not None:
                    self.tell(f"beside it: {log_step.fault}")
                    log_step.strike(deployment)
                _check(collector, followers)
                self.answers += ask_keys(deployment.port)
                if number % FAULTS_A_BREATH == 0:
                    self._await_recovery(deployment, collector)
            traffic.end()
            logs.end()
            last_bin = int(time.time() * 1000) // BIN_MS
            self.tell(f"settling; {_seen(collector)}")
            self._await(deployment, collector, lambda: collector.last_bin >= last_bin, f"bin {last_bin}")
            self._await(
                deployment,
                collector,
                lambda: all(
                    max(followers[stream].seen, default=0) >= max(watch.rows)
                    for stream, watch in collector.watches.items()
                ),
                "the API shows what is witnessed",
            )
            apart = followers[APART].seen
            self._await(
                deployment, collector, lambda: last_bin_of(apart) >= last_bin, f"{APART} has {last_bin}"
            )
            _check(collector, followers)
            _check_nothing_left_out(deployment)
            summary = self._compare(deployment.port, collector, followers, recount, logs)
            terms = FoundRecount(recount.visits)
            asyncio.run(self._compare_terms(deployment, terms, dict(followers[FOUND].seen)))
            said = [*everything_said(deployment)]
            self._lose_records(deployment, recount)
            self._await_history(deployment, collector, followers[STREAM])
            if not collector.letters:
                raise Broken("no dead letter is in its topic")
            check_hidden(terms.named, (*said, *deployment.in_redis(), *collector.terms), self.folder)
            of_terms = f"{len(terms.named)} terms named, {len(terms.hidden)} hidden"
            summary += f"; {_compare_apart(followers[APART], collector.watch.rows)} bins without a topic"
            rows = f"{len(collector.watches[FOUND].hashes)} hashes of rows, {len(self.answers)} answers"
            return f"{summary}; {of_terms}, as {rows} say"
        finally:
            for follower in followers.values():
                follower.close()
            if collector is not None:
                collector.close()
            deployment.close()

    def _strike(
        self, deployment: Deployment, traffic: Traffic, collector: Collector, recount: Recount, step: Step
    ) -> None:
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
                deployment.await_workers()
                self.set_back_at_bin = collector.last_bin
                deployment.restart_redis(step.down_s, restore=step.choice)
            case Fault.EMPTY_REDIS:
                deployment.await_workers()
                deployment.empty_redis(step.down_s)
            case Fault.STOP_BROKER | Fault.KILL_BROKER:
                traffic.pause()
                killed = step.fault is Fault.KILL_BROKER
                deployment.restart_broker(signal.SIGKILL if killed else signal.SIGTERM, step.down_s)
                traffic.resume()
            case Fault.WRONG_CLOCK:
                self._set_clock_wrong(deployment, collector, step)
            case Fault.RETENTION:
                # A store that was set back reads on from its old positions: their records must still exist.
                before = self.set_back_at_bin
                self._await(deployment, collector, lambda: collector.last_bin > before, "it reads on")
                deployment.renew_backups()
                recount.delete_before((collector.last_bin - KEPT_BINS) * BIN_MS)

    def _set_clock_wrong(self, deployment: Deployment, collector: Collector, step: Step) -> None:
        """Set the clock that Redis sees wrong for a while. Every worker must log it, and none may end."""
        for worker in deployment.workers:
            worker.await_waking()
        said = {worker: len(worker.said()) for worker in deployment.workers}

        def times() -> list[int]:
            return [worker.said()[before:].count(CLOCK_IS_WRONG) for worker, before in said.items()]

        began_s = time.monotonic()
        deployment.clock.set_ahead(step.clock_ahead_s)
        eventually(
            lambda: abs(deployment.redis_ahead_s() - step.clock_ahead_s) < 1, "the clock of Redis is wrong"
        )
        self._pause(deployment, step.down_s)
        self._await(deployment, collector, lambda: all(times()), "all workers say that the clock is wrong")
        said_times = times()
        most = LOOPS * (1 + (time.monotonic() - began_s) // SAID_AGAIN_S)
        deployment.clock.set_ahead(0)
        if max(said_times) > most:
            raise Broken(f"workers have said {said_times} times that the clock is wrong; at most {most:.0f}")

    def _lose_records(self, deployment: Deployment, recount: Recount) -> None:
        """Delete records that no worker has counted. No worker may continue, and each must say why."""
        deployment.end_logs()
        for worker in deployment.workers:
            worker.end(signal.SIGTERM)
        recount.lose_a_record_of_each()
        for worker in deployment.workers:
            worker.start()
        deadline = time.monotonic() + PATIENCE_S
        while any(worker.status is None for worker in deployment.workers) and time.monotonic() < deadline:
            time.sleep(0.05)
        for worker in deployment.workers:
            if worker.status != REFUSED or RECORDS_ARE_GONE not in worker.said().splitlines()[-1]:
                raise Broken(
                    f"{worker.name}, whose records were deleted, has status {worker.status}: "
                    f"{worker.last_words()}"
                )
        deployment.workers.clear()  # the API is alone now

    def _pause(self, deployment: Deployment, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            deployment.check()
            if self.traffic is not None:
                self.traffic.check()
            if self.logs is not None:
                self.logs.check()
            time.sleep(0.05)

    def _await_recovery(self, deployment: Deployment, collector: Collector) -> None:
        """Check that, with all processes back, the last closed bin is released within the allowed time."""
        for process in deployment.processes:
            process.await_waking()
        began_s, bin = time.monotonic(), last_closed_bin()
        self._await(deployment, collector, lambda: collector.last_bin >= bin, f"bin {bin}")
        took_s = time.monotonic() - began_s
        self.tell(f"recovered in {took_s:.1f} s")
        if took_s > self.recovery_s:
            words = "\n".join(f"{each.name}: {each.last_words()}" for each in deployment.workers)
            raise Broken(f"recovery took {took_s:.1f} s, at most {self.recovery_s:.0f}\n{words}")
        self.recovered_s.append(took_s)

    def _await_history(self, deployment: Deployment, collector: Collector, before: Follower) -> None:
        """Check that the API still shows every row that it has ever shown.

        The topic may have one more: a worker ended before it made the row visible, and none may continue.
        """
        history = Follower(deployment.port, STREAM)
        try:
            self._await(
                deployment,
                collector,
                lambda: history.seen.keys() >= before.seen.keys(),
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

    def _compare(
        self,
        port: int,
        collector: Collector,
        followers: Mapping[str, Follower],
        recount: Recount,
        logs: LogTraffic,
    ) -> str:
        """Compare released bins with a recount of the topic, and the API's rows with the releases topic."""
        shown = {stream: dict(followers[stream].seen) for stream in collector.watches}
        seen = {stream: dict(watch.rows) for stream, watch in collector.watches.items()}  # it sees more
        for stream, rows in shown.items():
            foreign = [seq for seq, row in rows.items() if seen[stream].get(seq) != row]
            if foreign:
                raise Broken(f"rows {foreign} of {stream} in the API are not those of the releases topic")
        rows = seen[STREAM]
        released = released_bins(rows)
        recount.count_all()
        expected = recount.counts
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
        beside = check_side_streams(port, recount.visits, seen) | compare_logs(logs, seen)
        epochs = {json.loads(row)["epoch"] for row in rows.values()}
        events, nodes = sum(released.values()), len(collector.watch.nodes)
        return (
            f"{len(self.steps)} faults: {events} events in {len(released)} bins, each in its own as "
            f"recounted; beside it {beside}; {nodes} nodes with one value each, {len(epochs)} epochs; "
            f"recovered in {statistics.median(self.recovered_s or [0.0]):.1f} s (median), "
            f"{max(self.recovered_s, default=0.0):.1f} s at most"
        )

    async def _compare_terms(
        self, deployment: Deployment, terms: FoundRecount, rows: Mapping[int, bytes]
    ) -> None:
        reader = RedisReader(deployment.redis.api_url)
        try:
            await terms.check(reader, rows, self.answers)
        finally:
            await reader.close()


def _check(collector: Collector, followers: Mapping[str, Follower]) -> None:
    if collector.broken is not None:
        raise collector.broken
    for stream, follower in followers.items():
        if follower.changed:
            raise Broken(f"the API has shown two values of rows {follower.changed} of {stream}")


def _compare_apart(follower: Follower, rows: dict[int, bytes]) -> int:
    """Compare the stream without a topic with the first one; return how many bins both have."""
    apart, first = released_bins(follower.seen), released_bins(rows)
    if wrong := {bin: (n, first[bin]) for bin, n in apart.items() if n != first.get(bin, n)}:
        raise Broken(f"{APART}: bins (released, of {STREAM}) differ: {wrong}")
    return len(apart.keys() & first.keys())


def _check_nothing_left_out(deployment: Deployment) -> None:
    """Check that no epoch began late: the log has kept the records of all bins that a lost store lacks."""
    for worker in deployment.processes:
        if said := [line for line in worker.said().splitlines() if BINS_ARE_GONE in line]:
            raise Broken(f"{worker.name} leaves out bins: {said[0]}")


def _whom(step: Step) -> str:
    return str(step.worker) if "worker" in step.fault else ""


def _seen(collector: Collector) -> str:
    return f"{len(collector.watch.rows)} rows, {len(collector.watch.nodes)} nodes"
