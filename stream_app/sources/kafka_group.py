"""Which partitions of a topic are a worker's: by Kafka's classic group protocol, or the new one (KIP-848).

Positions come from the store, so a group only divides partitions. aiokafka does not speak the new protocol:
two requests of Kafka's own definition are here, and the reader is assigned the partitions that the broker
names.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import platform
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import IO, Any
from uuid import UUID, uuid4

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition, errors
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    AbstractType,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from stream_app.kafka.cluster import Cluster
from stream_app.kafka.topics import topic_facts
from stream_app.outage import Outage
from stream_app.ports import OperatorError

# Nobody takes cuts of a partition that moves until its new owner has noticed it, by a heartbeat.
HEARTBEAT_MS, _NEW_HEARTBEAT_S = 1_000, 0.25
# After it others get the partitions of a silent member, by the classic protocol, or of one that does not give
# up a partition, by the new one. (By the new one the broker says when a member is silent for too long.)
SESSION_TIMEOUT_MS = 10_000
_ANSWER_S = 10.0
_JOIN, _LEAVE = 0, -1  # in the place of an epoch
_FENCED = {25, 110}  # unknown member, fenced epoch: join again
_TEXT, _TAGS = CompactString("utf-8"), ("tags", TaggedFields)

LACKS_RECORDS = (
    "it no longer holds the records that come next; they were deleted before they were counted, or it was "
    "created again: give the stream another name"
)

# After a start of the broker, for a moment.
_PASSING = (
    errors.CoordinatorLoadInProgressError,
    errors.CoordinatorNotAvailableError,
    errors.NotCoordinatorError,
    errors.NodeNotReadyError,
    TimeoutError,
)

log = logging.getLogger(__name__)


class Group(ABC):
    """The partitions that are this worker's; ``moment`` counts the changes."""

    def __init__(self, topic: str) -> None:
        self._topic, self.moment = topic, 0
        self.partitions: frozenset[TopicPartition] = frozenset()
        self._failure: OperatorError | None = None

    def check(self) -> None:
        """Raise the error that ended this worker's membership, if one did. Raises: OperatorError."""
        if self._failure is not None:
            raise self._failure

    def lacks_records(self) -> OperatorError:
        """Return the error about a topic that does not hold the records that come next."""
        return OperatorError(f"topic {self._topic}: {LACKS_RECORDS}")

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        self.moment += 1
        self.partitions = frozenset(partitions)

    @abstractmethod
    async def join(self, reader: AIOKafkaConsumer) -> None:
        """Join the group. Raises: Kafka's errors; OperatorError if the broker is too old."""

    def begin(self, reader: AIOKafkaConsumer) -> None:  # noqa: B027 - aiokafka may have done it
        """Let the reader fetch the partitions, after a change and before it seeks."""

    @abstractmethod
    async def commit(self, reader: AIOKafkaConsumer, positions: Mapping[TopicPartition, int]) -> None:
        """Commit positions for lag tools. Raises: Kafka's errors."""

    async def leave(self) -> None:  # noqa: B027 - a reader that stops may do it
        """Leave the group; a missing answer does not matter."""


class ClassicGroup(Group, ConsumerRebalanceListener):  # type: ignore[misc]
    """A group of the classic protocol, by aiokafka: during a rebalance nobody owns a partition."""

    async def join(self, reader: AIOKafkaConsumer) -> None:
        reader.subscribe([self._topic], listener=self)

    async def commit(self, reader: AIOKafkaConsumer, positions: Mapping[TopicPartition, int]) -> None:
        await reader.commit(dict(positions))

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Own no partition until the group has agreed again."""
        self.own(())

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.own(assigned)


class ConsumerGroup(Group):
    """A group of the new protocol: partitions that stay with their member are never without an owner.

    Args: topic_id, as the cluster says it; names, a directory with the names of this machine's members.
    """

    def __init__(self, cluster: Cluster, group: str, topic: str, topic_id: str, names: Path) -> None:
        super().__init__(topic)
        self._group = group
        self._name = _free_name(names, topic)
        self._member = f"{platform.node()}-{self._name.read()}"
        self._topic_id = UUID(topic_id)
        self._cluster = cluster
        self._client = AIOKafkaClient(**cluster.client())
        self._coordinator: int | None = None
        self._epoch = _JOIN
        self._told: frozenset[TopicPartition] | None = frozenset()  # what the broker knows that is ours
        self._beating: asyncio.Task[None] | None = None
        self._names_another = False  # whether the broker names partitions of another topic

    async def join(self, reader: AIOKafkaConsumer) -> None:
        reader.assign([TopicPartition(self._topic, 0)])  # without an assignment it waits for ever
        await self._client.bootstrap()
        with suppress(*_PASSING):
            await self._beat()
        self._beating = asyncio.create_task(self._keep_beating())

    def begin(self, reader: AIOKafkaConsumer) -> None:
        if self.partitions:
            reader.assign(list(self.partitions))

    async def commit(self, reader: AIOKafkaConsumer, positions: Mapping[TopicPartition, int]) -> None:
        places: list[Any] = [(place.partition, at, -1, "", {}) for place, at in positions.items()]
        topics: list[Any] = [(self._topic, places, {})]
        await self._ask(_Asked(_CommitRequest, self._group, self._epoch, self._member, None, topics, {}))

    async def leave(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        if self._epoch != _JOIN:
            self._epoch = _LEAVE
            with suppress(errors.KafkaError, OSError, OperatorError):
                await self._beat()
        await self._client.close()
        self._name.close()

    async def _keep_beating(self) -> None:
        outage = Outage(log, f"consumer group {self._group}")
        while True:
            has_news = False
            try:
                await self._beat()
                if self._names_another and await self._is_another_topic():
                    self._failure = self.lacks_records()
                    return
                outage.over()
                has_news = self._told != self.partitions or self._epoch == _JOIN
            except (errors.KafkaError, OSError, OperatorError) as failure:
                # Others may get the partitions meanwhile: the store refuses what comes too late.
                self._coordinator = None
                outage.failed(str(failure) or type(failure).__name__)
            if not has_news:
                await asyncio.sleep(_NEW_HEARTBEAT_S)

    async def _beat(self) -> None:
        """Tell the broker which partitions this worker owns, and learn the assigned ones."""
        joins = self._epoch == _JOIN
        has_news = joins or self._told != self.partitions
        owned = _as_sent(self._topic_id, self.partitions) if has_news else None
        first = (SESSION_TIMEOUT_MS, [self._topic]) if joins else (-1, None)
        answer = await self._ask(
            _Asked(
                _HeartbeatRequest,
                *(self._group, self._member, self._epoch, None, None, *first, None, None, owned, {}),
            )
        )
        if answer.error_code in _FENCED and self._epoch > _JOIN:
            self._epoch = _JOIN
            self.own(())
            return
        if answer.error_code:
            raise errors.for_code(answer.error_code)(answer.error_message)
        self._epoch, self._told = answer.member_epoch, self.partitions
        if answer.assignment is not None:
            found = {UUID(bytes=topic): numbers for topic, numbers, _ in answer.assignment[0]}
            mine = {TopicPartition(self._topic, number) for number in found.pop(self._topic_id, ())}
            self._names_another = bool(found)
            if mine != self.partitions:
                self.own(mine)

    async def _is_another_topic(self) -> bool:
        """Return whether the topic was created anew; the broker may also name the one before ours."""
        now = await topic_facts(self._cluster, self._topic)
        return now is not None and UUID(now.topic_id) != self._topic_id

    async def _ask(self, request: _Asked) -> Any:
        async with asyncio.timeout(_ANSWER_S):
            if self._coordinator is None:
                found = await self._client.coordinator_lookup(CoordinationType.GROUP, self._group)
                self._coordinator = int(found)
            try:
                return await self._client.send(self._coordinator, request, group=ConnectionGroup.COORDINATION)
            except (errors.IncompatibleBrokerVersion, NotImplementedError):
                raise OperatorError(
                    "kafka.group_protocol: consumer needs brokers of Kafka 4.0 or newer; write classic"
                ) from None


def _free_name(names: Path, topic: str) -> IO[str]:
    """Return the file of a name that no living process has, locked until it is closed.

    A worker that was killed begins again under its name, so it has its partitions at once.
    """
    names.mkdir(parents=True, exist_ok=True)
    for number in count():
        file = (names / f"{topic}.{number}").open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            continue
        if not file.tell():
            file.write(uuid4().hex)
            file.flush()
        file.seek(0)
        return file
    raise AssertionError


def _as_sent(topic_id: UUID, partitions: Collection[TopicPartition]) -> list[Any]:
    return [(topic_id.bytes, [place.partition for place in partitions], {})] if partitions else []


class _Uuid(AbstractType[bytes]):  # type: ignore[misc]
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class _OrNone(Schema):  # type: ignore[misc]
    """A structure that may be absent."""

    def decode(self, data: BytesIO) -> Any:
        return None if Int8.decode(data) < 0 else super().decode(data)


_ASSIGNED = CompactArray(("topic_id", _Uuid), ("partitions", CompactArray(Int32)), _TAGS)


class _HeartbeatResponse(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 68, 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("error_message", _TEXT),
        ("member_id", _TEXT),
        ("member_epoch", Int32),
        ("heartbeat_interval_ms", Int32),
        ("assignment", _OrNone(("topics", _ASSIGNED), _TAGS)),
        _TAGS,
    )


class _HeartbeatRequest(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY, API_VERSION, RESPONSE_TYPE = 68, 1, _HeartbeatResponse
    SCHEMA = Schema(
        ("group_id", _TEXT),
        ("member_id", _TEXT),
        ("member_epoch", Int32),
        ("instance_id", _TEXT),
        ("rack_id", _TEXT),
        ("rebalance_timeout_ms", Int32),
        ("topics", CompactArray(_TEXT)),
        ("topic_regex", _TEXT),
        ("assignor", _TEXT),
        ("owned", _ASSIGNED),
        _TAGS,
    )


class _CommitResponse(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 8, 9
    SCHEMA = Schema(("throttle_time_ms", Int32))  # and errors, which do not matter


class _CommitRequest(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY, API_VERSION, RESPONSE_TYPE = 8, 9, _CommitResponse
    _PARTITIONS = CompactArray(
        ("partition", Int32), ("offset", Int64), ("leader_epoch", Int32), ("metadata", _TEXT), _TAGS
    )
    SCHEMA = Schema(
        ("group_id", _TEXT),
        ("member_epoch", Int32),
        ("member_id", _TEXT),
        ("instance_id", _TEXT),
        ("topics", CompactArray(("name", _TEXT), ("partitions", _PARTITIONS), _TAGS)),
        _TAGS,
    )


class _Asked(Request[_HeartbeatRequest]):  # type: ignore[misc]
    """A request in the one version that this file knows."""

    API_KEY = _HeartbeatRequest.API_KEY

    def __init__(self, form: type[Any], *fields: Any) -> None:
        self.API_KEY, self._CLASSES = form.API_KEY, (form,)
        self._fields = fields

    def build(self, request_struct_class: type[Any]) -> Any:
        return request_struct_class(*self._fields)
