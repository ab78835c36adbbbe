"""What all tests of the service share."""

from __future__ import annotations

import pytest

from stream_app.shell import present_step


@pytest.fixture(autouse=True)
def quick_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no command say that it takes long: on a slow machine its output would have more lines."""
    monkeypatch.setattr(present_step, "AFTER_S", 3_600.0)


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no width of a terminal reach the commands: whoever runs the tests may have exported one."""
    monkeypatch.delenv("COLUMNS", raising=False)
