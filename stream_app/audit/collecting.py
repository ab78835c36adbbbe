"""Reads everything that a deployment has stored about its streams; writes nothing."""

from __future__ import annotations

from dphist.arrays import Int64Array
from stream_app.audit.stored import Stored
from stream_app.config import Settings, StreamSettings
from stream_app.config.source import all_ledgers_of
from stream_app.core.answers.visible import visible_rows
from stream_app.core.records import PublicState, WitnessRow
from stream_app.core.segments.strategies import strategy_of
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError
from stream_app.sinks.witness_file import witnessed_rows
from stream_app.source_ledger import measured
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from stream_app.wiring.known_segments import of_all_segments
from stream_app.wiring.redis_server import looked_at
from stream_app.wiring.storage import outside_ledger

_ROWS_AT_ONCE = 10_000
_OF_THE_LOG = ("state_id", "cluster_id", "topic_id")  # added when a worker opened the log


async def collect(settings: Settings) -> list[Stored]:
    """Return the stored data of each configured stream that was ever opened. Raises: OperatorError."""
    async with looked_at(settings) as url:
        try:
            return await collect_from(settings, url)
        except OSError as failure:
            raise OperatorError(f"redis.url: {failure}; start it, then audit again") from None


async def collect_from(settings: Settings, url: str) -> list[Stored]:
    """Return the data of each generation of the configured streams, in a store and the other records."""
    store, reader = RedisStore(url), RedisReader(url)
    try:
        await store.check_format()
        settings = await of_all_segments(settings, store)
        found = [await _stored(settings, stream, store, reader) for stream in settings.streams]
        return [one for one in found if one is not None]
    finally:
        await reader.close()
        await store.close()


async def _stored(
    settings: Settings, stream: StreamSettings, store: RedisStore, reader: RedisReader
) -> Stored | None:
    public = await reader.public_state(stream.name)
    if public is None:
        return None
    strategy = Strategy.from_json(public.strategy)
    source, *names = all_ledgers_of(stream, settings)
    outside = outside_ledger(settings)
    stored = Stored(
        configured=_configured(stream, strategy),
        strategy=strategy,
        earlier=tuple(map(Strategy.from_json, public.earlier)),
        epochs=public.epochs,
        trimmed=public.trimmed,
        rows=await _rows(store, stream.name),
        visible_seq=public.visible_seq,
        tables=await _tables(reader, public),
        witness=await _witnessed(settings, stream.name),
        ledger=await measured(store, source, names),
        outside=None if outside is None else [e for e in await outside.entries() if e.source == source],
    )
    now = await reader.public_state(stream.name)
    if now is None or now.trimmed == public.trimmed:
        return stored
    return await _stored(settings, stream, store, reader)  # old epochs left while the rest was read


def _configured(stream: StreamSettings, strategy: Strategy) -> object:
    """Return the configured facts. The log's identity is known to the stored strategy only."""
    plain = stream.declared.plain()
    stored = strategy.declared.plain()
    configured, then = plain["source"], stored["source"]
    assert isinstance(configured, dict)
    assert isinstance(then, dict)
    identity = {name: then[name] for name in _OF_THE_LOG if name in then}
    return {**plain, "source": {**configured, **identity}}


async def _rows(store: RedisStore, stream: str) -> list[tuple[int, bytes]]:
    rows: list[tuple[int, bytes]] = []
    while found := await store.rows(stream, rows[-1][0] if rows else 0, _ROWS_AT_ONCE):
        rows += found
    return rows


async def _tables(reader: RedisReader, public: PublicState) -> dict[tuple[int, str], Int64Array]:
    tables = {}
    for record in public.epochs:
        strategy = strategy_of(public.texts, record)
        for name, width in strategy.kind.tables.items():
            count = visible_rows(strategy, record, public.visible_seq, name)
            values = await reader.tile_rows(strategy.stream, record.epoch, name, 0, count, width)
            tables[record.epoch, name] = values
    return tables


async def _witnessed(settings: Settings, stream: str) -> list[WitnessRow]:
    output = settings.output_of(stream)
    if output is None:
        return witnessed_rows(settings.state_dir / "witness", stream)
    from stream_app.kafka.topics import topic_facts
    from stream_app.sinks.witness_topic import WitnessTopic
    from stream_app.wiring.topics import cluster_of

    cluster = cluster_of(settings, output.cluster)
    if await topic_facts(cluster, output.topic) is None:
        said = f"outputs: topic {output.topic} is not there; name the topic that the worker writes"
        raise OperatorError(said)
    witness = await WitnessTopic.open(cluster, output.topic)
    try:
        return await witness.rows(stream, 0)
    finally:
        await witness.close()
