"""Whether the configured streams are the ones that the store and ``state.dir`` know under their names."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from msgspec import structs

from stream_app.config import Settings, SourceSettings, StreamSettings
from stream_app.config.plans import planned
from stream_app.config.second_measurement import over, refusals
from stream_app.core.records import LedgerEntry, StreamState
from stream_app.core.segments.names import base_of
from stream_app.core.strategy import Strategy
from stream_app.loops.clocks import LiveClock
from stream_app.loops.configured import check_counted, running_strategy
from stream_app.loops.segments import SegmentPlan
from stream_app.ports import NoiseKeys, OutsideLedger
from stream_app.ports.errors import StreamError, about
from stream_app.sinks.ledger_file import LedgerFile
from stream_app.sinks.witness_file import first_witnessed
from stream_app.state.redis_store import RedisStore
from stream_app.state.safety import Unreachable
from stream_app.wiring.checks import Finding
from stream_app.wiring.event_logs import check_begun_file, id_of_state
from stream_app.wiring.known_logs import halted_by, with_known_logs
from stream_app.wiring.redis_server import looked_at
from stream_app.wiring.starting import (
    allowed_segments,
    check_ends,
    check_own_witness,
    known_measurements,
)
from stream_app.wiring.storage import holds_users_keys, noise_keys, outside_ledger

NOT_ASKED = "a start compares the streams with it"


class Compared(NamedTuple):
    """The result of a comparison with the store."""

    changes: list[str]  # the changes that a start would make, and when, a line each
    not_compared: list[str]  # the facts that could not be compared, a line each
    # streams that a start would refuse, or whose change it would leave out, and why
    refused: Sequence[Finding] = ()
    users: Sequence[Finding] = ()  # whether this machine has the keys of each stream's users
    halted: Sequence[Finding] = ()  # streams that a fault stops. Another start tries them again.
    # the positions up to which each stream over a topic has counted. SECRET.
    counted: Mapping[str, Mapping[str, int]] = {}

    def findings(self) -> list[Finding]:
        """Return the findings, as ``doctor`` shows them."""
        changes = [Finding("streams", "ok", change) for change in self.changes]
        lacking = [Finding("streams", "warn", f"not checked: {one}") for one in self.not_compared]
        return [*self.refused, *self.users, *changes, *lacking]


async def check_stored(settings: Settings) -> Compared:
    """Compare each stream with the stored one of its name, as a start does; change nothing.

    Raises: OperatorError for what stops all streams.
    """
    refused = Refused()
    for stream in settings.streams:
        if isinstance(stream.source, SourceSettings):
            with refused.noted(stream.name):
                check_begun_file(stream, settings.state_dir)
    embedded, now_us = settings.redis.embedded, time.time_ns() // 1_000
    silent, begun = list[str](), set[str]()
    if embedded is None or embedded.exists():
        begun = over(settings.streams, now_us)
        if embedded is None and settings.redis.url is None:
            silent = [f"redis.url is missing, so no store was asked; {NOT_ASKED}"]
        else:
            try:
                async with looked_at(settings) as url:
                    return await _compared(settings, url, refused)
            except (Unreachable, OSError) as failure:
                silent = [f"the store cannot be asked ({failure}); {NOT_ASKED}"]
    refused.add(refusals(settings.streams, now_us, begun=begun))
    return Compared([], silent, refused.findings())


class Refused:
    """The streams that a start would refuse, each with the line that says why."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}

    @contextmanager
    def noted(self, stream: str) -> Iterator[None]:
        """Note an OperatorError of the calls inside, unless it stops all streams."""
        try:
            with about(stream):
                yield
        except StreamError as refusal:
            self.add([(refusal.stream, str(refusal))])

    def add(self, lines: Iterable[tuple[str, str]]) -> None:
        """Note streams and why each of them is refused; the first line of a stream stays."""
        for name, line in lines:
            self._lines.setdefault(name, line)

    def findings(self) -> list[Finding]:
        """Return a finding for each stream."""
        return [Finding(f"streams.{base_of(name)}", "fail", line) for name, line in self._lines.items()]


async def _compared(settings: Settings, url: str, refused: Refused) -> Compared:
    outside = outside_ledger(settings)
    kept = await outside.entries() if isinstance(outside, LedgerFile) else ()
    changes, counted, halted = list[str](), dict[str, Mapping[str, int]](), list[Finding]()
    store = RedisStore(url)
    try:
        await store.check_format()
        now_us = await LiveClock(store, settings.redis.largest_clock_skew_us, notes=False).now_us()
        plan = await _allowed(settings, store, outside if kept else None, now_us, refused)
        changes += (*plan.lines(), *plan.abandoned)
        for stream in plan.now.streams:
            with refused.noted(stream.name):
                state = await store.load(stream.name)
                await check_ends(store, plan.now, stream, state)
                await check_own_witness(store, plan.now, stream)
                if state is None:
                    continue
                if state.halted:
                    said = f"{stream.name}: a fault has stopped it, and a worker's log says which"
                    shown = "readers see that from the next whole minute on"
                    halted.append(Finding("streams", "fail", f"{said}; {shown}"))
                check_counted(stream.name, state)
                running_strategy(state, _as_a_start_plans(stream, settings, state))
                if not state.has_ended:
                    counted[stream.name] = {name: one.position for name, one in state.partitions.items()}
        users = await users_findings(plan.now, store, noise_keys(settings))
        everything = await with_known_logs(plan.checked, store, outside if kept else None)
        refused.add(await _refused_by_ledger(everything, store, now_us, kept))
    finally:
        await store.close()
    topics = [stream.name for stream in settings.streams if not isinstance(stream.source, SourceSettings)]
    said = "whether its topic was created anew was not checked; a start does"
    unasked = [f"{name}: {said}" for name in topics]
    if outside is not None and not isinstance(outside, LedgerFile):
        unasked.append("what only the ledger outside the store knows was not checked; a start does")
    return Compared(changes, unasked, refused.findings(), users, halted, counted)


async def _allowed(
    settings: Settings, store: RedisStore, outside: OutsideLedger | None, now_us: int, refused: Refused
) -> SegmentPlan:
    """Return the segments of the streams that can start, as a start finds them.

    Args: refused, gets all other streams. Raises: OperatorError for what stops all streams.
    """
    while True:
        try:
            plan = await allowed_segments(settings, store, outside, now_us)
        except StreamError as fault:
            faulty = await halted_by(fault, settings, store)
            refused.add((one.name, str(fault)) for one in faulty)
            left = tuple(one for one in settings.streams if one not in faulty)
            if not left:
                raise
            settings = replace(settings, streams=left)
        else:
            refused.add((one.stream, f"stream {one.refused}") for one in plan.found if one.refused)
            return plan


async def _refused_by_ledger(
    settings: Settings, store: RedisStore, now_us: int, kept: Sequence[LedgerEntry]
) -> Iterator[tuple[str, str]]:
    """Return each stream that would begin now and that the ledger does not allow, and why.

    Args: kept, the entries of the ledger outside the store.
    """
    names = [stream.name for stream in settings.streams]
    begun = {name for name in names if first_witnessed(settings.state_dir / "witness", name) is not None}
    ledgers = await known_measurements(store, settings, settings.streams)
    for source, entries in ledgers.items():
        known = {(entry.stream, entry.epoch) for entry in entries}
        only_there = (one for one in kept if one.source == source and (one.stream, one.epoch) not in known)
        ledgers[source] = (*entries, *only_there)
    return refusals(settings.streams, now_us, ledgers, begun)


def _as_a_start_plans(stream: StreamSettings, settings: Settings, state: StreamState) -> Strategy:
    """Return the planned strategy with the identity of its log. A topic is taken to be the stored one."""
    strategy = planned(stream)
    if isinstance(stream.source, SourceSettings):
        place = {"state_id": id_of_state(settings.state_dir)}
    else:
        began = Strategy.from_json(state.strategy).declared.source
        place = {"cluster_id": began.cluster_id, "topic_id": began.topic_id}
    log = structs.replace(strategy.declared.source, **place)
    return replace(strategy, declared=structs.replace(strategy.declared, source=log))


async def users_findings(settings: Settings, store: RedisStore, keys: NoiseKeys) -> list[Finding]:
    """Return, for each stream with caps, whether this worker could count its users. It draws no key."""
    found = []
    for stream in settings.streams:
        if stream.declared.capped is None:
            continue
        state = await store.load(stream.name)
        if state is not None and state.has_ended:
            continue  # it counts nothing more, and rotate-key does not keep its keys
        finding = Finding(f"streams.{stream.name} users", "ok", "this machine has the key of users' hashes")
        if not await holds_users_keys(settings, store, keys, stream.name):
            said = "this machine lacks a key of users' hashes, so its worker would end with a line"
            remedy = "give all workers one secrets.key_file, or the state.dir with which the stream began"
            finding = Finding(finding.what, "fail", f"{said}; {remedy}")
        found.append(finding)
    return found
