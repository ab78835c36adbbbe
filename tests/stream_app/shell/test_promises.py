"""``stream-app privacy`` says what a configuration promises, and from when on."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from click.testing import CliRunner

from stream_app.config import load
from stream_app.shell.commands import main
from stream_app.shell.planning.promises import promises

LIVE = """
streams:
  clicks:
    source: {file: clicks.ndjson}
    time: {field: at, format: iso8601, bin: 1d, timezone: Europe/Berlin, grace: 5m, epoch: 30d%s}
    privacy: {epsilon: 0.5}
"""
NOW_US = int(datetime(2026, 3, 10, 12, tzinfo=UTC).timestamp()) * 1_000_000


def said(tmp_path: Path, first: str = "") -> str:
    config = tmp_path / "app.yaml"
    config.write_text(LIVE % first)
    return "\n".join(promises(load(config), NOW_US))


def test_live_stream_spends_epsilon_from_now_on(tmp_path: Path) -> None:
    told = said(tmp_path)
    # The day starts at Berlin's midnight, and a live stream has no end.
    assert "clicks spends epsilon 0.5 on events from 2026-03-09T23:00:00Z on (one epoch)" in told
    assert "It counts from its first start on." in told
    shown = CliRunner().invoke(main, ["privacy", "--config", str(tmp_path / "app.yaml")])
    assert shown.exit_code == 0
    assert shown.output.splitlines()[0] == told.splitlines()[0]
    assert "1970" not in shown.output


def test_promise_begins_at_the_declared_first_bin(tmp_path: Path) -> None:
    told = said(tmp_path, ', first: "2026-01-31T23:00:00Z"')
    assert "from 2026-01-31T23:00:00Z on" in told
