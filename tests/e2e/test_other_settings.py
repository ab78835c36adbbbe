"""The real service, started again with other settings: each stream goes on, and every event counts once."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from click.testing import CliRunner

from deploy.ports import free_port
from stream_app.core.instants import format_instant, parse_instant
from stream_app.shell.commands import main
from tests.e2e.service import Service, get

pytestmark = pytest.mark.redis

HEAD = """
redis: {{url: "embedded:./redis"}}
api: {{port: {port}}}
publish_every: 250ms
streams:
"""
STREAM = """  {name}:
    source: {{file: {file}.ndjson}}
    time: {{field: at, format: ms, bin: {bin}, grace: {grace}, epoch: {epoch}, first: "{first}"}}
    privacy: {{{privacy}}}
    {more}
"""
EXACT = "epsilon: 1000000000, not_private: true"
PLAIN = {"bin": "1s", "grace": "1s", "epoch": "4s", "privacy": EXACT, "more": ""}
BEFORE: dict[str, dict[str, str]] = {  # what a user wrote at first
    "budget": {"privacy": "epsilon: 1"},
    "arrival": {"epoch": "6s", "more": "late: next_bin"},
    "bins": {},
    "old": {},
}
AFTER = BEFORE | {
    "budget": {"privacy": "epsilon: 2"},
    "arrival": {"epoch": "6s", "grace": "2s", "more": "late: dead_letter"},
    "bins": {"bin": "500ms"},
    "new": {"bin": "500ms", "grace": "2s", "file": "old", "more": "successor_of: old"},
}
CHANGED = r"{}: from (\S+) on, as generation 2: .*{} instead of"  # what the service says of a next segment
NEW_BUDGET = CHANGED.format("budget", "privacy.epsilon 2")
NEW_ARRIVAL = CHANGED.format("arrival", "late dead_letter")
NEW_BINS = CHANGED.format("bins", "time.bin 500ms")


class Writer(threading.Thread):
    """Appends an event to each file every 50 ms; every third event is half a second old."""

    def __init__(self, *files: Path) -> None:
        super().__init__(daemon=True)
        self.files, self.times_ms, self.ends = files, list[int](), threading.Event()

    def run(self) -> None:
        """Write until ``ends`` is set."""
        while not self.ends.wait(0.05):
            at_ms = time.time_ns() // 1_000_000 - 500 * (len(self.times_ms) % 3 == 0)
            for file in self.files:
                with file.open("a") as events:
                    events.write(json.dumps({"at": at_ms, "file": file.stem}) + "\n")  # or they are one log
            self.times_ms.append(at_ms)


class Again:
    """A service and its folder. Attributes: edge_s, when the successor begins."""

    service: Service
    edge_s = 0

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.first_s = int(time.time()) - 2
        files = [folder / f"{name}.ndjson" for name in BEFORE]
        for file in files:
            file.touch()
        self.writer = Writer(*files)

    def configure(self, streams: dict[str, dict[str, str]]) -> None:
        """Write the configuration."""
        text = HEAD.format(port=self.port)
        for name, own in streams.items():
            first_s = self.edge_s if name == "new" else self.first_s
            facts = {"file": name, "first": format_instant(first_s * 10**6), **PLAIN, **own}
            text += STREAM.format(name=name, **facts)
        (self.folder / "app.yaml").write_text(text)

    def command(self, *words: str) -> str:
        """Return what a command says, which must succeed."""
        found = CliRunner().invoke(main, [*words, "--config", str(self.folder / "app.yaml")])
        assert found.exit_code == 0, found.output
        return found.output

    def told(self, path: str, **asked: Any) -> Any:
        """Return an answer of the API about a stream."""
        return get(self.port, f"/v1/streams/{path}", **asked)

    def rows(self, segment: str) -> list[dict[str, Any]]:
        """Return the rows in a witness. The last line of a file may not be complete yet."""
        file = self.folder / "state" / "witness" / f"{segment.replace('@', '%40')}.ndjson"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line.partition("\t")[0]) for line in lines if line.endswith("\n")]

    def edge_of(self, words: str) -> int:
        """Return the instant that the service named in microseconds. Args: words, with one group."""
        found = re.search(words, self.service.output)
        assert found is not None, self.service.output
        return parse_instant(found[1])

    def counts(self, since_us: int, until: str | int) -> int:
        """Return how many events are dated between two instants."""
        until_us = parse_instant(until) if isinstance(until, str) else until
        return sum(since_us <= at_ms * 1000 < until_us for at_ms in self.writer.times_ms)

    def is_released(self, stream: str, until_us: int) -> bool:
        """Return whether readers see a stream up to an instant."""
        released = self.told(stream)["released_until"]
        return bool(released) and parse_instant(released) >= until_us


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Again]:
    """Yield a service that has been started again, and whose streams have gone on; no more events come."""
    again = Again(tmp_path_factory.mktemp("again"))
    again.writer.start()
    again.configure(BEFORE)
    with Service(["run", "--config", "app.yaml"], again.folder) as service:
        service.until_true(lambda: all(map(again.rows, BEFORE)), "every stream has released")
        again.edge_s = int(time.time()) + 12
        again.configure(AFTER)
        assert re.search(NEW_ARRIVAL, again.command("check-config"))
        assert service.interrupt() == 0
    with Service(["run", "--config", "app.yaml"], again.folder) as again.service:
        until = again.service.until_true
        again.service.until("page and API")
        ends = {"arrival": again.edge_of(NEW_ARRIVAL) + 3_000_000, "new": again.edge_s * 10**6 + 2_000_000}
        for stream, end_us in (*ends.items(), ("old", again.edge_s * 10**6)):
            until(lambda of=(stream, end_us): again.is_released(*of), f"{stream} goes on")
        until(lambda: len(again.rows("bins@2")) > 6, "the next generation has released")
        until(lambda: again.told("budget")["epsilon"] == "2", "the next segment is visible")
        again.writer.ends.set()
        again.writer.join()
        yield again


def test_another_epsilon_is_that_of_the_next_segment(again: Again) -> None:
    edge_us, privacy = again.edge_of(NEW_BUDGET), again.told("budget/privacy")
    assert privacy["source_epsilon"] == "2"
    assert {entry["epsilon"] for entry in privacy["ledger"]} == {"1", "2"}
    old, new = again.rows("budget"), again.rows("budget@2")
    assert (old[-1]["bin"] + 1) * 10**6 == new[0]["bin"] * 10**6 == edge_us
    assert [len({row["strategy"] for row in rows}) for rows in (old, new, old + new)] == [1, 1, 2]


def test_other_arrival_begins_at_an_epoch_s_end_that_is_announced(again: Again) -> None:
    switch_us, first_us = again.edge_of(NEW_ARRIVAL), again.first_s * 10**6
    assert (switch_us - first_us) % 6_000_000 == 0
    until = again.told("arrival")["released_until"]
    found = again.told("arrival/count", start=format_instant(first_us), end=until)
    assert found["value"] == again.counts(first_us, until)


def test_a_successor_begins_where_its_predecessor_ends(again: Again) -> None:
    old, new, edge = again.told("old"), again.told("new"), format_instant(again.edge_s * 10**6)
    first_us, edge_us = again.first_s * 10**6, again.edge_s * 10**6
    again.service.until(f"it ends for good at {edge}")
    assert (old["released_until"], old["ends"], old["next_release"]) == (edge, edge, None)
    assert old["running"]["value"] == again.counts(first_us, edge_us)
    assert (old["successor"], new["successor_of"]) == ("new", "old")
    assert new["start"] == format_instant(first_us)  # one history
    count = again.told("new/count", start=edge, end=new["released_until"])
    assert count["value"] == again.counts(edge_us, new["released_until"])
    assert again.told("new/privacy")["source_epsilon"] == "1000000000"


def test_other_bins_are_the_next_generation_and_all_of_it_comes_back(again: Again) -> None:
    """Last, because it ends the service. Then the store is lost, and the witnesses have everything."""
    edge_us = again.edge_of(NEW_BINS)
    assert (edge_us // 1_000_000 - again.first_s) % 4 == 0
    assert again.service.interrupt() == 0
    segments = {*AFTER, "budget@2", "arrival@2", "bins@2"}
    assert {line.split(":")[0] for line in again.command("rebuild").splitlines()} == segments
    rmtree(again.folder / "redis")
    lines = again.command("rebuild").splitlines()
    assert {line.split(":")[0] for line in lines} == segments
    assert all("put back from its witness" in line for line in lines), lines
    again.command("export", str(again.folder / "all.ndjson"), "--stream", "bins")
    assert '"bins@2"' in (again.folder / "all.ndjson").read_text()
    old, new = again.rows("bins"), again.rows("bins@2")
    assert (old[-1]["bin"] + 1) * 1_000_000 == new[0]["bin"] * 500_000 == edge_us
    counted = [sum(row["nodes"][0][2][0] for row in rows) for rows in (old, new)]  # of leaves, without noise
    until_us = (new[-1]["bin"] + 1) * 500_000
    assert counted == [again.counts(again.first_s * 10**6, edge_us), again.counts(edge_us, until_us)]
