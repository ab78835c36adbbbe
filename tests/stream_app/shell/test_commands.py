"""The command line starts without the modules of commands that are not used."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from stream_app.shell.commands import _ELSEWHERE, command_of, main
from tests.patience import PATIENCE_S


@pytest.mark.slow
def test_commands_start_without_what_other_commands_need() -> None:
    others = ["httpx", "stream_app.client", "stream_app.shell.alerts"]
    asked = f"import sys, stream_app.shell.commands; print([one for one in {others} if one in sys.modules])"
    command = [sys.executable, "-c", asked]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
        == "[]\n"
    )


@pytest.mark.parametrize("name", _ELSEWHERE)
def test_command_of_another_module_is_listed_with_its_own_help_and_found(name: str) -> None:
    found = command_of(name)
    assert isinstance(found, click.Command)
    assert main.commands[name].get_short_help_str(500) == found.get_short_help_str(500)
    shown = CliRunner().invoke(main, [name, "--help"])
    assert shown.exit_code == 0
    assert all(option in shown.output for parameter in found.params for option in parameter.opts[:1])


def test_unknown_command_is_refused() -> None:
    refused = CliRunner().invoke(main, ["no-such-command"])
    assert refused.exit_code == 2
    assert "No such command 'no-such-command'" in refused.output


def test_help_lists_each_command_once_and_cuts_no_text() -> None:
    shown = CliRunner().invoke(main, ["--help"], env={"COLUMNS": "80"}).output
    commands = shown[shown.index("Begin:") : shown.index("Exit status:")]
    listed = [line.split()[0] for line in commands.splitlines() if line[:2] == "  " and line.strip()]
    assert sorted(listed) == sorted(main.commands)
    assert "..." not in commands


@pytest.mark.parametrize("options", [["--series", "window"], ["--series", "bin", "--window", "3"]])
def test_query_refuses_a_window_by_the_name_of_its_option(options: list[str]) -> None:
    refused = CliRunner().invoke(main, ["query", "clicks", *options])
    said = "stream-app: --window: say how many bins with --series window, and leave it out otherwise\n"
    assert (refused.exit_code, refused.output) == (2, said)
