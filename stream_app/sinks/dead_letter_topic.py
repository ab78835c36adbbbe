"""Dead letters in a Kafka topic, beside the files: for operators who look at topics. SECRET.

A topic shows to everybody who may read or describe it how many records were refused, and when.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from aiokafka import AIOKafkaProducer, errors

from stream_app.core.records import Refusal
from stream_app.kafka_cluster import Cluster, TopicFacts, create_topic, topic_facts, translating_errors
from stream_app.outage import Outage
from stream_app.ports import DeadLetters, OperatorError
from stream_app.sinks.dead_letter_file import DeadLetterFiles

MOST_WAITING_BYTES = 16 << 20  # of letters that wait for the cluster; further ones are in their files only
_LETTER_BYTES = 200  # of memory, for each letter beside its text
_ANSWER_MS = 10_000  # for the cluster to acknowledge letters
_STOP_S = 1.0
_LOOKS, _LOOK_AGAIN_S = 6, 0.2
_SEGMENTS = 8  # parts in which letters are deleted, as files of letters are

log = logging.getLogger(__name__)

Letter = tuple[bytes, bytes]  # its place as the record's key, and its text


def topic_settings(keep_us: int, most_bytes: int) -> dict[str, str]:
    """Return the settings of a new topic: letters are deleted by age and size, as files are.

    Kafka deletes a part when its newest letter is too old, and the oldest is a part's time older.
    """
    part_ms = max(keep_us // 1_000 // _SEGMENTS, 1_000)
    part_bytes = max(most_bytes // _SEGMENTS, 1 << 20)
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(keep_us // 1_000 - part_ms),
        "retention.bytes": str(most_bytes),
        "segment.ms": str(part_ms),
        "segment.bytes": str(part_bytes),
    }


def check_topic(topic: str, facts: TopicFacts, keep_us: int) -> None:
    """Check that a topic deletes letters as soon as their files would be deleted.

    Raises: OperatorError for a topic that keeps them longer, or of which this user may not see it.
    """
    keep_ms = keep_us // 1_000
    found = f"cleanup.policy={facts.cleanup_policy}, retention.ms={facts.retention_ms}"
    if facts.cleanup_policy == "":
        found = "settings that this user may not describe"
    elif facts.cleanup_policy == "delete" and 0 <= (facts.retention_ms or -1) <= keep_ms:
        return
    raise OperatorError(
        f"dead_letters.topic: {topic} has {found}, so it may keep letters longer than dead_letters.keep; set "
        f"cleanup.policy=delete and retention.ms={keep_ms}, or name another topic"
    )


class DeadLetterTopic:
    """Sends letters to a topic, in their order, by a task beside counting.

    Guarantee: nothing waits for the cluster. While it is down, up to ``MOST_WAITING_BYTES`` of letters wait;
        each further one is logged, counted by ``on_unsent``, and in its file only. A letter may come twice.
    Args: keep_us, most_bytes, of a new topic; on_unsent, takes the number of letters that are not sent.
    """

    def __init__(
        self, cluster: Cluster, topic: str, keep_us: int, most_bytes: int, on_unsent: Callable[[int], None]
    ) -> None:
        self._cluster, self._topic = cluster, topic
        self._keep_us, self._most_bytes, self._on_unsent = keep_us, most_bytes, on_unsent
        self._waiting: deque[Letter] = deque()
        self._bytes = 0
        self._has_letters = asyncio.Event()
        self._is_checked = False
        self._producer: AIOKafkaProducer | None = None
        self._outage = Outage(log, f"dead_letters.topic {topic}")

    async def open(self) -> None:
        """Create the topic if it is missing, and check it; if the cluster is down, later.

        Raises: OperatorError if the topic keeps letters longer than files do, or refuses this user.
        """
        try:
            await self._check()
        except OSError as failure:
            self._outage.failed(failure)

    def put(self, letters: Sequence[Letter]) -> None:
        """Queue letters. Those without room are counted and logged."""
        unsent = 0
        for letter in letters:
            size = _size(letter)
            if self._bytes + size > MOST_WAITING_BYTES:
                unsent += 1
                continue
            self._waiting.append(letter)
            self._bytes += size
        if self._waiting:
            self._has_letters.set()
        self._leave_out(unsent)

    async def run(self) -> None:
        """Send what waits until cancelled."""
        while True:
            await self._has_letters.wait()
            try:
                await self._outage.outlast(self._send)
            except OperatorError as refusal:
                # The files have all letters, so counting goes on.
                log.error("%s; letters go into their files only", refusal)
                self._leave_out(len(self._waiting))
                self._take(len(self._waiting))

    async def close(self) -> None:
        """Send what waits, if the cluster answers; then close the connections."""
        try:
            if self._waiting:
                await self._send()
        finally:
            left = len(self._waiting)
            self._take(left)
            self._leave_out(left)
            await self._stop()

    async def _send(self) -> None:
        """Send all letters that wait now. Raises: OSError if the cluster does not take them."""
        letters = list(self._waiting)
        try:
            await self._check()
            producer = await self._started()
            with translating_errors(self._cluster):
                too_large = await self._sent(producer, letters)
        except BaseException:
            await self._stop()  # letters that this producer still holds must not overtake the next ones
            raise
        self._outage.over()
        self._take(len(letters))
        self._leave_out(too_large)

    async def _sent(self, producer: AIOKafkaProducer, letters: Sequence[Letter]) -> int:
        """Send letters; return how many are too large for a record. Raises: the cluster's error."""
        outcomes: list[object] = []
        for key, text in letters:
            try:
                outcomes.append(await producer.send(self._topic, text, key))
            except errors.MessageSizeTooLargeError as refusal:
                outcomes.append(refusal)
        waiting = [outcome for outcome in outcomes if isinstance(outcome, asyncio.Future)]
        outcomes += await asyncio.gather(*waiting, return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for failure in failures:
            if not isinstance(failure, errors.MessageSizeTooLargeError):
                raise failure
        return len(failures)

    def _take(self, letters: int) -> None:
        """Take letters out of the queue."""
        for _ in range(letters):
            self._bytes -= _size(self._waiting.popleft())
        if not self._waiting:
            self._has_letters.clear()

    def _leave_out(self, unsent: int) -> None:
        if unsent:
            log.warning("dead_letters.topic %s: letters are not sent, and are in their files", self._topic)
            self._on_unsent(unsent)

    async def _check(self) -> None:
        if self._is_checked:
            return
        facts = await topic_facts(self._cluster, self._topic)
        for _ in range(_LOOKS):  # brokers may learn of a new topic at different times
            if facts is not None:
                break
            settings = topic_settings(self._keep_us, self._most_bytes)
            await create_topic(self._cluster, self._topic, settings)
            await asyncio.sleep(_LOOK_AGAIN_S)
            facts = await topic_facts(self._cluster, self._topic)
        if facts is None:
            raise ConnectionError(f"topic {self._topic}: it was created and is not there yet")
        check_topic(self._topic, facts, self._keep_us)
        self._is_checked = True

    async def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            self._producer = AIOKafkaProducer(
                acks="all", enable_idempotence=True, request_timeout_ms=_ANSWER_MS, **self._cluster.client()
            )
            with translating_errors(self._cluster):
                await self._producer.start()
        return self._producer

    async def _stop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(errors.KafkaError, TimeoutError):
                async with asyncio.timeout(_STOP_S):  # it would wait for a cluster that is down
                    await producer.stop()


class LettersInBoth(DeadLetters):
    """Letters in files first, then in a topic. Args: source, which the records of the topic name."""

    def __init__(self, files: DeadLetterFiles, topic: DeadLetterTopic, source: str) -> None:
        self._files, self._topic, self._source = files, topic, source

    async def write(self, refusals: Sequence[Refusal], stream: str | None = None) -> int:
        new = self._files.new(refusals, stream)
        written = await self._files.write(refusals, stream)
        self._topic.put([self._letter(refusal, stream) for refusal in new])
        return written

    def _letter(self, refusal: Refusal, stream: str | None) -> Letter:
        key = f"{self._source}/{refusal.partition}/{refusal.position}/{stream or ''}"
        return key.encode(), self._files.line(refusal, stream, {"source": self._source})


def _size(letter: Letter) -> int:
    return _LETTER_BYTES + len(letter[0]) + len(letter[1])
