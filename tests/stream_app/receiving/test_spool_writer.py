"""A spool holds every confirmed batch once and whole, whatever fails and whenever."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from stream_app.ports import OperatorError
from stream_app.receiving import spool_writer
from stream_app.receiving.known_keys import KnownKeys, Stored, digest, mark
from stream_app.receiving.spool_writer import Incoming, SpoolFullError, SpoolWriter
from stream_app.spool import OpenPart, bytes_kept, delete_parts, parts
from tests.patience import PATIENCE_S
from tests.stream_app.receiving.failing_disk import FAULTS, DiedError, FailingDisk, Fault

pytestmark = pytest.mark.slow

DAY_US = 86_400_000_000
MOST = 1 << 30


def open_spool(directory: Path, most_bytes: int = MOST, now_us: Callable[[], int] = lambda: 1) -> SpoolWriter:
    """Start a writer, as a listener does."""
    return SpoolWriter(directory, most_bytes, KnownKeys(DAY_US, 1_000), now_us)


def incoming(number: int) -> Incoming:
    """Return one of many different batches, with a key."""
    data = b"".join(b'{"batch": %d, "n": %d}\n' % (number, n) for n in range(1 + number % 3))
    return Incoming(data, digest("somebody", str(number)))


def stored_by(writer: SpoolWriter, *batches: Incoming) -> list[Stored]:
    """Return what is stored of batches, none of which is refused."""
    return [stored for stored in writer.append(batches) if stored is not None]


def content(directory: Path) -> bytes:
    """Return the whole log, as a worker may read it."""
    records = []
    for part in parts(directory):
        opened = OpenPart(part)
        list(opened.new_batches())
        records.append(part.records.read_bytes()[: opened.end - part.start])
        opened.close()
    return b"".join(records)


def test_batches_are_kept_in_their_order(tmp_path: Path) -> None:
    writer = open_spool(tmp_path / "spool")
    stored = stored_by(writer, incoming(1), incoming(2)) + stored_by(writer, incoming(3))
    assert [(one.records, one.is_new) for one in stored] == [(2, True), (3, True), (1, True)]
    writer.close()
    assert content(tmp_path / "spool") == b"".join(incoming(number).data for number in (1, 2, 3))


@pytest.mark.parametrize("restart", [False, True])
def test_a_repeated_batch_is_stored_once(tmp_path: Path, restart: bool) -> None:
    writer = open_spool(tmp_path / "spool")
    [first] = stored_by(writer, incoming(1))
    if restart:
        writer.close()
        writer = open_spool(tmp_path / "spool")
    again, twice, also_twice = stored_by(writer, incoming(1), incoming(2), incoming(2))
    assert (again.is_new, again.crc, again.length) == (False, first.crc, len(incoming(1).data))
    assert (twice.is_new, also_twice.is_new) == (True, False)
    writer.close()
    assert content(tmp_path / "spool") == incoming(1).data + incoming(2).data


def test_a_batch_without_a_key_is_stored_each_time(tmp_path: Path) -> None:
    writer = open_spool(tmp_path / "spool")
    writer.append([Incoming(b"1\n"), Incoming(b"1\n")])
    writer.close()
    assert content(tmp_path / "spool") == b"1\n1\n"


def test_keys_are_forgotten_by_age() -> None:
    keys, stored = KnownKeys(remember_us=100, most=2), Stored(1, 2, 3)
    for at_us in (20, 30):
        keys.add("a", str(at_us), at_us, stored)
    assert not keys.has_room("a", 0)
    keys.forget_old(121)
    assert [keys.get("a", key) for key in ("20", "30")] == [None, stored]
    assert (keys.has_room("a", 0), keys.has_room("a", 1), len(keys)) == (True, False, 1)
    keys.forget_old(131)
    assert len(keys) == 0


def keyed(sender: str, key: int) -> Incoming:
    """Return a batch of a sender with a key."""
    return Incoming(b"%d\n" % key, digest(sender, str(key)), mark(sender))


@pytest.mark.parametrize("restart", [False, True])
def test_no_sender_makes_the_writer_forget_the_key_of_another(tmp_path: Path, restart: bool) -> None:
    """One sender sends as many keys as fit, and many more: the other's retry must still be recognised."""

    def opened() -> SpoolWriter:
        return SpoolWriter(tmp_path / "spool", MOST, KnownKeys(DAY_US, 3), lambda: 1)

    writer = opened()
    stored_by(writer, keyed("bob", 0))
    together = writer.append([keyed("eve", key) for key in range(5)])
    assert [stored is not None for stored in together] == [True] * 3 + [False] * 2
    if restart:
        writer.close()
        writer = opened()
    assert writer.append([keyed("eve", 9)]) == [None]
    for sender, key in (("bob", 0), ("eve", 0), ("eve", 2)):
        [again] = stored_by(writer, keyed(sender, key))
        assert not again.is_new
    assert stored_by(writer, keyed("bob", 1), Incoming(b"without a key\n"))[1].is_new
    writer.close()
    assert content(tmp_path / "spool") == b"0\n0\n1\n2\n1\nwithout a key\n"


def test_a_sender_may_go_on_when_its_keys_are_old_enough(tmp_path: Path) -> None:
    now_us = [0]
    writer = SpoolWriter(tmp_path / "spool", MOST, KnownKeys(100, 1), lambda: now_us[0])
    stored_by(writer, keyed("eve", 0))
    assert writer.append([keyed("eve", 1)]) == [None]
    now_us[0] = 101
    assert stored_by(writer, keyed("eve", 1))[0].is_new
    writer.close()


def test_keys_that_an_older_version_stored_are_still_known(tmp_path: Path) -> None:
    """It stored no sender beside a key; new keys of a sender are in its own pool."""
    writer = open_spool(tmp_path / "spool")
    old = Incoming(b"0\n", digest("bob", "0"))
    stored_by(writer, old)
    writer.close()
    writer = SpoolWriter(tmp_path / "spool", MOST, KnownKeys(DAY_US, 1), lambda: 1)
    assert not stored_by(writer, keyed("bob", 0))[0].is_new
    assert stored_by(writer, keyed("bob", 1))[0].is_new
    writer.close()


def test_a_full_spool_refuses_and_stores_nothing(tmp_path: Path) -> None:
    writer = open_spool(tmp_path / "spool", most_bytes=200)
    writer.append([incoming(1)])
    with pytest.raises(SpoolFullError):
        writer.append([incoming(2)])
    assert not stored_by(writer, incoming(1))[0].is_new  # a repeated one needs no room
    writer.close()
    assert content(tmp_path / "spool") == incoming(1).data


def test_parts_end_by_size_and_by_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_writer, "PART_BYTES", 40)
    now_us = [0]
    writer = open_spool(tmp_path / "spool", now_us=lambda: now_us[0])
    for number in (2, 1):  # 3 records, 2 records
        writer.append([incoming(number)])
    assert [part.start for part in parts(tmp_path / "spool")] == [0, 63, 105]
    writer.turn_over()
    writer.append([Incoming(b"1\n")])
    now_us[0] = spool_writer.PART_US
    writer.turn_over()
    writer.turn_over()
    assert [part.start for part in parts(tmp_path / "spool")] == [0, 63, 105, 107]
    writer.close()
    assert content(tmp_path / "spool") == incoming(2).data + incoming(1).data + b"1\n"


def test_small_requests_do_not_take_more_than_the_largest_size(tmp_path: Path) -> None:
    """Each request takes a line in the file of batches, whatever it holds."""
    writer = open_spool(tmp_path / "spool", most_bytes=2_000)
    accepted = 0
    with suppress(SpoolFullError):
        for accepted in range(100):
            writer.append([Incoming(b"1\n", digest("a", str(accepted)))])
    assert 10 < accepted < 30
    writer.close()
    assert bytes_kept(tmp_path / "spool") <= 2_000


def test_small_requests_end_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_writer, "PART_BATCHES_BYTES", 300)
    writer = open_spool(tmp_path / "spool")
    for number in range(20):
        writer.append([Incoming(b"1\n", digest("a", str(number)))])
    assert len(parts(tmp_path / "spool")) > 4
    assert content(tmp_path / "spool") == b"1\n" * 20
    writer.close()


def test_blank_lines_are_no_records(tmp_path: Path) -> None:
    writer = open_spool(tmp_path / "spool")
    [stored] = stored_by(writer, Incoming(b"1\n\n \r\n2\n"))
    assert stored.records == 2
    writer.close()


def test_other_files_in_a_spool_are_left_alone(tmp_path: Path) -> None:
    for name in ("clicks.ndjson", "old.batches", "7.ndjson"):
        (tmp_path / name).write_text("x")
    writer = open_spool(tmp_path)
    writer.append([incoming(1)])
    writer.close()
    assert content(tmp_path) == incoming(1).data
    delete_parts(tmp_path, DAY_US)
    assert (tmp_path / "old.batches").read_text() == "x"


def test_two_writers_take_turns_and_share_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_writer, "PART_BYTES", 150)
    writers = [open_spool(tmp_path / "spool") for _ in range(2)]
    for number in range(30):
        [first] = stored_by(writers[number % 3 % 2], incoming(number))
        [again] = stored_by(writers[number % 2], incoming(number))
        assert (first.is_new, again.is_new, again.records) == (True, False, first.records)
    for writer in writers:
        writer.close()
    assert content(tmp_path / "spool") == b"".join(incoming(number).data for number in range(30))


def test_writers_of_many_processes_lose_nothing(tmp_path: Path) -> None:
    command = """
import sys
from pathlib import Path
from stream_app.receiving.known_keys import KnownKeys
from stream_app.receiving.spool_writer import Incoming, SpoolWriter
writer = SpoolWriter(Path(sys.argv[1]), 1 << 30, KnownKeys(10**12, 100))
for number in range(50):
    writer.append([Incoming(f"{sys.argv[2]}-{number}\\n".encode() * 3)])
"""
    started = [
        subprocess.Popen([sys.executable, "-c", command, str(tmp_path / "spool"), str(one)])
        for one in range(3)
    ]
    assert [process.wait(PATIENCE_S) for process in started] == [0, 0, 0]
    lines = content(tmp_path / "spool").decode().splitlines()
    assert [lines[i] for i in range(0, 450, 3)] == [lines[i] for i in range(2, 450, 3)]  # whole batches
    assert sorted(lines) == sorted(
        f"{one}-{number}" for one in range(3) for number in range(50) for _ in "abc"
    )


def test_a_writer_whose_part_was_deleted_goes_on_in_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_writer, "PART_BYTES", 1)
    writers = [open_spool(tmp_path / "spool") for _ in range(2)]
    for number in range(5):
        writers[0].append([incoming(number)])
    assert delete_parts(tmp_path / "spool", DAY_US) == 5
    writers[1].append([incoming(7)])
    assert content(tmp_path / "spool") == incoming(7).data
    for writer in writers:
        writer.close()


@pytest.mark.parametrize("number", range(1, 6))
def test_a_disk_without_room_for_a_new_part_loses_no_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """What was confirmed is not answered as if it had failed, and the writer goes on in the old part."""
    monkeypatch.setattr(spool_writer, "PART_BYTES", 1)
    writer = open_spool(tmp_path / "spool")
    disk = FailingDisk(tmp_path / "spool", number, "refused")
    with pytest.MonkeyPatch.context() as patch:
        disk.install(patch)
        with suppress(OSError):
            writer.append([incoming(1)])
    for one in (1, 2, 3):
        writer.append([incoming(one)])
    writer.close()
    assert content(tmp_path / "spool") == b"".join(incoming(one).data for one in (1, 2, 3))


class Run:
    """A sender that appends batches, and a worker that reads, until the disk or the process fails.

    Args: writers, processes that write in turns; if one dies, the others go on.
    """

    def __init__(self, directory: Path, random: Random, writers: int) -> None:
        self.directory, self.random, self.writers = directory, random, writers
        self.confirmed: list[int] = []
        self.used = b""  # what the worker has counted

    def go(self) -> None:
        """Append nine batches in groups; look at the spool in between. Raises: DiedError."""
        writers = [open_spool(self.directory) for _ in range(self.writers)]
        number = 0
        try:
            while number < 9:
                group = list(range(number, min(number + self.random.randint(1, 2), 9)))
                writer = self.random.choice(writers)
                try:
                    writer.append([incoming(one) for one in group])
                except OSError:
                    continue  # a sender tries again with the same key
                except DiedError:
                    writers.remove(writer)
                    writer.close()
                    if not writers:
                        raise
                    continue
                self.confirmed += group
                number += len(group)
                if self.random.random() < 0.5:
                    self.look()
        finally:
            self.look_at_a_torn_spool()
            for writer in writers:
                writer.close()

    def look(self) -> None:
        """Read and sync like a worker."""
        found = content(self.directory)
        assert found.startswith(self.used)
        for part in parts(self.directory)[-1:]:
            opened = OpenPart(part)
            try:
                opened.sync()
            except OSError:
                return  # an outage: it uses nothing and tries again
            finally:
                opened.close()
        self.used = found

    def look_at_a_torn_spool(self) -> None:
        """Read what a dying writer left, before any other writer starts."""
        if self.random.random() < 0.5 and self.directory.exists():
            self.look()


def calls_of_a_whole_run(directory: Path, seed: int, writers: int) -> int:
    """Return how many calls can fail."""
    disk = FailingDisk(directory)
    with pytest.MonkeyPatch.context() as patch:
        disk.install(patch)
        Run(directory, Random(seed), writers).go()
    return disk.calls


@pytest.mark.parametrize("writers", [1, 2])
@pytest.mark.parametrize("power", ["kill", "power failure"])
@pytest.mark.parametrize("fault", FAULTS)
def test_every_call_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, power: str, writers: int
) -> None:
    """Every confirmed batch is there once and whole, in order; what a worker used never changes."""
    monkeypatch.setattr(spool_writer, "PART_BYTES", 150)
    for name in ("fsync", "fdatasync"):  # FailingDisk says what they make durable; a real sync takes long
        monkeypatch.setattr(os, name, lambda _: None)
    total = calls_of_a_whole_run(tmp_path / "whole", 1, writers)
    assert total > 30
    for number in range(1, total + 1):
        directory, random = tmp_path / f"{number}", Random(1)
        disk, run = FailingDisk(directory, number, fault), Run(directory, random, writers)
        with pytest.MonkeyPatch.context() as patch:
            disk.install(patch)
            with suppress(DiedError, OperatorError):
                run.go()
        if power == "power failure":
            disk.fail_power(random)
        writer = open_spool(directory)
        log = content(directory)
        assert log.startswith(run.used), number
        sent = b"".join(incoming(one).data for one in range(9))
        confirmed = b"".join(incoming(one).data for one in run.confirmed)
        assert log.startswith(confirmed), number
        assert sent.startswith(log), number  # a prefix of whole batches: at most the last group is more
        for one in range(9):
            writer.append([incoming(one)])
        assert content(directory) == sent, number
        writer.close()
