"""The streams that a worker runs, and the checks before any of them is opened.

Were a stream's events measured before? Were any of its releases lost? An entry that only the ledger outside
the store has was lost: it stays in the total. A stream whose releases are lost does not continue under its
name, because its nodes would get noise a second time.
"""

from __future__ import annotations

import logging
import secrets
from collections import defaultdict
from collections.abc import Collection, Container, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import chain

from stream_app.config import ConfigError, Settings, SourceSettings, StreamSettings, TopicSettings
from stream_app.config.plans import planned
from stream_app.config.second_measurement import refusals
from stream_app.config.source import all_ledgers_of, by_log
from stream_app.core.ledger import lost_measurement
from stream_app.core.records import LedgerEntry, StreamState
from stream_app.core.releases.release import RowLink
from stream_app.core.segments.names import base_of, key_of
from stream_app.core.strategy import Strategy
from stream_app.loops.configured import check_counted, running_strategy
from stream_app.loops.ending import check_predecessor, end_to_store
from stream_app.loops.lease import Lease
from stream_app.loops.recovery import PATIENCE_S, check_witnessed, restore_ledger, with_lost_entries
from stream_app.loops.segments import SegmentPlan, Witnessed
from stream_app.monitoring.metrics import Metrics
from stream_app.monitoring.registry import KAFKA, REDIS
from stream_app.ports import Clock, NoiseKeys, OperatorError, OutsideLedger, Store, Witness
from stream_app.ports.errors import StreamError, about
from stream_app.sinks.witness_file import WitnessFile, first_witnessed, witnessed_rows
from stream_app.source_ledger import lost, measured, put_back
from stream_app.together import each_to_its_end
from stream_app.wiring.event_logs import (
    check_begun_file,
    check_one_source,
    named_alike,
    named_as_begun,
    note_of,
)
from stream_app.wiring.halted import START_AGAIN, Halted, some_of
from stream_app.wiring.known_logs import halted_by, ledger_of, link_known, with_known_logs
from stream_app.wiring.known_segments import Unwritten, Witnesses, with_segments
from stream_app.wiring.storage import (
    Topics,
    noise_keys,
    open_topics,
    outside_ledger,
    remember_ended,
    witnesses_of,
)

log = logging.getLogger(__name__)

SET_LEDGER = "Set ledger in the configuration, so that a start notices such a loss."


@dataclass(frozen=True, slots=True)
class CheckedStart:
    """The streams that a start has checked, with their logs and witnesses.

    Args:
        settings: only the streams that run.
        plan: all segments, also those that have ended or have not begun.
        witnesses: by the stream's name.
        outside: the ledger outside the store, if there is one.
        topics: the open output topics.
    """

    settings: Settings
    plan: SegmentPlan
    witnesses: Mapping[str, Witness]
    outside: OutsideLedger | None
    keys: NoiseKeys
    topics: Topics = field(default_factory=dict)

    @property
    def open_witnesses(self) -> dict[str, Witness]:
        """The witnesses that somebody writes, by stream."""
        return {name: one for name, one in self.witnesses.items() if not isinstance(one, Unwritten)}


async def checked_start(
    settings: Settings,
    store: Store,
    wall: Clock,
    metrics: Metrics,
    elsewhere: Collection[str],
    halted: Halted,
    resources: AsyncExitStack,
    running: CheckedStart | None = None,
) -> CheckedStart | None:
    """Check the streams that are to run, then store the ends of segments that are due.

    Return None if another worker stored something else meanwhile; the caller then starts again.
    Args: wall, the store's clock, which decides which ends are due; elsewhere, see ``with_segments``; halted,
        gets the streams that cannot run; resources, which closes the witnesses when the caller leaves it;
        running, the segments that run already, if a segment is about to join: a fault then stops nothing.
    Raises: OperatorError, one line, if nothing can run, or a segment cannot join; OSError; ClockDoubt.
    """
    now_us, configured = await wall.now_us(), settings.streams
    outside = outside_ledger(settings) if running is None else running.outside
    if running is not None:
        known = {stream.base for stream in running.settings.streams}
        settings = replace(settings, streams=tuple(one for one in configured if one.name in known))
    else:
        metrics.waiting.now = KAFKA if settings.outputs else REDIS
    while True:
        attempt = await resources.enter_async_context(AsyncExitStack())
        try:
            plan, witnesses, topics = await _opened_plan(
                settings, store, outside, now_us, elsewhere, attempt, running
            )
            break
        except StreamError as fault:
            await attempt.aclose()
            if running is not None:
                raise
            faulty = await halted_by(fault, settings, store)
            await halted.add(faulty, fault, START_AGAIN)
            left = [stream for stream in settings.streams if stream not in faulty]
            settings = replace(settings, streams=tuple(left))
    metrics.refuse_generations(one.stream for one in plan.found if one.refused is not None)
    plan.log()
    keys = noise_keys(settings) if running is None else running.keys
    while True:
        try:
            names = halted.lines
            await check_measured_before(plan.checked, store, witnesses, outside, now_us, names)
            begins = plan.leaving({base_of(name) for name in names})
            if begins.due:
                for stream in begins.now.streams:
                    await check_own_witness(store, begins.now, stream, PATIENCE_S)
            may_store = await may_store_due(begins, store, keys)
            break
        except StreamError as fault:
            if fault.stream in {following.segment.name for following in plan.following}:
                plan = plan.without({fault.stream: str(fault)})
            elif running is not None or fault.base in map(base_of, names):
                raise  # what a halted stream has measured cannot be put back into the ledger
            else:
                await halted.refuse(plan.now.streams, fault)
    if not may_store or (stored := await begins.store_due(store)) is None:
        return None
    await remember_ended(stored, store, witnesses)
    halted.expect(stream.name for stream in stored.streams)
    halting = [stream for stream in plan.now.streams if stream.name in names]
    places = {stream.name: place for place, stream in enumerate(configured)}
    streams = sorted((*stored.streams, *halting), key=lambda stream: places[stream.base])
    return CheckedStart(replace(stored, streams=tuple(streams)), begins, witnesses, outside, keys, topics)


async def _opened_plan(
    settings: Settings,
    store: Store,
    outside: OutsideLedger | None,
    now_us: int,
    elsewhere: Collection[str],
    resources: AsyncExitStack,
    running: CheckedStart | None,
) -> tuple[SegmentPlan, dict[str, Witness], Topics]:
    """Return the segments that are allowed, the witness of each, and the open topics.

    Args and Raises: as ``checked_start``; StreamError about one stream.
    """
    topics = await open_topics(settings, resources) if running is None else running.topics
    witnessed = Witnesses(settings, topics)
    plan = await allowed_segments(settings, store, outside, now_us, witnessed, elsewhere)
    witnesses: dict[str, Witness] = dict.fromkeys(plan.checked.names, Unwritten())
    witnesses |= {} if running is None else running.open_witnesses
    new = [one for one in plan.beginning.streams if isinstance(witnesses[one.name], Unwritten)]
    opened = witnesses_of(replace(plan.beginning, streams=tuple(new)), topics, resources)
    await _check_readable(store, opened)
    return plan, witnesses | opened, topics


async def _check_readable(store: Store, witnesses: Mapping[str, Witness]) -> None:
    """Read the last row of each file of rows; all rows if the store lacks it. Raises: StreamError."""
    for name, witness in witnesses.items():
        head = await witness.head(name) if isinstance(witness, WitnessFile) else None
        if head is not None and not await store.rows(name, head[0] - 1, 1):
            await witness.rows(name, 0)


async def check_measured_before(
    settings: Settings,
    store: Store,
    witnesses: Mapping[str, Witness],
    outside: OutsideLedger | None,
    now_us: int,
    halted: Container[str] = (),
) -> None:
    """Before any stream is opened, refuse streams that would count events again without consent.

    A stream that the ledger or a witness knows began earlier, and its operator was asked then.
    Args: halted, streams that do not run; the ledger gets their lost entries back, too.
    Raises: OperatorError, a ``StreamError`` for one stream that cannot run.
    """
    settings = await with_known_logs(settings, store, outside)
    await link_known(settings, store)
    running = [stream for stream in settings.streams if stream.name not in halted]
    names = [stream.name for stream in running]
    epochs = await each_to_its_end(*(_open_epoch(store, name) for name in names))
    opened = {name: epoch for name, epoch in zip(names, epochs, strict=True) if epoch is not None}
    stored = await _complete_ledgers(settings, store, witnesses, outside)
    begun, unknown = set[str](), list[str]()
    for stream in running:
        witnessed = await witnesses[stream.name].head(stream.name)
        measured_before = stored[stream.declared.source.name]
        in_witness = -1 if witnessed is None else RowLink.of(witnessed[1]).epoch
        last_epoch = max(opened.get(stream.name, -1), in_witness)
        if (entry := lost_measurement(measured_before, stream.name, last_epoch)) is not None:
            raise StreamError(str(lost(entry, outside)), stream.name)
        if witnessed is not None:
            begun.add(stream.name)
        elif stream.number == 1 and not (
            stream.name in opened or note_of(stream.name, settings.state_dir).exists()
        ):
            unknown.append(stream.name)
    ledgers = await known_measurements(store, settings, settings.streams)
    for stream in running:
        with about(stream.name):
            await ledger_of(stream, settings, store, outside).check_remembered(
                stream.name, stream.declared.source.name
            )
    for name, why in refusals(running, now_us, ledgers, begun):
        raise StreamError(str(ConfigError(why)), name)
    if unknown and outside is None:
        log.warning(
            "%s: no earlier run is known. A new stream needs nothing. If it has run before, its state is "
            "lost: stop now and restore it, or its counts get noise again, which weakens the promise. %s",
            *(some_of(unknown), SET_LEDGER),
        )


async def _complete_ledgers(
    settings: Settings, store: Store, witnesses: Mapping[str, Witness], outside: OutsideLedger | None
) -> dict[str, Sequence[LedgerEntry]]:
    """Put back entries that only the outside ledger or a witness has; return the ledgers by source."""
    ledgers_by_stream = {one.name: all_ledgers_of(one, settings) for one in settings.streams}
    sources = dict.fromkeys(chain.from_iterable(ledgers_by_stream.values()))
    if outside is not None:
        kept = await outside.entries()
        for source in sources:
            await compare(store, outside, source, [entry for entry in kept if entry.source == source])
    lacking = await with_lost_entries(store, witnesses, ledgers_by_stream)
    for stream in (one for one in settings.streams if one.name in lacking):
        ledger, now = ledger_of(stream, settings, store, outside), planned(stream)
        known = [now, await named_as_begun(stream, now, settings)]
        await restore_ledger(store, witnesses[stream.name], ledger, known)
    return {source: await store.ledger(source) for source in sources}


async def allowed_segments(
    settings: Settings,
    store: Store,
    outside: OutsideLedger | None,
    now_us: int,
    witnessed: Witnessed | None = None,
    elsewhere: Collection[str] = (),
) -> SegmentPlan:
    """Return the segments of each stream, without those that the ledger or a total does not allow.

    Args and Raises: as ``with_segments``; OperatorError if no stream is left.
    """
    plan = await with_segments(settings, store, outside, now_us, witnessed, elsewhere)
    return plan.without(await refused_segments(plan.checked, store, now_us))


async def refused_segments(settings: Settings, store: Store, now_us: int) -> dict[str, str]:
    """Return the segments whose first epoch the ledger or a total does not allow, and why.

    A segment begins by itself, perhaps long after its settings were written, and other streams may have
    used up a total until then. So the caller leaves it out, and all other streams go on.
    """
    first = {stream.name for stream in settings.streams if stream.number == 1}
    about = {one.declared.source.name for one in settings.streams if one.name not in first}
    streams = [stream for stream in settings.streams if stream.declared.source.name in about]
    ledgers = await known_measurements(store, settings, streams)
    return dict(refusals(streams, now_us, ledgers, begun=first))


async def known_measurements(
    store: Store, settings: Settings, streams: Sequence[StreamSettings]
) -> dict[str, tuple[LedgerEntry, ...]]:
    """Return every measurement of each stream's source, by the source's name."""
    logs: dict[str, list[str]] = defaultdict(list)
    for stream in streams:
        identity, *names = all_ledgers_of(stream, settings)
        logs[identity] += names
    return {source: await measured(store, source, names) for source, names in logs.items()}


async def may_store_due(plan: SegmentPlan, store: Store, keys: NoiseKeys) -> bool:
    """Check the streams if an end is to be stored; return False if another worker was faster.

    If another worker has opened the segment meanwhile, a failed check does not refuse this start.
    Raises: OperatorError.
    """
    try:
        if plan.due:
            await check_streams(plan.checked, store, keys)
    except OperatorError:
        if await plan.is_overtaken(store):
            return False
        raise
    return not await plan.is_overtaken(store)


async def check_streams(settings: Settings, store: Store, keys: NoiseKeys) -> None:
    """Make the checks with which the loops open the streams, and open nothing.

    So a start that is refused stores no end of a segment, which nobody could take back.
    Raises: OperatorError.
    """
    strategies = list[Strategy]()
    followed = {stream.base for stream in settings.streams if stream.number > 1}
    for streams in by_log(settings.streams):
        with about(streams[0].name):
            named = await named_as_begun(streams[0], planned(streams[0]), settings)
        for stream in streams:
            with about(stream.name):
                if isinstance(stream.source, SourceSettings):
                    check_begun_file(stream, settings.state_dir)
                if stream.declared.capped is not None:
                    keys.user_key(stream.name)
                strategies.append(named_alike(planned(stream), named))
                state = await store.load(stream.name)
                if state is not None:
                    running_strategy(state, strategies[-1])
                if stream.base not in followed:
                    await check_ends(store, settings, stream, state)
                check_one_source(strategies)


async def check_ends(
    store: Store, settings: Settings, stream: StreamSettings, state: StreamState | None
) -> None:
    """Check that a stream, and the stream before it, can end at their configured instants.

    Raises: OperatorError.
    """
    if state is not None and stream.until_us is not None:
        end_to_store(stream.name, state, stream.until_us, key_of(stream.name, "time.until"))
    before = stream.declared.successor_of
    if before is None or before in {one.name for one in settings.streams}:
        return
    then = await store.load(before)
    if then is not None or (
        state is None and not witnessed_rows(settings.state_dir / "witness", stream.name)
    ):
        check_predecessor(planned(stream), then)


async def check_own_witness(
    store: Store, settings: Settings, stream: StreamSettings, patience_s: float = 0.0
) -> None:
    """Check that the witness on this machine, if it is a stream's only one, has all visible rows.

    Raises: OperatorError, as the stream's loops do when they open it.
    """
    if settings.output_of(stream.name) is None:
        lease = None
        if isinstance(stream.source, TopicSettings):
            lease = Lease(store, stream.name, secrets.token_hex(8))
        has_rows = first_witnessed(settings.state_dir / "witness", stream.name) is not None
        await check_witnessed(store, stream.name, lease, has_rows, patience_s)


async def _open_epoch(store: Store, stream: str) -> int | None:
    """Return a stream's epoch in the store; None: it is not there. Raises: OperatorError for history."""
    with about(stream):
        state = await store.load(stream)
        if state is None:
            return None
        check_counted(stream, state)
        return state.epoch.epoch


async def compare(store: Store, outside: OutsideLedger, source: str, kept: Sequence[LedgerEntry]) -> None:
    """Copy entries that the store lacks from ``kept``, marked as lost; copy the store's entries outside.

    Raises: OperatorError if the two ledgers have different entries for one epoch.
    """
    await put_back(store, outside, source, kept)
    await outside.append([replace(entry, lost=False) for entry in await store.ledger(source)])
