"""A command that takes long says on a terminal what it does; nothing without one, or if it is quick."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.ports import free_port
from stream_app.shell import present_step as module
from stream_app.shell.checks import commands as checking
from stream_app.shell.commands import main
from stream_app.shell.pace import Behind, ReplayPace, ReplayWatch
from stream_app.shell.planning import commands, shown
from stream_app.shell.present_step import Step, working
from stream_app.shell.progress import StreamProgress
from stream_app.shell.replay import replay_settings
from tests.stream_app.shell.test_replay import OPTIONS
from tests.terminal import in_terminal

CONFIGURATION = """
redis: {{url: "embedded:./redis"}}
api: {{port: {port}}}
ledger: {{file: ledger.ndjson}}
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: s, bin: 1m, grace: 5s, epoch: 1h}}
    privacy: {{epsilon: 1}}
"""


def test_a_quick_command_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with working("planning"):
        pass
    assert capfd.readouterr() == ("", "")


def test_a_long_command_says_nothing_without_a_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AFTER_S", 0.0)
    with working("planning") as step:
        step("asking Redis")
        assert not any(thread.name == "working" for thread in threading.enumerate())
    assert capfd.readouterr() == ("", "")


PROGRAM = """
from stream_app.shell import present_step
present_step.AFTER_S = 0.01
with present_step.working("planning") as step:
    input()
    step("asking Redis")
    input()
print("done")
"""


def test_a_long_command_says_each_step_on_a_terminal_and_clears_it(tmp_path: Path) -> None:
    with in_terminal([sys.executable, "-c", PROGRAM], tmp_path) as terminal:
        terminal.answer("planning (0 s so far)")
        terminal.answer("asking Redis (")
        terminal.await_text("\x1b[2K")  # the line is erased
        assert terminal.status() == 0
        assert terminal.text.endswith("done\n")


@pytest.mark.parametrize(
    ("words", "doing"),
    [
        (["plan"], "planning"),
        (["plan", "--target-rmse", "50"], "searching for the smallest epsilon"),
        (["privacy"], "planning every stream"),
        (["check-config"], "checking streams"),
        (["doctor"], "checking streams.clicks.source.file"),
        (["new-ledger"], "creating the ledger"),
    ],
)
def test_commands_that_may_take_long_say_what_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], doing: str
) -> None:
    done: list[str] = []

    @contextmanager
    def recorded(doing: str) -> Iterator[Step]:
        done.append(doing)
        yield done.append

    for place in (module, checking, commands, shown):
        monkeypatch.setattr(place, "working", recorded)
    (tmp_path / "clicks.ndjson").write_text(json.dumps({"at": 1_700_000_000}) + "\n")
    (tmp_path / "app.yaml").write_text(CONFIGURATION.format(port=free_port()))
    if words != ["new-ledger"]:
        CliRunner().invoke(main, ["new-ledger", "--config", str(tmp_path / "app.yaml")])
        done.clear()
    result = CliRunner().invoke(main, [*words, "--config", str(tmp_path / "app.yaml")])
    assert result.exit_code == 0, result.output
    assert doing in done


class Clock:
    """A clock in seconds that the test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_replay_that_falls_behind_its_speed_says_so() -> None:
    said: list[str] = []
    clock = Clock()
    behind = Behind(said.append, clock, who="clicks", why="because this machine is busy; ask for less")
    pace = ReplayPace(behind, speed=3_600.0, bin_us=3_600_000_000, slack_s=0.5)

    def released(hours: float, now_s: float) -> None:
        clock.now_s = now_s
        pace.released(int(hours * 3_600e6), now_s)

    for second in range(10):
        released(max(second - 1, 0), second)  # a bin is seen up to its own length later
    assert said == []
    released(9, 12.4)  # 3.4 s late, of which 1.5 s are due to bins and public instants
    assert said == []
    released(9, 15)
    assert said == ["clicks: 4 s behind its speed of 1h/s, because this machine is busy; ask for less"]
    released(15, 16)
    assert said[1:] == ["clicks: keeps its speed of 1h/s again"]


@pytest.mark.parametrize("speed", ["max", "60"])
def test_a_replay_that_begins_slowly_says_what_it_does(tmp_path: Path, speed: str) -> None:
    settings = replay_settings(tmp_path / "events.csv", **(OPTIONS | {"speed": speed}))
    said: list[str] = []
    clock = Clock()
    watch = ReplayWatch(settings, said.append, clock)
    say: Callable[[int | None], None] = lambda until_us: watch.seen(  # noqa: E731
        [StreamProgress("clicks", 0, 48, until_us=until_us)]
    )
    say(None)
    assert said == []
    for clock.now_s in (2.5, 60.0):
        say(None)
    assert said == ["clicks: reading events.csv to replay it in the order of time"]
    for clock.now_s in (100.0, 5_000.0):
        say(0)
    assert len(said) == (1 if speed == "max" else 2)
