"""A hundredth of ``benchmarks.sqlp`` through the whole service: Kafka, a worker, Redis and the API.

A producer sends the contributions of 100,000 users over a hundred seconds. A stream finds their keys, one
decision a second. The counts that the API then gives for the keys that were found are compared with the true
ones; a key that was not found counts as 0. ``approximate`` has the setting of the benchmark, counts of
``pure`` have no delta. ``exact`` and ``one`` are 59,780 users with ten visits each, at epsilon 1e9 and 1.

    python -m benchmarks.sqlp_topic      (the broker is started here)
"""

from __future__ import annotations

import argparse
import calendar
import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.machine import commit, machine, running
from benchmarks.sqlp import KEYS, MOST, USERS, Records, drawn_records, zipf_mandelbrot
from deploy.kafka import broker
from deploy.ports import free_port

RESULTS = Path(__file__).parent / "results" / "sqlp_topic.json"
SHARE = 0.01
SECONDS = 100  # of events; each is one instant of the benchmark
EPOCH_S = 200  # the stream decides so often; all events lie in its first part
VISITORS, VISITS, PAGES = 59_780, 10, 20_000
PATIENCE_S = 1800.0  # beside other work on the machine, bins wait for the processor
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
    privacy: {{{privacy}}}
    keys: {{field: key, discover: {{{discover}}}}}
    {more}
"""


@dataclass(frozen=True)
class Setting:
    """What a stream promises. Args: parts of its configuration; of_visits, whether it counts visits."""

    privacy: str
    discover: str
    more: str = ""
    of_visits: bool = False


_VISITOR = f"delta: 1e-9, unit: {{user: user, max_events: {VISITS}}}"
SETTINGS = {
    "approximate": Setting(
        f"epsilon: 6, delta: 1e-9, unit: {{user: user, max_keys: {MOST}, max_per_key: 1}}",
        "epsilon: 1.5, delta: 5e-10",
    ),
    "pure": Setting(
        f"epsilon: 6, unit: {{user: user, max_events: {MOST}}}",
        "epsilon: 1.5, delta: 1e-9",
        "tree: {release: causal}",
    ),
    "exact": Setting(
        f"epsilon: 1000000000, not_private: true, {_VISITOR}", "epsilon: 5e8, delta: 5e-10", of_visits=True
    ),
    "one": Setting(f"epsilon: 1, {_VISITOR}", "epsilon: 0.5, delta: 5e-10", of_visits=True),
}


def drawn_visits() -> Records:
    """Return the visits of all visitors, to pages by a law of Zipf."""
    rng = np.random.default_rng(3)
    who = np.repeat(np.arange(VISITORS, dtype=np.int32), VISITS)
    what = zipf_mandelbrot(who.size, PAGES, 0.0, 1.0, rng)
    when = rng.integers(0, SECONDS, who.size, dtype=np.int16)
    order = np.argsort(when, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(when, minlength=SECONDS))])
    return Records(who[order], what[order], first, np.bincount(what, minlength=PAGES))


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


def measured(name: str, setting: Setting) -> dict[str, object]:
    """Return what the service found, beside the truth."""
    size = round(USERS * SHARE), round(KEYS * SHARE)
    records = drawn_visits() if setting.of_visits else drawn_records(*size, SECONDS, np.random.default_rng(0))
    with tempfile.TemporaryDirectory(prefix="sqlp-") as directory:
        folder, port = Path(directory), free_port()
        cluster = broker.start(folder / "kafka")
        try:
            made_topic(cluster.bootstrap_servers)
            first_s = int(time.time()) + 15
            first = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first_s))
            where = {"port": port, "servers": cluster.bootstrap_servers, "stream": STREAM, "topic": TOPIC}
            own = {"privacy": setting.privacy, "discover": setting.discover, "more": setting.more}
            (folder / "app.yaml").write_text(CONFIGURATION.format(epoch=EPOCH_S, first=first, **where, **own))
            with running(folder, "run") as service:
                sent(cluster.bootstrap_servers, records, first_s)
                told = released_after(port, first_s + SECONDS + 3, service, folder / "run.log")
                late_s = time.time() - first_s - SECONDS
        finally:
            cluster.stop()
    rows = told["keys"]
    assert isinstance(rows, list)
    released, true = np.zeros(records.true.size), records.true
    places = np.array([int(row["key"][1:]) for row in rows])
    released[places] = [row["value"] for row in rows]
    lower, upper = np.array([row["interval"] for row in rows]).T
    error = np.abs(released - true)
    return {
        "setting": name,
        "users": int(records.users.max()) + 1,
        "contributions": records.keys.size,
        "keys": told["keys_available"],
        "compared": len(rows),
        "exact": int((np.rint(released) == true)[places].sum()),
        "in_interval": int(((lower <= true[places]) & (true[places] <= upper)).sum()),
        "l_inf": float(error.max()),
        "l_1": float(error.sum()),
        "l_2": float(np.sqrt((error**2).sum())),
        "captured_mass": float(true[places].sum() / true.sum()),
        "seconds_after_the_last_event": late_s,
        "load": os.getloadavg()[0],
        "commit": commit(),
        "machine": machine(),
    }


def main() -> None:
    """Print and keep what the service found, beside the truth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--of", nargs="*", choices=SETTINGS, default=list(SETTINGS), help="these only")
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in parser.parse_args().of:
        rows[name] = measured(name, SETTINGS[name])
        print(json.dumps(rows[name], indent=1), flush=True)
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
