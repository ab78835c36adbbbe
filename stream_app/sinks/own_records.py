"""Which records of a topic that the service writes are its own: others may write there, too."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

from aiokafka import ConsumerRecord

log = logging.getLogger(__name__)

Own = TypeVar("Own")
Record: TypeAlias = "ConsumerRecord[bytes, bytes]"


class NotOwn(Exception):
    """A record that the service did not write."""


def own_records(records: Iterable[Record], read: Callable[[bytes, bytes, Record], Own]) -> Iterator[Own]:
    """Yield the service's records in a topic, in order, and read past all others.

    A tombstone deletes what another tool should not have deleted; what was read before it stays.
    Args: read, returns the content of a record with a value, given its key and value; it raises NotOwn.
    """
    others: dict[str, int] = {}
    for record in records:
        try:
            if record.value is None:
                raise NotOwn
            yield read(record.key or b"", record.value, record)
        except NotOwn:
            others[record.topic] = others.get(record.topic, 0) + 1
    for topic, number in others.items():
        log.warning(
            "topic %s: %d records are not of this service and are read past; let nothing else write there",
            *(topic, number),
        )
