"""Durable files are whole or absent, contain whole lines only, have one writer, and are secret."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.durable import LineLog, check_directory, secret_directory, state_directory, write_durably
from stream_app.ports import OperatorError

texts = st.lists(st.binary(max_size=5).filter(lambda line: b"\n" not in line), max_size=6)


@given(texts, texts, st.integers(0, 50))
def test_a_torn_file_keeps_its_whole_lines(before: list[bytes], after: list[bytes], torn_at: int) -> None:
    """A file that ends anywhere keeps the whole lines before its end. New lines follow them."""
    with TemporaryDirectory() as name:
        path = Path(name) / "log"
        log = LineLog(path)
        log.append(before)
        assert log.last_line() == (before[-1] if before else None)
        log.close()
        size = min(torn_at, path.stat().st_size)
        os.truncate(path, size)
        whole = path.read_bytes().split(b"\n")[:-1]

        log = LineLog(path)
        assert log.last_line() == (whole[-1] if whole else None)
        log.append(after)
        assert list(log.lines()) == whole + after
        log.close()
        assert whole == before[: len(whole)]


def test_an_append_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LineLog(tmp_path / "log")
    log.append([b"one"])
    real_write, written = os.write, 0

    def full(descriptor: int, data: bytes) -> int:
        nonlocal written
        if written:
            raise OSError(28, "No space left on device")
        written = real_write(descriptor, data[:2])
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            log.append([b"two"])
    assert list(log.lines()) == [b"one"]
    log.append([b"three"])
    assert list(log.lines()) == [b"one", b"three"]
    log.close()


def test_long_lines_are_found(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "log")
    log.append([b"a", b"b" * 200_000])
    assert log.last_line() == b"b" * 200_000
    log.close()


def test_one_process_writes(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "log")
    with pytest.raises(OperatorError, match="another process writes"):
        LineLog(tmp_path / "log")
    log.close()
    LineLog(tmp_path / "log").close()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OperatorError, match="cannot be opened"):
        LineLog(tmp_path / "file" / "log")


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    LineLog(tmp_path / "state" / "log").close()
    write_durably(tmp_path / "state" / "whole", [b"a", b"b"])
    assert (tmp_path / "state" / "whole").read_bytes() == b"ab"
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()} == {0o600}


def test_a_file_that_is_not_finished_is_not_there(tmp_path: Path) -> None:
    def parts() -> object:
        yield b"new"
        raise KeyboardInterrupt

    path = tmp_path / "whole"
    write_durably(path, [b"old"])
    with pytest.raises(KeyboardInterrupt):
        write_durably(path, parts())  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    write_durably(path, [b"newer"])
    assert path.read_bytes() == b"newer"
    assert [entry.name for entry in tmp_path.iterdir()] == ["whole"]


def test_a_secret_directory_is_closed_and_so_are_those_it_needed(tmp_path: Path) -> None:
    outer = tmp_path / "var"
    outer.mkdir(mode=0o755)
    before = os.umask(0o022)
    try:
        for _ in range(2):
            assert secret_directory(outer / "state" / "redis" / "data").is_dir()
        write_durably(outer / "other" / "noise" / "key", [b"k"])
    finally:
        os.umask(before)
    made = ("state", "state/redis", "state/redis/data", "other", "other/noise")
    assert {f"{(outer / name).stat().st_mode & 0o777:o}" for name in made} == {"700"}
    assert outer.stat().st_mode & 0o777 == 0o755
    (outer / "file").touch()
    with pytest.raises(FileExistsError):
        secret_directory(outer / "file")


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_directory_is_for_its_owner_only_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = state_directory("state.dir", tmp_path / "above" / "state")
    finally:
        os.umask(before)
    assert (mode_of(made), mode_of(made.parent)) == (0o700, 0o700)


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o711, 0o707])
def test_a_directory_that_others_may_enter_is_closed_to_them_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(mode)
    with caplog.at_level(logging.WARNING):
        state_directory("state.dir", state)
        state_directory("state.dir", state)
    assert mode_of(state) == mode & 0o700
    [line] = caplog.messages
    assert line == (
        f"state.dir: others could enter {state} (mode {mode:o}), which holds secrets; its mode is "
        f"{mode & 0o700:o} now, but copies that they made before remain"
    )


def test_a_directory_that_cannot_be_closed_to_others_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may change every mode, so the test pretends that the system refuses."""

    def refuse(*_: object) -> None:
        raise PermissionError

    tmp_path.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(OperatorError, match=r"mode 755.*name a directory inside it"):
        state_directory("state.dir", tmp_path)


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for path in ("file", "file/state", "dangling"):
        for use in (state_directory, check_directory):
            with pytest.raises(
                OperatorError, match=r"^state\.dir: .* is not a directory; name another place"
            ):
                use("state.dir", tmp_path / path)
    check_directory("state.dir", tmp_path / "new" / "state")
    assert not (tmp_path / "new").exists()
