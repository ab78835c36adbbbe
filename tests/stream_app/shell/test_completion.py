"""Real shells complete commands, options and names of streams, with the Tab key."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from stream_app.shell.commands import main
from tests.services import required, shell
from tests.terminal import CTRL_C, in_terminal

TAB = "\t"
PROMPT, READY = "say> ", "ready-to-complete"
STREAMS = "streams: {departures: {}, delays-2026: {}}"
# How each shell starts without anybody's files, and what it is told first.
STARTS = {
    "bash": (["--norc", "--noprofile", "-i"], 'eval "$(stream-app completion bash)"'),
    "zsh": (["-f", "-i"], 'autoload -U compinit; compinit -u -D; eval "$(stream-app completion zsh)"'),
    "fish": (
        ["--no-config", "-i"],
        f"function fish_prompt; echo -n '{PROMPT}'; end; stream-app completion fish | source",
    ),
}


COMPLETED = [("watch dep", "artures"), ("plan --targ", "et-rmse")]


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTS)
def test_shell_completes_commands_options_and_streams(name: str, tmp_path: Path) -> None:
    (tmp_path / "stream-app.yaml").write_text(STREAMS)
    program = required(lambda: shell(name), name)
    options, begin = STARTS[name]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(tmp_path), "PS1": PROMPT}
    with in_terminal([program, *options], tmp_path, environment) as terminal:
        terminal.type(f"{begin}; echo {READY[:5]}''{READY[5:]}\r")
        terminal.await_text(READY)
        for typed, completed in COMPLETED if name == "bash" else COMPLETED[:1]:
            terminal.type(f"stream-app {typed}{TAB}")
            terminal.await_text(completed)
            terminal.type(CTRL_C)
            terminal.await_text(PROMPT)


def test_every_command_can_be_completed_because_the_shell_asks_the_program() -> None:
    from click.shell_completion import ShellComplete

    asked = ShellComplete(main, {}, "stream-app", "_STREAM_APP_COMPLETE")
    assert {item.value for item in asked.get_completions([], "")} == set(main.commands)
