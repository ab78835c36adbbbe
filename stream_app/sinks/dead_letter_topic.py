"""Dead letters in a Kafka topic, beside the files: for operators who look at topics. SECRET.

A topic shows to everybody who may read or describe it how many records were refused, and when.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec
from aiokafka import AIOKafkaProducer, errors

from stream_app.core.incoming import Refusal
from stream_app.kafka.cluster import Cluster, translating_errors
from stream_app.kafka.topics import TopicFacts, made_topic
from stream_app.outage import Outage
from stream_app.ports import DeadLetters, OperatorError
from stream_app.sinks.dead_letter_file import DeadLetterFiles
from stream_app.sinks.topics import Producer

MOST_WAITING_BYTES = 16 << 20  # of letters that wait for the cluster; further ones are in their files only
_LETTER_BYTES = 200  # of memory, for each letter beside its text
MOST_AT_ONCE = 500  # letters that are sent together; counting goes on between two such parts
_RECORD_BYTES = 100  # of a batch of one record, at most, beside key and value
_LARGEST_RECORD, _BATCH_BYTES = 1 << 20, 16 << 10  # the defaults of a producer
_SEGMENTS = 8  # Kafka deletes whole segments: what is kept goes in so many steps

log = logging.getLogger(__name__)
_json = msgspec.json.Encoder().encode

Letter = tuple[bytes, bytes]  # the key, which is the place of the refused record, and the text


def topic_settings(keep_us: int, most_bytes: int) -> dict[str, str]:
    """Return the settings of a new topic: letters are deleted by age and size, as files are.

    Kafka deletes a segment once its newest letter is too old. Its oldest letter may be older by the time
    of one segment, so the retention is shorter by this time.
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
        self._largest: int | None = None  # batch that the topic takes, in bytes; None: ask
        self._producer = Producer(cluster)
        self._outage = Outage(log, f"dead_letters.topic {topic}")

    async def open(self) -> None:
        """Create the topic if it is missing, and check it; do both later if the cluster is down.

        Raises: OperatorError if the topic keeps letters longer than files do, or refuses this user.
        """
        try:
            await self._checked()
        except OSError as failure:
            self._outage.failed(failure)

    @property
    def room(self) -> int:
        """How many bytes of letters may still be queued."""
        return MOST_WAITING_BYTES - self._bytes

    def put(self, copies: Copies) -> None:
        """Queue letters. Those without room are counted and logged."""
        while copies.bytes > self.room:  # another source took it meanwhile
            copies.leave_out_last()
        self._waiting.extend(copies.letters)
        self._bytes += copies.bytes
        if self._waiting:
            self._has_letters.set()
        self._leave_out(copies.unsent)

    async def run(self) -> None:
        """Send the waiting letters until cancelled."""
        while True:
            await self._has_letters.wait()
            try:
                await self._outage.outlast(self._send)
            except OperatorError as refusal:
                # The files have all letters, so counting goes on.
                log.error("%s; letters go into their files only", refusal)
                self._leave_out(self._drop())

    async def close(self) -> None:
        """Send the waiting letters, if the cluster answers; then close the connections."""
        try:
            while self._waiting:
                await self._send()
        finally:
            self._leave_out(self._drop())
            await self._producer.stop()

    async def _send(self) -> None:
        """Send the first letters that wait. Raises: OSError if the cluster does not take them."""
        letters = list(islice(self._waiting, MOST_AT_ONCE))
        try:
            largest = await self._checked()
            fitting = [letter for letter in letters if sum(map(len, letter)) + _RECORD_BYTES <= largest]
            producer = await self._producer.started(max_batch_size=min(largest, _BATCH_BYTES))
            with translating_errors(self._cluster):
                await self._sent(producer, fitting)
        except BaseException:
            await self._producer.stop()
            raise
        self._outage.over()
        self._take(len(letters))
        self._leave_out(len(letters) - len(fitting), f"letters too large for it ({largest:,} bytes)")
        await asyncio.sleep(0)  # also if nothing was sent, other tasks run before the next letters

    async def _sent(self, producer: AIOKafkaProducer, letters: Sequence[Letter]) -> None:
        """Return when the cluster has these letters. Raises: its error."""
        sent = [await producer.send(self._topic, text, key) for key, text in letters]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        for failure in (outcome for outcome in outcomes if isinstance(outcome, BaseException)):
            if isinstance(failure, errors.MessageSizeTooLargeError):
                self._largest = None  # the topic's limit was lowered: the next attempt reads it again
            raise failure

    def _take(self, letters: int) -> None:
        for _ in range(letters):
            self._bytes -= _size(self._waiting.popleft())
        if not self._waiting:
            self._has_letters.clear()

    def _drop(self) -> int:
        """Take all letters out of the queue; return their number."""
        left = len(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        self._has_letters.clear()
        return left

    def _leave_out(self, unsent: int, what: str = "letters") -> None:
        if unsent:
            line = "dead_letters.topic %s: %s are not sent, and are in their files"
            log.warning(line, self._topic, what)
            self._on_unsent(unsent)

    async def _checked(self) -> int:
        """Return the largest batch that the topic takes, in bytes, once the topic is made and checked."""
        if self._largest is not None:
            return self._largest
        settings = topic_settings(self._keep_us, self._most_bytes)
        facts = await made_topic(self._cluster, self._topic, settings)
        check_topic(self._topic, facts, self._keep_us)
        self._largest = min(facts.largest_message_bytes or _LARGEST_RECORD, _LARGEST_RECORD)
        return self._largest


class LettersInBoth(DeadLetters):
    """Letters in files first, then in a topic. Args: source, which the records of the topic name."""

    def __init__(self, files: DeadLetterFiles, topic: DeadLetterTopic, source: str) -> None:
        self._files, self._topic, self._source = files, topic, source

    async def write(
        self, refusals: Sequence[Refusal], streams: tuple[str | None, ...] = (None,)
    ) -> Sequence[int]:
        copies = Copies(self._source, self._topic.room)
        written = await self._files.write(refusals, streams, copies.add)
        self._topic.put(copies)
        return written


class Copies:
    """Makes letters for a topic from the lines of files, in the thread that writes the files.

    Guarantee: the letters have at most ``room`` bytes (``bytes``). One without room is not made, only counted
    (``unsent``).
    """

    def __init__(self, source: str, room: int) -> None:
        self.letters: list[Letter] = []
        self.bytes = self.unsent = 0
        self._source, self._room = source, room
        self._begin = _json({"source": source})[:-1] + b","

    def add(self, refusal: Refusal, line: bytes) -> None:
        """Copy a letter. Args: line, a JSON object with at least one member."""
        key = f"{self._source}/{refusal.partition}/{refusal.position}".encode()
        size = _LETTER_BYTES + len(key) + len(self._begin) + len(line) - 1
        if self.bytes + size > self._room:
            self.unsent += 1
            return
        self.bytes += size
        self.letters.append((key, self._begin + line[1:]))

    def leave_out_last(self) -> None:
        """Count the last letter among those without room."""
        self.bytes -= _size(self.letters.pop())
        self.unsent += 1


def _size(letter: Letter) -> int:
    return _LETTER_BYTES + len(letter[0]) + len(letter[1])
