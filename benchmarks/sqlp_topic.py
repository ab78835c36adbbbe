"""A hundredth of ``benchmarks.sqlp`` through the whole service: Kafka, a worker, Redis and the API.

A producer sends the contributions of 100,000 users over a hundred seconds. A stream finds their keys, one
decision a second, with at most 32 events of a user. The counts that the API then gives for the keys that were
found are compared with the true ones; a key that was not found counts as 0. Counts have no delta.

    python -m benchmarks.sqlp_topic      (the broker is started here)
"""

from __future__ import annotations

import calendar
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.machine import commit, machine, running
from benchmarks.sqlp import KEYS, MOST, USERS, Records, drawn_records
from deploy.kafka import broker
from deploy.ports import free_port

RESULTS = Path(__file__).parent / "results" / "sqlp_topic.json"
SHARE = 0.01
SECONDS = 100  # of events; each is one instant of the benchmark
EPOCH_S = 600  # the stream decides so often; all events lie in its first part
PATIENCE_S = 420.0
TOPIC, STREAM = "contributions", "keys"
CONFIGURATION = """
redis: {{url: "embedded:redis"}}
state: {{dir: state}}
api: {{port: {port}}}
kafka: {{bootstrap_servers: "{servers}", group: sqlp}}
streams:
  {stream}:
    source: {{topic: {topic}, format: json}}
    time: {{field: at, format: ms, bin: 1s, grace: 2s, epoch: {epoch}s, first: "{first}"}}
    privacy: {{epsilon: 6, unit: {{user: user, max_events: {most}}}}}
    tree: {{release: causal}}
    keys: {{field: key, discover: {{epsilon: 1.5, delta: 1e-9}}}}
"""


def made_topic(servers: str) -> None:
    """Create the topic. A worker that starts before its topic is there refuses to run."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, 4, 1)])[TOPIC].result(60)


def sent(servers: str, records: Records, first_s: int) -> None:
    """Send each contribution within its second, as fast as the clock allows."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "compression.type": "lz4"})
    for place in range(records.instants):
        time.sleep(max(0.0, first_s + place + 0.1 - time.time()))
        part = slice(records.first[place], records.first[place + 1])
        at = (first_s + place) * 1_000 + 500
        for user, key in zip(records.users[part].tolist(), records.keys[part].tolist(), strict=True):
            value = b'{"at":%d,"user":"u%d","key":"k%d"}' % (at, user, key)
            producer.produce(TOPIC, value, partition=user % 4)
        producer.poll(0)
    if producer.flush(120):
        raise KafkaException(f"{TOPIC}: not all events were delivered")


def answered(port: int, path: str, **parameters: object) -> dict[str, object]:
    """Return an answer of the API. Raises: httpx.HTTPStatusError."""
    reply = httpx.get(f"http://127.0.0.1:{port}{path}", params=parameters, timeout=60.0)  # type: ignore[arg-type]
    found: dict[str, object] = reply.raise_for_status().json()
    return found


def released_after(
    port: int, last_s: float, service: subprocess.Popen[bytes], log: Path
) -> dict[str, object]:
    """Return the counts of all found keys once the bin that holds an instant is visible.

    Raises: TimeoutError with the last lines of the service's log, also if the service has ended.
    """
    deadline, last = time.monotonic() + PATIENCE_S, "no answer"
    while time.monotonic() < deadline and service.poll() is None:
        time.sleep(1.0)
        try:
            bins = answered(port, f"/v1/streams/{STREAM}")["seq"]
            told = answered(port, f"/v1/streams/{STREAM}/keys", step=bins, limit=10_000)
        except httpx.HTTPError as refused:
            last = repr(refused)  # not yet up, or nothing is released yet
            continue
        over = told["over"]
        assert isinstance(over, dict)
        last = f"released until {over['end']}"
        if calendar.timegm(time.strptime(str(over["end"])[:19], "%Y-%m-%dT%H:%M:%S")) > last_s:
            return told
    said = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
    ended = "" if service.poll() is None else f"; the service ended with status {service.returncode}"
    raise TimeoutError(
        f"the last events were not visible within {PATIENCE_S:.0f} s: {last}{ended}. The log ends:\n{said}"
    )


def main() -> None:
    """Print and keep what the service found, beside the truth."""
    size = round(USERS * SHARE), round(KEYS * SHARE)
    records = drawn_records(*size, SECONDS, np.random.default_rng(0))
    with tempfile.TemporaryDirectory(prefix="sqlp-") as name:
        folder, port = Path(name), free_port()
        cluster = broker.start(folder / "kafka")
        try:
            made_topic(cluster.bootstrap_servers)
            first_s = int(time.time()) + 15
            first = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first_s))
            where = {"port": port, "servers": cluster.bootstrap_servers, "stream": STREAM, "topic": TOPIC}
            text = CONFIGURATION.format(epoch=EPOCH_S, first=first, most=MOST, **where)
            (folder / "app.yaml").write_text(text)
            with running(folder, "run") as service:
                sent(cluster.bootstrap_servers, records, first_s)
                told = released_after(port, first_s + SECONDS + 3, service, folder / "run.log")
                late_s = time.time() - first_s - SECONDS
        finally:
            cluster.stop()
    rows = told["keys"]
    assert isinstance(rows, list)
    released = np.zeros(size[1])
    for row in rows:
        released[int(row["key"][1:])] = row["value"]
    error = np.abs(released - records.true)
    found = {
        "users": size[0],
        "contributions": records.keys.size,
        "keys": len(rows),
        "l_inf": float(error.max()),
        "l_1": float(error.sum()),
        "l_2": float(np.sqrt((error**2).sum())),
        "captured_mass": float(records.true[released != 0].sum() / records.true.sum()),
        "seconds_after_the_last_event": late_s,
        "load": os.getloadavg()[0],
        "commit": commit(),
        "machine": machine(),
    }
    print(json.dumps(found, indent=1))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
