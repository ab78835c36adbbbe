"""Lists of files and spools under rotation, compression, crashes and retries: every event counts once.

Each log is counted by the real loops, and by hand: an event counts in its own bin, or in the bin that is open
when it arrives, if that is later. A neighbouring log has one record more. Nothing else may differ.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dphist.tree.design import Release
from stream_app.core.counting.bins import LatePolicy
from stream_app.core.counting.where import Not, OneOf
from stream_app.core.kinds.tables import Span
from stream_app.receiving.known_keys import KnownKeys, digest
from stream_app.receiving.spool_writer import Incoming, SpoolWriter
from stream_app.sources import file_list
from stream_app.sources.file_sequence import FileSequence
from stream_app.sources.spool_log import SpoolSource
from tests.stream_app.declared import BIN_US, FIRST_BIN, STREAM, design_of, strategy_of
from tests.stream_app.one_source import AT, USER, OneSource, event_line
from tests.world.surfaces import view_of

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("LOGS", "1"))
BINS = 8
LATE: tuple[LatePolicy, ...] = ("next_bin", "drop", "dead_letter")
MAX_AHEAD = 1
WHERE = {"where": Not(OneOf("user", ("bob",)))}
FEATURES: dict[str, dict[str, Any]] = {
    "events": {},
    "where": WHERE,
    "users": {"max_events": 1, "count": "users"},
    "users, where": {"max_events": 1, "count": "users", **WHERE},
}


@dataclass(frozen=True)
class Event:
    """An event: its time in bins, and its user."""

    at: float
    user: str

    @property
    def line(self) -> bytes:
        """The event as it is written."""
        return event_line(int(self.at * BIN_US), user=self.user)


HOSTILE_BIN = FIRST_BIN + 4
HOSTILE = {
    "ordinary": Event(HOSTILE_BIN, "zoe"),
    "of a user like others": Event(HOSTILE_BIN, "bob"),
    "late": Event(FIRST_BIN, "zoe"),
    "from the future": Event(FIRST_BIN + 50, "zoe"),
}


class Worked(OneSource):
    """A log with one worker, all loops of which share one open source."""

    sources: list[Any]

    def open(self) -> Any:
        """Open the log, as a new worker does."""
        raise NotImplementedError

    def source(self) -> Any:
        """Return the source of the running worker."""
        if not self.sources:
            self.sources.append(self.open())
        return self.sources[-1]

    def look(self) -> None:
        """Ask for the end of the log, as a cutter does at any moment."""
        asyncio.run(self.source().positions_at(["0"], [0]))

    def restart(self) -> None:
        """End the worker; the next call starts another one."""
        while self.sources:
            asyncio.run(self.sources.pop().close())


class Files(Worked):
    """A list of files: rotated, compressed before or after the next file appears, and read by workers."""

    def write(self, rng: random.Random, lines: list[bytes]) -> None:
        """Append lines to the last file, or begin a new one."""
        plain = sorted(self.directory.glob("clicks-*.ndjson"))
        if not plain or rng.random() < 0.4:
            for path in plain[: len(plain) - (rng.random() < 0.5)]:
                self._pack(path)
                # A worker may look at the directory at this moment, before the next file appears.
                self.look()
            number = len(list(self.directory.glob("clicks-*")))
            plain = [self.directory / f"clicks-{number:03}.ndjson"]
        with plain[-1].open("ab") as file:
            file.write(b"".join(lines))

    def _pack(self, path: Path) -> None:
        packed = path.with_name(path.name + ".part")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        packed.rename(path.with_name(path.name + ".gz"))
        path.unlink()

    def open(self) -> Any:
        """Open the list, as a new worker does."""
        return FileSequence(
            self.directory / "clicks-*.ndjson", "ndjson", AT, self.directory / "notes", [USER]
        )


class Spool(Worked):
    """A spool: the listener dies now and then, and senders repeat what was not confirmed."""

    _sent = 0

    def write(self, rng: random.Random, lines: list[bytes]) -> None:
        """Send batches, some of them twice: the listener died before it could answer."""
        writer = self._listener()
        while lines:
            count = rng.randint(1, 4)
            batch, lines = lines[:count], lines[count:]
            self._sent += 1
            sent = Incoming(b"".join(batch), digest("sender", str(self._sent)))
            writer.append([sent])
            if rng.random() < 0.4:
                writer.close()
                writer = self._listener()
                writer.append([sent])
        writer.close()

    def _listener(self) -> SpoolWriter:
        return SpoolWriter(self.directory / "spool", 1 << 30, KnownKeys(1 << 50, 1_000), lambda: 1)

    def open(self) -> Any:
        """Open the spool, as a new worker does."""
        return SpoolSource(self.directory / "spool", AT, self.directory / "notes", [USER])


LOGS: dict[str, Callable[..., Any]] = {"files": Files, "spool": Spool}
Outcome = tuple[Counter[int], Counter[str]]


def drawn(rng: random.Random) -> list[list[Event]]:
    """Draw the events that arrive in each bin: on time, late, a little ahead, far ahead, before the first."""
    moves = [0, 0, 0, 0, -1, -3, 1, 40, -200]
    return [
        [
            Event(FIRST_BIN + bin + rng.choice(moves) + rng.random(), rng.choice(["ann", "bob", "eve"]))
            for _ in range(rng.randrange(9))
        ]
        for bin in range(BINS)
    ]


def recounted(arrivals: list[list[Event]], feature: str, late: LatePolicy = "next_bin") -> Counter[int]:
    """Count by hand."""
    facts = FEATURES[feature]
    counts, seen = Counter[int](), set[tuple[int, str]]()
    placed = [
        (max(int(event.at), open_bin), event.user)
        for open_bin, events in enumerate(arrivals, start=FIRST_BIN)
        for event in events
        if FIRST_BIN <= int(event.at) <= open_bin + MAX_AHEAD
        and (late == "next_bin" or int(event.at) >= open_bin)
        and not ("where" in facts and event.user == "bob")
    ]
    for bin, user in sorted(placed):
        epoch = (bin - FIRST_BIN) // 6
        if "max_events" not in facts or (epoch, user) not in seen:
            counts[bin] += bin < FIRST_BIN + BINS
            seen.add((epoch, user))
    return +counts


def counted(
    directory: Path,
    log: str,
    feature: str,
    seed: int,
    arrivals: list[list[Event]],
    late: LatePolicy = "next_bin",
) -> Outcome:
    """Count a log with the real loops; return the counts of bins, and letters by reason."""
    directory.mkdir()
    rng = random.Random(f"{log} {seed}")
    with closing(LOGS[log](directory, strategy_of(late=late, **FEATURES[feature]))) as one:
        for bin, events in enumerate(arrivals, start=FIRST_BIN):
            one.write(rng, [event.line for event in events])
            asyncio.run(_close_bin(one, bin))
            if rng.random() < 0.5:
                one.restart()
        return Counter(asyncio.run(one.released())), Counter(one.letters.reasons())


async def _close_bin(one: Any, bin: int, show: bool = False) -> None:
    closer, ingest = one.closer(), one.ingest()
    await closer.reconcile()
    while await ingest.step():
        pass
    one.clock.set_bin(bin + 1)
    while await ingest.step():
        pass
    await closer.close_due()
    if show:
        await closer.publisher.publish()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("log", LOGS)
def test_every_event_counts_once_and_one_more_changes_nothing_else(
    tmp_path: Path, log: str, feature: str, seed: int
) -> None:
    arrivals, late = drawn(random.Random(seed)), LATE[(seed + list(FEATURES).index(feature)) % len(LATE)]
    counts, letters = counted(tmp_path / "without", log, feature, seed, arrivals, late)
    assert +counts == recounted(arrivals, feature, late)
    for kind, event in HOSTILE.items():
        neighbour = [list(events) for events in arrivals]
        neighbour[HOSTILE_BIN - FIRST_BIN].append(event)
        more, more_letters = counted(tmp_path / kind, log, feature, seed, neighbour, late)
        assert +more == recounted(neighbour, feature, late)
        # One event of a user may come first, in the place of another one of the same user.
        assert (more - counts).total() <= 1
        assert (counts - more).total() <= ("users" in feature)
        assert (more_letters - letters).total() == (
            kind == "from the future" or (kind == "late" and late == "dead_letter")
        )
        assert not letters - more_letters


PAST, LONG = 8, 15  # the bins of history; all bins. An epoch has six.
RANGES = {
    "all": (0, LONG),
    "inside an epoch of history": (1, 5),
    "over the moment at which history ends": (PAST - 3, PAST + 3),
    "live": (PAST, LONG),
}


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("release", ["causal", "anticipating"])
def test_history_that_no_worker_saw_counts_in_its_own_bins(
    tmp_path: Path, log: str, release: Release
) -> None:
    """All of the history is there before the first worker starts. Then the log is followed."""
    rng = random.Random(f"{log} {release}")
    numbers = [rng.randrange(9) for _ in range(LONG)]
    design = replace(design_of(), release=release)
    with closing(LOGS[log](tmp_path, strategy_of(design))) as one:
        for place, number in enumerate(numbers):
            at = [FIRST_BIN + place + rng.random() for _ in range(number)]
            one.write(rng, [Event(each, "ann").line for each in at])
            if place < PAST - 1:
                continue  # no worker has ever run
            asyncio.run(_close_bin(one, FIRST_BIN + place, show=True))
            if rng.random() < 0.3:
                one.restart()
        view = asyncio.run(view_of(one.store, STREAM))
    for start, stop in RANGES.values():
        count = view.count(Span(FIRST_BIN + start, FIRST_BIN + stop))
        assert count.value == pytest.approx(sum(numbers[start:stop]), abs=1e-6)


def _with_the_ending(pattern: Path) -> dict[str, Path]:
    """Return files by their whole names: a compressed file is another file than before."""
    wanted = pattern.name
    found = [*pattern.parent.glob(wanted), *pattern.parent.glob(wanted + ".gz")]
    return {path.name: path for path in sorted(found, key=lambda path: path.name)}


def test_a_compressed_file_that_counts_as_another_one_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_list, "files_of", _with_the_ending)
    monkeypatch.setattr(file_list.FileList, "_may_be_copied", lambda *_: False)  # would refuse the file
    assert _is_caught(tmp_path, "files")


def test_keys_that_a_crash_forgets_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpoolWriter, "_remember_all", lambda writer, start, batches: None)
    assert _is_caught(tmp_path, "spool")


def _is_caught(directory: Path, log: str) -> bool:
    """Return whether the recount differs for one of some logs, because an event counts more than once."""
    for seed in range(40):
        expected = recounted(drawn(random.Random(seed)), "events")
        try:
            counts, _ = counted(directory / f"{seed}", log, "events", seed, drawn(random.Random(seed)))
        except Exception:
            continue  # refused, which is not the fault that is built in
        if (+counts - expected).total():
            return True
    return False
