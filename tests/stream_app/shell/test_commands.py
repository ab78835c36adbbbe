"""The command line starts quickly, lists each command, and names a wrong option before anything is read."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from stream_app.shell.commands import ELSEWHERE, command_of, main


@pytest.mark.parametrize("name", ELSEWHERE)
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


def test_a_removed_command_names_what_does_its_work() -> None:
    refused = CliRunner().invoke(main, ["import", "clicks.ndjson"])
    assert refused.exit_code == 2
    assert "import was removed; to move released data, restore a copy of Redis, or run" in refused.output


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


CONFIGURATION = """
streams:
  clicks:
    source: {file: clicks.ndjson}
    time: {field: at, format: iso8601, bin: 1h, grace: 1m, epoch: 10d}
    privacy: {epsilon: 1}
alerts: {rules: {busy: {when: count(clicks) > 10}}}
"""


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("run --seconds nan", "'--seconds': nan is not a finite number"),
        ("demo --seconds inf", "'--seconds': inf is not a finite number"),
        ("plan --target-rmse -1", "'--target-rmse': -1"),
        ("plan --target-rmse 0", "'--target-rmse': 0"),
        ("plan --target-rmse nan", "'--target-rmse': nan"),
        ("plan --stream others", "--stream others: not in this configuration; it has clicks"),
        ("statement others", "--stream others: not in this configuration; it has clicks"),
        ("plan-alert --events nan", "'--events': nan"),
        ("plan-alert --events -3", "'--events': -3"),
        ("plan-alert --rule quiet", "--rule quiet: is not in this configuration; it has busy"),
        ("query clicks --quantile 7", "'--quantile': 7"),
        ("query clicks --url nonsense", "nonsense/: is not the address of a service"),
        ("produce clicks.ndjson --topic t --as-live 2", "--as-live and --time-field need one another"),
        ("produce clicks.ndjson --topic t --time-field at", "--as-live and --time-field need one another"),
        ("demo --speed warp", '--speed "warp": must be max, a factor such as 60'),
        ("demo --kafka --speed max", '--speed "max": is no pace for live events'),
        ("demo --kafka --speed warp", '--speed "warp": must be max, a factor such as 60'),
        (
            "replay gone.ndjson --field at --from 1970-01-01T00:00:00Z --to 1970-01-02T00:00:00Z",
            "FILE: gone.ndjson is not there; create it or correct the path",
        ),
    ],
)
def test_a_wrong_option_is_named(tmp_path, monkeypatch, command, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stream-app.yaml").write_text(CONFIGURATION)
    (tmp_path / "clicks.ndjson").touch()
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code == 2
    assert said in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clicks.ndjson", "stream-app.yaml"]


# Each of them takes a tenth of a second of processor time or more, in each process of the service.
NOT_AT_THE_START = ("scipy", "opendp", "pandas", "polars", "pyarrow", "matplotlib", "faust", "kafka.admin")
PROCESSES = (
    *("stream_app.shell.commands", "stream_app.wiring.workers", "stream_app.wiring.public"),
    *("stream_app.wiring.receiving", "stream_app.api.app", "stream_app.api.admission.long_questions_process"),
)
OF_OTHER_COMMANDS = ("httpx", "stream_app.client", "stream_app.shell.alerts")
PROGRAM = f"""
import importlib, sys
import {PROCESSES[0]}
print([name for name in {OF_OTHER_COMMANDS} if name in sys.modules])
for module in {PROCESSES}:
    importlib.import_module(module)
    print(module, [name for name in {NOT_AT_THE_START} if name in sys.modules])
"""


def test_a_process_starts_without_libraries_that_it_may_never_need() -> None:
    """One process loads what all of them load, because each start takes most of a second."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["[]", *(f"{module} []" for module in PROCESSES)]
