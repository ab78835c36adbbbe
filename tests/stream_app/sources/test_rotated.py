"""A log that is rotated in place is read once, line by line, whatever moves, and whenever a worker starts."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import lzma
import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_app.ports import OperatorError
from stream_app.sources import rotated
from stream_app.sources.copies import MOST_COMPARED
from stream_app.sources.decode import TimeField
from stream_app.sources.file_sequence import FileSequence
from stream_app.sources.packed import ENDINGS, is_packed, open_packed, zstd
from stream_app.sources.read_ahead import LEAST_RECORDS, read_ahead
from stream_app.sources.web_log import WebLog

LINE = '192.0.2.1 - - [01/Mar/2026:12:00:00 +0000] "GET /{} HTTP/1.1" 200 5 "-" "{}"\n'
MODES = ("rename", "copytruncate", "date")
PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd.compress}


class Rotated:
    """A log, its rotations, and a worker that reads it."""

    def __init__(self, folder: Path, mode: str, rng: random.Random) -> None:
        self.folder, self.mode, self._rng = folder, mode, rng
        self.log, self.written, self.read = folder / "access.log", 0, list[str]()
        self._source: FileSequence | None = None
        self._position = 0
        self._rotations = 0

    def write(self, lines: int, longer: int = 0) -> None:
        """Append lines, each with its own path. Args: longer, bytes more of each."""
        with self.log.open("ab") as file:
            for _ in range(lines):
                file.write(LINE.format(self.written, "x" * (longer + self._rng.randrange(200))).encode())
                self.written += 1

    def rotate(self) -> None:
        """Rotate as logrotate does, and compress some older file."""
        self._rotations += 1
        if self.mode == "date":
            target = self.folder / f"access.log-202603{self._rotations:02}"
        else:
            self._shift()
            target = self.folder / "access.log.1"
        if self.mode == "copytruncate":
            shutil.copyfile(self.log, target)
            os.truncate(self.log, 0)
        else:
            self.log.rename(target)
            if self._rng.random() < 0.5:
                self.look()  # between the steps of a rotation
            self.log.touch()
        older = [path for path in self.folder.glob("access.log[.-]*") if not is_packed(path)]
        for path in older if self._rng.random() < 0.5 else [one for one in older if one != target]:
            self._pack(path)

    def _shift(self) -> None:
        for number in range(self._rotations, 0, -1):
            for ending in ("", *ENDINGS):
                path = self.folder / f"access.log.{number}{ending}"
                if path.exists():
                    path.rename(self.folder / f"access.log.{number + 1}{ending}")

    def _pack(self, path: Path) -> None:
        ending = self._rng.choice(ENDINGS)
        packed = path.with_name(path.name + ending)
        packed.write_bytes(PACK[ending](path.read_bytes()))
        self.look()
        path.unlink()

    def look(self) -> None:
        """Read what is there, as a worker does."""

        async def read() -> None:
            if self._source is None:
                form = WebLog("combined")
                self._source = FileSequence(self.log, form, TimeField("time", "us"), self.state, ["path"])
            while batches := await self._source.read({"0": self._position}, 0):
                for batch in batches:
                    self._position = batch.end
                    self.read += batch.columns["path"].tolist()
                    assert not batch.refused
                    assert not batch.records

        asyncio.run(read())

    @property
    def state(self) -> Path:
        """The directory of the notes."""
        return self.folder / "state"

    def restart(self) -> None:
        """End the worker; the next look starts another one."""
        if self._source is not None:
            asyncio.run(self._source.close())
            self._source = None


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no server write to a file after its rotation."""
    monkeypatch.setattr(rotated, "_SETTLED_NS", -1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("settled")
def test_every_line_is_read_once_over_rotations_and_restarts(
    tmp_path: Path, mode: str, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(seed)
    log = Rotated(tmp_path, mode, rng)
    log.write(rng.randrange(1, 40))
    for _ in range(25):
        for step in rng.sample(["write", "look", "rotate", "restart"], 3):
            if step == "write":
                log.write(rng.randrange(1, 60))
            elif step != "rotate" or log.log.stat().st_size:
                getattr(log, step)()
    log.write(1)
    log.look()
    log.restart()
    assert log.read == [f"/{number}" for number in range(log.written)]
    assert caplog.messages == []  # no file is passed over


def test_line_that_a_server_writes_to_a_renamed_file_is_read(tmp_path: Path) -> None:
    log = Rotated(tmp_path, "rename", random.Random(1))
    log.write(3)
    log.look()
    old = log.log.open("ab")
    log.rotate()
    with old:
        for _ in range(2):  # the server has not opened the new file yet
            old.write(LINE.format(log.written, "").encode())
            log.written += 1
    log.write(2)
    log.look()
    assert log.read == [f"/{number}" for number in range(5)]
    for path in tmp_path.glob("access.log.1*"):
        os.utime(path, (time.time() - 3, time.time() - 3))
    log.look()
    log.restart()
    assert log.read == [f"/{number}" for number in range(7)]


def test_empty_log_is_read_once_it_has_a_line(tmp_path: Path) -> None:
    log = Rotated(tmp_path, "rename", random.Random(1))
    log.log.touch()
    log.look()
    log.write(1)
    log.look()
    log.restart()
    assert log.read == ["/0"]


@pytest.mark.parametrize("longer", [4_000, 5_000, 32_000])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.usefixtures("settled")
def test_first_line_may_be_long(tmp_path: Path, mode: str, longer: int) -> None:
    log = Rotated(tmp_path, mode, random.Random(longer))
    for _ in range(3):
        log.write(1, longer)
        log.look()
        log.write(50)
        log.restart()
        log.look()
        log.rotate()
    log.write(1, longer)
    log.look()
    log.restart()
    assert log.read == [f"/{number}" for number in range(154)]


@pytest.mark.parametrize("lines", [3, 60, 10_000])
@pytest.mark.usefixtures("settled")
def test_log_may_begin_with_a_hole(tmp_path: Path, lines: int) -> None:
    """A server that does not append goes on where it was before the truncation."""
    log = Rotated(tmp_path, "copytruncate", random.Random(1))
    for _ in range(2):
        log.write(lines)
        log.look()
        size = log.log.stat().st_size
        log.rotate()
        os.truncate(log.log, size)
        log.write(2)
        if size > MOST_COMPARED:
            with pytest.raises(OperatorError, match="bytes of zero"):
                log.look()
            break
        log.look()
        log.restart()
        log.look()
    log.restart()
    assert log.read == [f"/{number}" for number in range(lines if size > MOST_COMPARED else log.written)]


def _link_to_today(log: Rotated) -> None:
    _begin_link(log, 1)
    log.write(10)
    log.look()
    _begin_link(log, 2)


def _begin_link(log: Rotated, day: int) -> None:
    log.log.unlink(missing_ok=True)
    (today := log.folder / f"access.2026030{day}.log").touch()
    log.log.symlink_to(today.name)


def _hard_link(log: Rotated) -> None:
    log.write(10)
    os.link(log.log, log.folder / "access.log.1772366400")
    log.look()


def _copy_of_the_growing_file(log: Rotated) -> None:
    log.write(10)
    shutil.copy(log.log, log.folder / "access.log.old")
    log.look()


def _copy_that_is_rotated(log: Rotated) -> None:
    _copy_of_the_growing_file(log)
    log.write(5)
    log.restart()
    log.log.rename(log.folder / "access.log.1")
    os.utime(log.folder / "access.log.old", (0, 0))
    log.write(1)


def _two_copies(log: Rotated) -> None:
    log.write(10)
    packed = gzip.compress(log.log.read_bytes())
    (log.folder / "access.log-20260301.gz").write_bytes(packed)
    log.log.rename(log.folder / "access.log.1")


def _copy_before_truncation(log: Rotated) -> None:
    log.write(10)
    log.look()
    shutil.copy(log.log, log.folder / "access.log.1")
    log.restart()
    log.look()
    os.truncate(log.log, 0)
    log.look()


def _copy_without_truncation(log: Rotated) -> None:
    log.write(10)
    log.look()
    shutil.copy(log.log, log.folder / "access.log.1")


@pytest.mark.parametrize(
    "step",
    [
        _link_to_today,
        _hard_link,
        _copy_of_the_growing_file,
        _copy_that_is_rotated,
        _two_copies,
        _copy_before_truncation,
        _copy_without_truncation,
    ],
)
@pytest.mark.usefixtures("settled")
def test_links_and_copies_count_once(tmp_path: Path, step: Callable[[Rotated], None]) -> None:
    log = Rotated(tmp_path, "rename", random.Random(1))
    step(log)
    for _ in range(2):
        log.write(3)
        log.look()
        log.restart()
    log.look()
    log.restart()
    assert log.read == [f"/{number}" for number in range(log.written)]


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
@pytest.mark.parametrize("longer", [0, 5_000])
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.usefixtures("settled")
def test_of_files_that_begin_alike_the_longer_one_counts(
    tmp_path: Path, ending: str, longer: int, is_known: bool
) -> None:
    log = Rotated(tmp_path, "rename", random.Random(1))
    log.write(5, longer)
    if is_known:
        log.look()
    part = Path(shutil.copy(log.log, tmp_path / "access.log.old"))
    log.write(5, longer)
    whole = tmp_path / f"access.log.1{ending}"
    whole.write_bytes(PACK[ending](log.log.read_bytes()) if ending else log.log.read_bytes())
    log.log.unlink()
    os.utime(whole, ns=(0, part.stat().st_mtime_ns - 1))
    log.write(3)
    for _ in range(2):
        log.look()
        log.restart()
    assert log.read == [f"/{number}" for number in range(13)]


def _begun_alike(log: Rotated, *paths: str) -> None:
    """Write a file whose lines have these paths."""
    log.log.write_text("".join(LINE.format(path, "") for path in paths))


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("names", [(".gz", ".zst"), ("", ".gz")])
@pytest.mark.usefixtures("settled")
def test_two_forms_of_one_file_count_once_and_one_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, names: tuple[str, str], is_known: bool
) -> None:
    log = Rotated(tmp_path, "rename", random.Random(1))
    log.write(5)
    if is_known:
        log.look()
    written = log.log.read_bytes()
    log.log.unlink()
    for place, ending in enumerate(names):
        (form := tmp_path / f"access.log.1{ending}").write_bytes(PACK[ending](written) if ending else written)
        os.utime(form, (9 - place, 9 - place))
    log.write(3)
    for _ in range(2):
        log.look()
    log.restart()
    assert log.read == [f"/{number}" for number in range(8)]
    read, other = (tmp_path / f"access.log.1{ending}" for ending in names)
    assert caplog.messages == [f"{other}: it begins as {read} does; it is taken for its copy and not counted"]


@pytest.mark.usefixtures("settled")
def test_files_with_one_number_and_other_lines_all_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a change of the compression: the older files keep their names."""
    log = Rotated(tmp_path, "rename", random.Random(1))
    for age, ending in ((30, ".zst"), (20, ".gz"), (10, "")):
        log.write(5)
        written = log.log.read_bytes()
        log.log.unlink()
        (part := tmp_path / f"access.log.1{ending}").write_bytes(PACK[ending](written) if ending else written)
        os.utime(part, (time.time() - age,) * 2)
    log.write(3)
    log.look()
    log.restart()
    assert log.read == [f"/{number}" for number in range(18)]
    assert caplog.messages == []


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.usefixtures("settled")
def test_new_file_that_begins_with_the_first_line_of_another_one_is_read(
    tmp_path: Path, is_known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = Rotated(tmp_path, "rename", random.Random(1))
    _begun_alike(log, "a")
    if is_known:
        log.look()
    _begun_alike(log, "a", "b", "c")
    log.log.rename(tmp_path / "access.log.1")
    _begun_alike(log, "a")
    for _ in range(2):
        log.look()
        log.restart()
    assert log.read == ["/a", "/b", "/c"]  # so far the new file may be a copy
    _begun_alike(log, "a", "d")
    log.look()
    log.restart()
    (tmp_path / "access.log.1").rename(tmp_path / "access.log.2")
    log.log.rename(tmp_path / "access.log.1")
    _begun_alike(log, "e")
    log.look()
    log.restart()
    assert log.read == ["/a", "/b", "/c", "/a", "/d", "/e"]
    assert caplog.messages == []


@pytest.mark.usefixtures("settled")
def test_compressed_files_are_not_unpacked_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked = list[bool]()

    def seen(path: Path) -> Any:
        unpacked.append(threading.current_thread() is threading.main_thread())
        return open_packed(path)

    log = Rotated(tmp_path, "rename", random.Random(1))
    log.write(5)
    log.look()
    monkeypatch.setattr("stream_app.sources.rotated.open_packed", seen)
    for ending in (".gz", ".xz"):
        (tmp_path / f"access.log.1{ending}").write_bytes(PACK[ending](log.log.read_bytes()))
    log.log.unlink()
    log.write(3)
    log.look()
    log.restart()
    assert unpacked == [False, False]
    assert log.read == [f"/{number}" for number in range(8)]


def test_file_that_is_taken_for_a_copy_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = Rotated(tmp_path, "rename", random.Random(1))
    log.write(10)
    log.look()
    log.log.rename(tmp_path / "access.log.1")
    log.write(10)
    copy = shutil.copy(log.log, tmp_path / "access.log.old")
    for _ in range(2):  # the server may still write to the renamed file
        log.look()
    os.utime(tmp_path / "access.log.1", (0, 0))
    log.look()
    log.restart()
    said = f"{copy}: it begins as {log.log} does; it is taken for its copy and not counted"
    assert caplog.messages == [said]
    assert len(log.read) == 20


@pytest.mark.usefixtures("settled")
def test_new_file_with_an_older_name_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """``rotatelogs -n`` writes into such a file while the log itself stays as it is."""
    log = Rotated(tmp_path, "rename", random.Random(1))
    log.write(10)
    log.look()
    (older := tmp_path / "access.log.1").write_text(LINE.format("other", ""))
    for _ in range(2):
        log.restart()
        log.look()
        log.write(1)
        log.look()
    log.restart()
    assert {*caplog.messages} == {f"{older}: its name is that of an older file; it is not counted"}
    assert len(caplog.messages) == 2  # once in each start
    assert len(log.read) == 12


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("access.log-28022026", "access.log-01032026"),
        ("access.log-28-02-2026", "access.log-01-03-2026"),
        ("access.2026-03-01.9.log", "access.2026-03-01.10.log"),
        ("access.log.10", "access.log.9.gz"),
    ],
)
@pytest.mark.usefixtures("settled")
def test_older_files_are_read_by_age(tmp_path: Path, first: str, second: str) -> None:
    log = Rotated(tmp_path, "rename", random.Random(1))
    for age, name in ((20, first), (10, second)):
        log.write(10)
        written = log.log.read_bytes()
        log.log.unlink()
        (tmp_path / name).write_bytes(gzip.compress(written) if name.endswith(".gz") else written)
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    log.write(3)
    log.look()
    log.restart()
    assert log.read == [f"/{number}" for number in range(23)]


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("ending", ENDINGS)
def test_older_file_that_cannot_be_read_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ending: str
) -> None:
    log = Rotated(tmp_path, "rename", random.Random(1))
    log.write(3)
    damaged, empty = tmp_path / f"access.log.2{ending}", tmp_path / f"access.log.1{ending}"
    damaged.write_bytes(PACK[ending](b"a line" * 9)[:-4])
    empty.write_bytes(PACK[ending](b""))
    log.look()
    log.restart()
    [line] = caplog.messages
    assert line.startswith(f"{damaged}: it cannot be read (")
    assert len(log.read) == 3


def test_another_log_under_the_same_name_is_refused(tmp_path: Path) -> None:
    log = Rotated(tmp_path, "rename", random.Random(1))
    log.write(5)
    log.look()
    log.restart()
    log.log.write_text(LINE.format("other", ""))
    with pytest.raises(OperatorError, match="none of its files is one counted so far"):
        log.look()


@pytest.mark.parametrize(
    "rotated_name",
    [
        "access.log-20260301-1772366399",
        "access.log.2026-03-01_11",
        "access.log-202603",
        "access.log-2026-W09",
        "access.log.00001",
        "access.log_20260301",
        "access.log.2026-03-01T11:59:59Z",
        "access-20260301.log",
        "access_2026.log",
        "access.1.log",
        "access-2026-03-01T11-59-59.123.log",
        "access.log.old",
    ],
)
@pytest.mark.usefixtures("settled")
def test_rotation_may_write_its_mark_in_any_form(tmp_path: Path, rotated_name: str) -> None:
    log = Rotated(tmp_path, "rename", random.Random(1))
    for stranger in ("access.1", "access.admin.log", "access-1.log.old", "access-8080.log"):
        (tmp_path / stranger).write_text(LINE.format("stranger", ""))
    log.write(3)
    log.look()
    log.write(2)
    log.log.rename(tmp_path / rotated_name)
    log.look()
    log.write(2)
    log.look()
    log.restart()
    assert log.read == [f"/{number}" for number in range(7)]


@pytest.mark.parametrize("step", ["emptied", "deleted", "compressed otherwise"])
@pytest.mark.usefixtures("settled")
def test_log_whose_last_file_is_gone_goes_on_once_it_is_back(tmp_path: Path, step: str) -> None:
    log = Rotated(tmp_path, "rename", random.Random(1))
    log.write(3)
    log.look()
    log.write(1)
    before = log.log.read_bytes()
    if step == "compressed otherwise":
        (tmp_path / "access.log.1.br").write_bytes(b"of Brotli")
    if step == "emptied":
        os.truncate(log.log, 0)
    else:
        log.log.unlink()
        log.log.touch()
    with pytest.raises(OperatorError, match=r"put it back as access\.log\.1, or name this log otherwise"):
        log.look()
    log.restart()
    (tmp_path / "access.log.1").write_bytes(before)
    log.write(2)
    log.look()
    log.restart()
    assert log.read == [f"/{number}" for number in range(6)]


@pytest.mark.parametrize("torn", [0, 20])
@pytest.mark.usefixtures("settled")
def test_line_that_was_read_and_that_the_copy_lacks_counts_once(tmp_path: Path, torn: int) -> None:
    """A server may write between the copy and the truncation; a copy may end within a line."""
    log = Rotated(tmp_path, "copytruncate", random.Random(1))
    log.write(3)
    log.look()
    if torn:
        log.write(1)
    copied = log.log.read_bytes()
    (tmp_path / "access.log.1").write_bytes(copied[: len(copied) - torn])
    log.look()
    if not torn:
        log.write(1)
        log.look()
    os.truncate(log.log, 0)
    log.look()
    log.restart()
    log.look()
    log.write(2)
    log.look()
    log.restart()
    assert log.read == [f"/{number}" for number in range(6)]


async def test_a_cut_is_never_behind_lines_that_were_only_read_ahead(tmp_path: Path) -> None:
    """After a crash they are not there, if the copy of a rotation lacks them: the next cut would go back."""
    log, counted = Rotated(tmp_path, "copytruncate", random.Random(1)), {"0": 0}
    log.write(LEAST_RECORDS)
    form = FileSequence(log.log, WebLog("combined"), TimeField("time", "us"), log.state, ["path"])
    source = read_ahead(form)
    [one] = await source.read(counted, 0)
    copied = log.log.read_bytes()
    counted = {"0": one.end}
    log.write(LEAST_RECORDS)
    [ahead] = await source.read(counted, 0)  # it is not counted yet, and the next read begins behind it
    await asyncio.sleep(0.05)
    (tmp_path / "access.log.1").write_bytes(copied)
    os.truncate(log.log, 0)
    assert (await source.positions_at(["0"], [0]))["0"] == [one.end]
    assert list(await source.read({"0": ahead.end}, 0)) == []  # counted meanwhile: no line is lost or refused
    assert (await source.positions_at(["0"], [0]))["0"] == [ahead.end]
    await source.close()


def test_notes_hold_no_line(tmp_path: Path) -> None:
    log = Rotated(tmp_path, "rename", random.Random(1))
    log.write(50)
    log.look()
    log.restart()
    kept: dict[Path, Any] = {path: path.read_bytes() for path in log.state.rglob("*") if path.is_file()}
    assert kept
    assert not [path for path, content in kept.items() if b"192.0.2" in content]
