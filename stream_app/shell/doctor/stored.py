"""Whether the configured streams are the ones that the store and ``state.dir`` know under their names."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from msgspec import structs

from stream_app.config import Settings, SourceSettings, StreamSettings
from stream_app.config.plans import planned
from stream_app.config.second_measurement import check_measurements
from stream_app.config.settings import OutputSettings
from stream_app.core.records import StreamState
from stream_app.core.strategy import Strategy
from stream_app.loops.clocks import LiveClock
from stream_app.loops.configured import changes_in_words, running_strategy
from stream_app.ports import OperatorError
from stream_app.sinks.witness_file import first_witnessed
from stream_app.state.redis_store import RedisStore
from stream_app.state.safety import Unreachable
from stream_app.wiring.event_logs import check_begun_file, id_of_state
from stream_app.wiring.redis_server import looked_at
from stream_app.wiring.starting import (
    allowed_generations,
    check_ends,
    check_own_witness,
    known_measurements,
)

NOT_ASKED = "a start compares the streams with it"


class Compared(NamedTuple):
    """What a comparison with the store found, a line each.

    Args:
        changes: what a start would change, and when.
        not_compared: what could not be compared.
        outputs: the output topics of all generations that run or begin next; None: the store was not asked.
    """

    changes: list[str]
    not_compared: list[str]
    outputs: tuple[OutputSettings, ...] | None = None


async def check_stored(settings: Settings) -> Compared:
    """Compare each stream with what began under its name, as a start does; change nothing.

    Raises: OperatorError for the first stream that a start would refuse, or whose change it would leave out.
    """
    for stream in settings.streams:
        if isinstance(stream.source, SourceSettings):
            check_begun_file(stream, settings.state_dir)
    embedded = settings.redis.embedded
    if embedded is not None and not embedded.exists():
        return Compared([], [])
    if embedded is None and settings.redis.url is None:
        return Compared([], [f"redis.url is missing, so no store was asked; {NOT_ASKED}"])
    try:
        async with looked_at(settings) as url:
            return await _compared(settings, url)
    except (Unreachable, OSError) as failure:
        return Compared([], [f"the store cannot be asked ({failure}); {NOT_ASKED}"])


async def _compared(settings: Settings, url: str) -> Compared:
    changes: list[str] = []
    store = RedisStore(url)
    try:
        await store.check_format()
        now_us = await LiveClock(store, settings.redis.largest_clock_skew_us, notes=False).now_us()
        turned = await allowed_generations(settings, store, None, now_us)
        for line in turned.refused:
            raise OperatorError(f"stream {line}")
        changes += turned.lines()
        for stream in turned.running.streams:
            state = await store.load(stream.name)
            await check_ends(store, turned.running, stream, state)
            await check_own_witness(store, turned.running, stream)
            if state is not None:
                wanted = _as_a_start_plans(stream, settings, state)
                changes += changes_in_words(running_strategy(state, wanted), wanted, state, now_us)
        await _check_ledger(turned.everything, store, now_us)
    finally:
        await store.close()
    topics = [stream.name for stream in settings.streams if not isinstance(stream.source, SourceSettings)]
    said = "whether its topic was created anew was not checked; a start does"
    unasked = [f"{name}: {said}" for name in topics]
    if settings.ledger is not None:
        unasked.append("what only the ledger outside the store knows was not checked; a start does")
    return Compared(changes, unasked, turned.everything.outputs)


async def _check_ledger(settings: Settings, store: RedisStore, now_us: int) -> None:
    """Check that the ledger in the store allows each stream that would begin now. Raises: ConfigError."""
    names = [stream.name for stream in settings.streams]
    begun = {name for name in names if first_witnessed(settings.state_dir / "witness", name) is not None}
    ledgers = await known_measurements(store, settings, settings.streams)
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
