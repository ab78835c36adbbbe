"""What runs during a soak: a broker, a Redis, one worker, one API, and a producer of events.

Everything lies in one folder, so a later run goes on where the last one ended, with the same ports and files.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError

from deploy.ports import free_port
from stream_app.core.ledger import ACCEPTED
from stream_app.state.embedded import EmbeddedRedis

TOPIC, PARTITIONS, EXACT = "clicks", 2, "exact"
GRACE_S, PUBLISH_EVERY_S = 2, 0.5
EVENTS_PER_S, TICK_S = 40, 0.25
COUNTRIES, PAGES, USERS = ("FR", "DE", "IT", "other"), ("/", "/shop", "/about"), 5_000
_KEYS = "keys: {field: country, list: [FR, DE, IT]}"
_SUM = "sum: {field: amount, min: 0, max: 20, unit: 0.5}"
_USER = "unit: {user: member}"
_CAPPED = "unit: {user: member, max_events: 3}"
# Of each stream: its epoch, what stands in ``privacy`` beside epsilon, and its other lines.
STREAMS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    EXACT: ("5m", "not_private: true", ()),
    "plain-minute": ("1m", "", ()),
    "plain-long": ("10m", "", ()),
    "plain-causal": ("2m", "", ("tree: {release: causal}",)),
    "plain-where": ("2m", "", ("where: {page: /shop}",)),
    "keys-minute": ("1m", "", (_KEYS,)),
    "keys-long": ("5m", "", (_KEYS,)),
    "keys-causal": ("2m", "", (_KEYS, "tree: {release: causal}")),
    "keys-pages": ("2m", "", ('keys: {field: page, list: ["/", "/shop"]}',)),
    "sum-minute": ("1m", "", (_SUM,)),
    "sum-long": ("5m", "", (_SUM,)),
    "sum-keys": ("2m", "", (_SUM, _KEYS)),
    "capped-minute": ("1m", _CAPPED, ()),
    "capped-long": ("5m", _CAPPED, ()),
    "capped-keys": ("2m", _CAPPED, (_KEYS,)),
    "users-minute": ("1m", _USER, ("count: users",)),
    "users-keys": ("5m", _USER, ("count: users", _KEYS)),
    "values": ("2m", "", ("value: {field: amount, min: 0, max: 20, buckets: 8}",)),
    "windows": (
        "2m",
        "",
        ("value: {field: amount, min: 0, max: 20, buckets: 8, mode: window, window: 10s}",),
    ),
    "windows-keys": ("2m", "", (f"{_KEYS[:-1]}, mode: window, window: 10s}}",)),
}
# Half of the streams release into a topic, which is their witness; the others have a witness file.
INTO_TOPIC = tuple(STREAMS)[::2]
_SERVICE = """\
redis: {{url: "{url}", api_url: "{api_url}"}}
state: {{dir: ./state}}
api: {{port: {port}}}
operator: {{port: {operator_port}}}
publish_every: 500ms
kafka: {{bootstrap_servers: "{servers}", group: soak}}
outputs:
{outputs}
streams:
"""


def configuration(servers: str, redis: EmbeddedRedis, port: int, operator_port: int) -> str:
    """Return the text of the settings."""
    text = _SERVICE.format(
        url=redis.worker_url,
        api_url=redis.api_url,
        servers=servers,
        port=port,
        operator_port=operator_port,
        outputs="\n".join(f"  - {{stream: {name}, topic: releases}}" for name in INTO_TOPIC),
    )
    for name, (epoch, unit, lines) in STREAMS.items():
        epsilon = "1000000000" if name == EXACT else "0.5"
        privacy = ", ".join(filter(None, (f"epsilon: {epsilon}", unit, f"accept: {json.dumps(ACCEPTED)}")))
        text += (
            f"  {name}:\n    source: {{topic: {TOPIC}, format: json}}\n"
            f"    time: {{field: at, format: ms, bin: 1s, grace: {GRACE_S}s, epoch: {epoch}}}\n"
            f"    privacy: {{{privacy}}}\n" + "".join(f"    {line}\n" for line in lines)
        )
    return text


def ports_of(folder: Path) -> tuple[int, int]:
    """Return the ports of API and operator's endpoint; a later run has the same."""
    known = folder / "ports.json"
    if not known.exists():
        known.write_text(json.dumps([free_port(), free_port()]))
    port, operator_port = json.loads(known.read_text())
    return port, operator_port


async def make_topic(servers: str) -> None:
    """Create the topic of events, if it is not there; it keeps its records for ten minutes."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    kept = {"retention.ms": "600000", "segment.ms": "120000"}
    with contextlib.suppress(TopicAlreadyExistsError):
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, topic_configs=kept)])
    await admin.close()


class Producer:
    """Sends events dated now at a constant rate, and counts them by second."""

    def __init__(self, servers: str, seed: int) -> None:
        self._servers = servers
        self._rng = random.Random(f"soak {seed}")
        self.sent = Counter[int]()
        self.slowest_s = 0.0  # from an event's time until the broker had it

    async def run(self) -> None:
        """Send until cancelled. What is begun when it is cancelled is sent and counted."""
        async with AIOKafkaProducer(bootstrap_servers=self._servers, linger_ms=5, acks="all") as producer:
            due = time.monotonic()
            while True:
                await asyncio.shield(self._tick(producer))
                due = max(due + TICK_S, time.monotonic() - 1)
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _tick(self, producer: AIOKafkaProducer) -> None:
        began, sending = time.time(), []
        for number in range(round(EVENTS_PER_S * TICK_S)):
            at = int(time.time() * 1000)
            event = json.dumps(self._event(at)).encode()
            sending.append(await producer.send(TOPIC, event, partition=number % PARTITIONS))
            self.sent[at // 1000] += 1
        await asyncio.gather(*sending)
        self.slowest_s = max(self.slowest_s, time.time() - began)

    def _event(self, at: int) -> dict[str, object]:
        return {
            "at": at,
            "country": self._rng.choice(COUNTRIES),
            "page": self._rng.choice(PAGES),
            "amount": self._rng.randrange(0, 50) / 2,
            "member": f"m{self._rng.randrange(USERS)}",
        }
