"""What all sinks over a topic share: which records are the service's own, and a producer that reconnects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from aiokafka import AIOKafkaProducer, ConsumerRecord, errors

from stream_app.kafka.cluster import Cluster, translating_errors
from stream_app.ports import OperatorError

_ANSWER_MS = 10_000  # for the cluster to acknowledge a record
_STOP_S = 1.0

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


class Producer:
    """A connection that is made when it is needed, to a cluster that acknowledges records by all replicas.

    After a failure the caller stops it: records that it still holds must not overtake the next ones.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._client: AIOKafkaProducer | None = None

    async def started(self, **options: Any) -> AIOKafkaProducer:
        """Return the connected producer. Args: options, of aiokafka. Raises: OSError, OperatorError."""
        if self._client is None:
            self._client = AIOKafkaProducer(
                acks="all",
                enable_idempotence=True,
                request_timeout_ms=_ANSWER_MS,
                **options,
                **self._cluster.client(),
            )
            with translating_errors(self._cluster):
                await self._client.start()
        return self._client

    async def stop(self) -> None:
        """Close the connection; do not wait for a cluster that is down, and give up what it did not take."""
        client, self._client = self._client, None
        if client is not None:
            client._message_accumulator.fail_all(errors.KafkaConnectionError())
            with suppress(OSError, OperatorError), translating_errors(self._cluster):
                async with asyncio.timeout(_STOP_S):
                    await client.stop()
