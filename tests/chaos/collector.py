"""A consumer that reads the topic of releases from its beginning and checks every row."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition

from tests.chaos.processes import GRACE_S, LETTERS, RELEASES, STREAM, STREAMS
from tests.chaos.traffic import BIN_MS, TERM
from tests.simulator.checks import Broken, Watch


class Collector:
    """Checks of all streams that no released value ever changes, and no row appears before its bin closes."""

    def __init__(self, servers: str) -> None:
        self.watches = {stream: Watch() for stream in STREAMS}
        self.terms = set[bytes]()  # all that the topics have ever named
        self.letters = 0  # dead letters in their topic
        self.broken: Broken | None = None
        self.ended = threading.Event()
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "collector",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1_000,
                "log_level": 0,
            }
        )
        self.consumer.assign([TopicPartition(topic, 0, 0) for topic in (RELEASES, LETTERS)])
        self.thread = threading.Thread(target=self._collect, daemon=True)
        self.thread.start()

    @property
    def last_bin(self) -> int:
        """The last bin of which every stream's row was seen, or -1."""
        return min(last_bin_of(watch.rows) for watch in self.watches.values())

    @property
    def watch(self) -> Watch:
        """Everything that was seen of the first stream."""
        return self.watches[STREAM]

    def _collect(self) -> None:
        while not self.ended.is_set():
            message = self.consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            try:
                key, value = message.key() or b"", message.value() or b"{}"
                self.terms.update(TERM.findall(key + b" " + value))
                self.letters += message.topic() == LETTERS
                self._see(key.decode().split("/")[0], value)
            except Broken as broken:
                self.broken = self.broken or broken

    def _see(self, stream: str, value: bytes) -> None:
        row = json.loads(value)
        if "nodes" not in row:
            return
        early_s = closes_s(row["bin"]) - time.time()
        if early_s > 0:
            raise Broken(f"bin {row['bin']} of {stream} is released {early_s:.1f} s before it closes")
        self.watches[stream].see_rows([(row["seq"], value)], "releases topic")

    def close(self) -> None:
        """Stop reading."""
        self.ended.set()
        self.thread.join(10)
        self.consumer.close()


def last_bin_of(rows: Mapping[int, bytes]) -> int:
    """Return the bin of the last row, or -1."""
    return int(json.loads(rows[max(rows)])["bin"]) if rows else -1


def closes_s(bin: int) -> float:
    """Return the closing instant of a bin, in seconds since 1970."""
    return (bin + 1) * BIN_MS / 1000 + GRACE_S


def last_closed_bin() -> int:
    """Return the last bin whose closing instant has passed."""
    return int((time.time() - GRACE_S) * 1000) // BIN_MS - 1


def released_bins(rows: dict[int, bytes]) -> Counter[int]:
    """Return the count of every released bin: its running count minus that of the bin before in its epoch."""
    counts, before, epoch, last_bin = Counter[int](), 0.0, -1, None
    for seq in sorted(rows):
        row = json.loads(rows[seq])
        if last_bin is not None and row["bin"] != last_bin + 1:
            raise Broken(f"row {seq} is of bin {row['bin']}, after bin {last_bin}")
        last_bin = row["bin"]
        if row["epoch"] != epoch:
            epoch, before = row["epoch"], 0.0
        (running,) = row["estimate"]
        counts[row["bin"]] = round(running - before)
        before = running
    return counts
