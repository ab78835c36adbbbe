"""A state directory holds secrets: only its owner may read it, and the log says if others could."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from stream_app.durable import check_directory, state_directory
from stream_app.ports import OperatorError


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
