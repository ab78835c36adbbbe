"""Whether the configured streams are the ones that the store and ``state.dir`` know under their names."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec import structs

from stream_app.config import Settings, SourceSettings, StreamSettings
from stream_app.config.plans import planned
from stream_app.config.second_measurement import check_measurements, over
from stream_app.config.settings import OutputSettings
from stream_app.core.records import LedgerEntry, StreamState
from stream_app.core.strategy import Strategy
from stream_app.loops.clocks import LiveClock
from stream_app.loops.configured import changes_in_words, running_strategy
from stream_app.ports import OperatorError
from stream_app.shell.doctor.users import users_findings
from stream_app.sinks.ledger_file import LedgerFile
from stream_app.sinks.witness_file import first_witnessed
from stream_app.state.redis_store import RedisStore
from stream_app.state.safety import Unreachable
from stream_app.wiring.checks import Finding
from stream_app.wiring.event_logs import check_begun_file, id_of_state
from stream_app.wiring.known_logs import with_known_logs
from stream_app.wiring.redis_server import looked_at
from stream_app.wiring.starting import (
    allowed_generations,
    check_ends,
    check_own_witness,
    known_measurements,
)
from stream_app.wiring.storage import noise_keys, outside_ledger

NOT_ASKED = "a start compares the streams with it"


class Compared(NamedTuple):
    """What a comparison with the store found.

    Args:
        changes: what a start would change, and when, a line each.
        not_compared: what could not be compared, a line each.
        users: whether this machine has the keys of each stream's users; streams that a fault stops.
        outputs: the output topics of all generations that run or begin next; None: the store was not asked.
        counted: the positions up to which each stream over a topic has counted. SECRET.
    """

    changes: list[str]
    not_compared: list[str]
    users: Sequence[Finding] = ()
    outputs: tuple[OutputSettings, ...] | None = None
    counted: Mapping[str, Mapping[str, int]] = {}

    def findings(self) -> list[Finding]:
        """Return what was found, as ``doctor`` shows it."""
        changes = [Finding("streams", "ok", change) for change in self.changes]
        lacking = [Finding("streams", "warn", f"not checked: {one}") for one in self.not_compared]
        return [*self.users, *changes, *lacking]


async def check_stored(settings: Settings) -> Compared:
    """Compare each stream with what began under its name, as a start does; change nothing.

    Raises: OperatorError for the first stream that a start would refuse, or whose change it would leave out.
    """
    for stream in settings.streams:
        if isinstance(stream.source, SourceSettings):
            check_begun_file(stream, settings.state_dir)
    embedded, now_us = settings.redis.embedded, time.time_ns() // 1_000
    if embedded is not None and not embedded.exists():
        check_measurements(settings.streams, now_us)
        return Compared([], [])
    if embedded is not None or settings.redis.url is not None:
        try:
            async with looked_at(settings) as url:
                return await _compared(settings, url)
        except (Unreachable, OSError) as failure:
            silent = f"the store cannot be asked ({failure}); {NOT_ASKED}"
    else:
        silent = f"redis.url is missing, so no store was asked; {NOT_ASKED}"
    check_measurements(settings.streams, now_us, begun=over(settings.streams, now_us))
    return Compared([], [silent])


async def _compared(settings: Settings, url: str) -> Compared:
    outside = outside_ledger(settings)
    kept = await outside.entries() if isinstance(outside, LedgerFile) else ()
    changes, counted, stopped = list[str](), dict[str, Mapping[str, int]](), list[Finding]()
    store = RedisStore(url)
    try:
        await store.check_format()
        now_us = await LiveClock(store, settings.redis.largest_clock_skew_us, notes=False).now_us()
        turned = await allowed_generations(settings, store, outside if kept else None, now_us)
        for line in turned.refused:
            raise OperatorError(f"stream {line}")
        changes += turned.lines()
        for stream in turned.running.streams:
            state = await store.load(stream.name)
            await check_ends(store, turned.running, stream, state)
            await check_own_witness(store, turned.running, stream)
            if state is not None and state.halted:
                said = "a fault has stopped it, and a worker's log says which; the other streams go on"
                stopped.append(Finding("streams", "fail", f"{stream.name}: {said}"))
            if state is not None:
                wanted = _as_a_start_plans(stream, settings, state)
                changes += changes_in_words(running_strategy(state, wanted), wanted, state, now_us)
                if not state.has_ended:
                    counted[stream.name] = {name: one.position for name, one in state.partitions.items()}
        users = await users_findings(turned.running, store, noise_keys(settings))
        everything = await with_known_logs(turned.everything, store, outside if kept else None)
        await _check_ledger(everything, store, now_us, kept)
    finally:
        await store.close()
    topics = [stream.name for stream in settings.streams if not isinstance(stream.source, SourceSettings)]
    said = "whether its topic was created anew was not checked; a start does"
    unasked = [f"{name}: {said}" for name in topics]
    if outside is not None and not isinstance(outside, LedgerFile):
        unasked.append("what only the ledger outside the store knows was not checked; a start does")
    return Compared(changes, unasked, [*users, *stopped], turned.everything.outputs, counted)


async def _check_ledger(
    settings: Settings, store: RedisStore, now_us: int, kept: Sequence[LedgerEntry]
) -> None:
    """Check that the ledger allows each stream that would begin now. Raises: ConfigError.

    Args: kept, the entries of the ledger outside the store.
    """
    names = [stream.name for stream in settings.streams]
    begun = {name for name in names if first_witnessed(settings.state_dir / "witness", name) is not None}
    ledgers = await known_measurements(store, settings, settings.streams)
    for source, entries in ledgers.items():
        known = {(entry.stream, entry.epoch) for entry in entries}
        only_there = (one for one in kept if one.source == source and (one.stream, one.epoch) not in known)
        ledgers[source] = (*entries, *only_there)
    check_measurements(settings.streams, now_us, ledgers, begun)


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
