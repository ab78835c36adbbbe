"""Logs of real bytes, read by the service's own decoders. Reading and look-ups take virtual time."""

from __future__ import annotations

import asyncio
import io
import json
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch
from zlib import crc32

import fastavro
import httpx
import numpy as np

from stream_app.core.incoming import Reason, RecordBatch, Refusal
from stream_app.sources.decode import TimeField
from stream_app.sources.topic_records import TopicDecoder, topic_decoder
from tests.simulator.log import Entry, LogSource, Run

FETCH_S = 0.02  # seconds of a read,
RECORD_S = 0.012  # more for each record,
BYTE_S = 1e-7  # and more for each of its bytes
LOOK_UP_S = 0.2  # seconds until the registry answers
TIME, OTHERS = TimeField("time", "us"), ["key", "user", "note", "amount"]
AMOUNT = 5  # of a record that says no other
_TEXT = ["null", "string"]
SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "time", "type": "long"},
            {"name": "key", "type": _TEXT},
            {"name": "user", "type": _TEXT},
            {"name": "note", "type": "string"},
            {"name": "amount", "type": "long"},
        ],
    }
)
REGISTRY = "http://registry.invalid"


@dataclass(frozen=True, slots=True)
class Written(Entry):
    """A record as bytes.

    Args: name, of the record, whatever its position; value, None for a tombstone.
    """

    name: str = ""
    value: bytes | None = b""  # type: ignore[assignment]  # an Entry's value is that of an axis
    key: str | None = None  # type: ignore[assignment]
    user: str = ""
    note: str = ""
    amount: int = AMOUNT


def json_value(
    time_us: int, key: str | None, user: str | None, note: str = "", amount: int = AMOUNT
) -> bytes:
    """Return an event as JSON; a key or user that is None is left out."""
    said = {"time": time_us, "key": key, "user": user, "note": note, "amount": amount}
    return json.dumps({name: value for name, value in said.items() if value is not None}).encode()


def avro_value(
    schema_id: int, time_us: int, key: str | None, user: str | None, note: str = "", amount: int = AMOUNT
) -> bytes:
    """Return an event in Confluent's wire format."""
    body = io.BytesIO()
    event = {"time": time_us, "key": key, "user": user, "note": note, "amount": amount}
    fastavro.schemaless_writer(body, SCHEMA, event)
    return b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()


class RegistryOfLoop(httpx.AsyncBaseTransport):
    """A schema registry in virtual time.

    Args: registered, returns the ids that the registry has at the moment.
    """

    def __init__(self, registered: Callable[[], Collection[int]]) -> None:
        self._registered = registered

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer after some virtual time."""
        await asyncio.sleep(LOOK_UP_S)
        if int(request.url.path.rpartition("/")[2]) in self._registered():
            return httpx.Response(200, json={"schema": json.dumps(SCHEMA)})
        return httpx.Response(404, json={"error_code": 40403, "message": "Schema not found"})


@contextmanager
def registry(registered: Callable[[], Collection[int]]) -> Iterator[None]:
    """Return a context manager in which every new HTTP client asks this registry."""
    make = httpx.AsyncClient

    def client(**settings: Any) -> httpx.AsyncClient:
        return make(**{**settings, "transport": RegistryOfLoop(registered)})

    with patch.object(httpx, "AsyncClient", client):
        yield


def make_decoder(avro: bool) -> TopicDecoder:
    """Return a new worker's decoder, which knows no schema yet."""
    return topic_decoder("avro" if avro else "json", TIME, others=OTHERS, schema_registry=REGISTRY)


class WrittenSource(LogSource):
    """One worker's consumer of a log of bytes. It does what ``KafkaSource`` does after a fetch."""

    def __init__(
        self,
        log: Any,
        clock_us: Callable[[], int],
        rng: random.Random,
        decoder: TopicDecoder,
        **settings: Any,
    ) -> None:
        super().__init__(log, clock_us, rng, **settings)
        self._decoder = decoder
        self._salt = rng.random()

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        """Return the next batches from the positions, decoded. This takes virtual time."""
        runs = self._available(positions)
        if not runs:
            await asyncio.sleep(min(timeout_s, self._next_arrival_s(positions)))
            runs = self._available(positions)
        logs = [[value for _, value in self._values(*run) if value is not None] for run in runs]
        if any(logs):
            took_s = [RECORD_S + BYTE_S * len(value) for values in logs for value in values]
            await asyncio.sleep(FETCH_S + sum(took_s))
            ready = await self._decoder.prepare(logs)
            runs = [self._until(*run, count) for run, count in zip(runs, ready, strict=True)]
        return [self._batch(*run) for run in runs if run[0] in self.assigned and run[1] < run[2]]

    def _batch_end(self, partition: str, start: int) -> int:
        """Return the place after the next record that ends a batch; its name decides.

        If each read drew a size, one more record would give all later batches other sizes. Then a backlog
        takes another number of reads, which is no effect of the record.
        """
        end = start + self._largest_batch
        for place, entry in enumerate(self.log.partitions[partition][start:end], start=start + 1):
            if crc32(f"{self._salt} {entry.name}".encode()) % self._largest_batch < 2:  # type: ignore[attr-defined]
                return place
        return end

    def _values(self, partition: str, start: int, end: int) -> list[tuple[int, bytes | None]]:
        entries = self.log.partitions[partition]
        return [(position, entries[position].value) for position in range(start, end)]  # type: ignore[misc]

    def _until(self, partition: str, start: int, end: int, ready: int) -> Run:
        """Return the records up to the first one that cannot be decoded yet."""
        present = [at for at, value in self._values(partition, start, end) if value is not None]
        return partition, start, end if ready == len(present) else present[ready]

    def _batch(self, partition: str, start: int, end: int) -> RecordBatch:
        found = self._values(partition, start, end)
        refused = [Refusal(partition, at, Reason.TOMBSTONE, b"") for at, value in found if value is None]
        present = [(at, value) for at, value in found if value is not None]
        places, values = [at for at, _ in present], [value for _, value in present]
        decoded = self._decoder.decode(values, [0] * len(values))
        refused += [Refusal(partition, places[i], reason, values[i]) for i, reason in decoded.refused]
        kept = decoded.kept.tolist()
        return RecordBatch(
            partition=partition,
            start=start,
            end=end,
            positions=np.array(places, dtype=np.int64)[kept],
            columns=decoded.columns,
            refused=refused,
            records=[values[i] for i in kept],
        )
