"""A wrong option is refused, with its name, before the command reads or writes anything."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from stream_app.shell.commands import main

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
        ("plan --target-rmse nan", "'--target-rmse': nan"),
        ("plan --stream others", "--stream others: not in this configuration; it has clicks"),
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
