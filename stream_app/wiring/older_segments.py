"""Reads the notes of older builds about segments: their rows told no settings.

Each segment's settings were in a file of the witness's directory, and in a header of its first row in an
output topic. Builds before decision 0058 wrote each later segment of a stream to its own topic.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from stream_app.config import Settings
from stream_app.core.declaration import Declaration
from stream_app.core.segments.names import base_of, generation
from stream_app.ports.errors import StreamError, about

if TYPE_CHECKING:
    from stream_app.kafka.cluster import Cluster
    from stream_app.sinks.witness_topic import WitnessTopic

ROWS_AT_ONCE = 500  # in one transaction, which must end within a minute

log = logging.getLogger(__name__)


def noted_in_files(directory: Path, streams: Collection[str]) -> dict[str, Declaration]:
    """Return the notes in files beside the witness about the segments of these streams, by name.

    Raises: StreamError, one line. A file about a stream that has left the configuration is not read.
    """
    files = {unquote(file.stem): file for file in sorted(directory.glob("*.json"))}
    return {name: _read_file(name, file) for name, file in files.items() if base_of(name) in streams}


def _read_file(name: str, file: Path) -> Declaration:
    try:
        return Declaration.of(json.loads(file.read_bytes()))
    except (OSError, ValueError) as failure:
        raise StreamError(
            f"{file}: the settings of {name} cannot be read ({failure}); bring the file back from a copy of "
            "state.dir, or, if Redis has lost nothing, remove it",
            base_of(name),
        ) from None


def noted_in_header(text: bytes) -> dict[str, Declaration]:
    """Return the notes of a segment's first row about segments up to it. Raises: ValueError."""
    return {name: Declaration.of(plain) for name, plain in json.loads(text or b"{}").items()}


async def take_older_rows(settings: Settings, topics: Mapping[tuple[str, str], WitnessTopic]) -> None:
    """Copy rows of later segments that only their own topics have: TOPIC.2 for the second one, TOPIC.3.

    Guarantee: afterwards the stream's topic has each row that readers saw of its newest segment, so no loss
        of the store gives its counts noise again. It may be repeated. No worker of an older build may run.
    Args: topics, the open ones, by cluster and name. Cost: one list of each cluster's topics, and what
        ``WitnessTopic.newest`` and ``head`` cost for a stream that has such topics.
    Raises: OSError; StreamError for a topic that this build cannot read.
    """
    from stream_app.kafka.topics import topic_names  # Kafka's clients are slow to import
    from stream_app.wiring.topics import cluster_of

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
    from stream_app.kafka.topics import topic_facts
    from stream_app.sinks.witness_topic import WitnessTopic

    name, older_place = generation(stream, number), f"{place}.{number}"
    facts = await topic_facts(cluster, older_place)
    if facts is None or facts.partitions != 1 or facts.cleanup_policy not in ("compact", ""):
        return
    if (await topic.newest([stream])).get(stream, 0) > number:
        return
    older = WitnessTopic(cluster, older_place)
    try:
        await older.connect()
        last, own = await older.head(name), await topic.head(name)
        if last is None or (own is not None and own[0] >= last[0]):
            return
        first, rows = await older.told(name), await older.rows(name, 0)
        await topic.claim(name)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            noted = first.noted if first is not None and start == 0 else b""
            await topic.append(name, rows[start : start + ROWS_AT_ONCE], noted)
        await topic.resign(name)
    finally:
        await older.close()
    log.warning(
        "stream %s: topic %s now has the %d rows of generation %d, which an earlier build wrote to topic %s",
        *(stream, place, len(rows), number, older_place),
    )
