"""Reads output topics of builds before decision 0058: each later segment of a stream had its own topic."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from stream_app.config import Settings
from stream_app.core.segments.names import generation
from stream_app.kafka_cluster import Cluster, topic_facts, topic_names
from stream_app.ports.errors import about
from stream_app.sinks.witness_topic import WitnessTopic
from stream_app.wiring.storage import Topics, close_client
from stream_app.wiring.topics import cluster_of

ROWS_AT_ONCE = 500  # in one transaction, which must end within a minute

log = logging.getLogger(__name__)


async def take_older_rows(settings: Settings, topics: Topics) -> None:
    """Copy rows of later segments that only their own topics have: TOPIC.2 for the second one, TOPIC.3.

    Guarantee: afterwards the stream's topic has each row that readers saw of its newest segment, so no loss
        of the store gives its counts noise again. It may be repeated. No worker of an older build may run.
    Args: topics, the open ones, by cluster and name. Cost: one list of each cluster's topics, and what
        ``WitnessTopic.newest`` and ``head`` cost for a stream that has such topics.
    Raises: OSError; StreamError for a topic that this build cannot read.
    """
    older = {name: _numbers(await topic_names(cluster_of(settings, name))) for name, _ in topics}
    for output in settings.outputs:
        topic, cluster = topics.get((output.cluster, output.topic)), output.cluster
        for number in [] if topic is None else older[cluster].get(output.topic, ()):
            assert topic is not None
            with about(output.stream):
                await _take(cluster_of(settings, cluster), output.topic, output.stream, number, topic)


def _numbers(names: Iterable[str]) -> Mapping[str, Sequence[int]]:
    """Return the numbers of the later segments' topics, in their order, by the name without a number.

    >>> dict(_numbers(["counts.3", "counts", "counts.2", "counts.1", "a.b"]))
    {'counts': [2, 3]}
    """
    found = defaultdict[str, list[int]](list)
    for name in names:
        topic, _, number = name.rpartition(".")
        if number.isascii() and number.isdigit() and int(number) > 1:
            found[topic].append(int(number))
    return {topic: sorted(numbers) for topic, numbers in found.items()}


async def _take(cluster: Cluster, place: str, stream: str, number: int, topic: WitnessTopic) -> None:
    """Copy the rows of a segment that its stream's topic lacks, unless that has rows of a later segment."""
    name, older_place = generation(stream, number), f"{place}.{number}"
    facts = await topic_facts(cluster, older_place)
    if facts is None or facts.partitions != 1 or facts.cleanup_policy not in ("compact", ""):
        return
    if (await topic.newest([stream])).get(stream, 0) > number:
        return
    older = WitnessTopic(cluster, older_place, {})
    try:
        await older.connect()
        last, own = await older.head(name), await topic.head(name)
        if last is None or (own is not None and own[0] >= last[0]):
            return
        first, rows = await older.first(name), await older.rows(name, 0)
        topic.keep_notes({} if first is None else {name: first[1]})
        await topic.claim(name)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            await topic.append(name, rows[start : start + ROWS_AT_ONCE])
        await topic.resign(name)
    finally:
        await close_client(older.close)
    log.warning(
        "stream %s: topic %s now has the %d rows of generation %d, which an earlier build wrote to topic %s",
        *(stream, place, len(rows), number, older_place),
    )
