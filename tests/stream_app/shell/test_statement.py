"""``stream-app privacy`` and ``statement`` say what a configuration promises, and from when on."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from click.testing import CliRunner

from stream_app.config import load
from stream_app.shell.commands import main
from stream_app.shell.planning.promises import promises

CONFIG = """
streams:
  visits:
    source: {file: visits.ndjson}
    time: {field: at, format: iso8601, bin: 1h, grace: 5m, epoch: 30d}
    privacy: {epsilon: 0.5, unit: {user: name, max_events: 5}%s}
  clicks:
    source: {file: clicks.ndjson}
    time: {field: at, format: iso8601, bin: 1h, grace: 5m, epoch: 30d}
    privacy: {epsilon: 1}
"""


def stated(tmp_path: Path, stream: str, more: str = "") -> tuple[int, str]:
    config = tmp_path / "app.yaml"
    config.write_text(CONFIG % more)
    shown = CliRunner().invoke(main, ["statement", stream, "--config", str(config)])
    return shown.exit_code, shown.output


def test_page_of_users_says_unit_promise_and_cost_over_time(tmp_path: Path) -> None:
    code, text = stated(tmp_path, "visits", ", total: {epsilon: 6, delta: 1e-6}")
    assert code == 0
    assert text.startswith("# What visits publishes, and whom it protects\n")
    assert "- Whether or not all events of any one user of" in text
    assert "at most a factor e^0.5 (about 1.65)." in text
    assert "| 12 | epsilon 6 | (epsilon" in text
    assert (
        "No epoch of this stream opens that would exceed the total of (epsilon 6, delta 1e-6) for the source."
        in text
    )
    assert "## Not protected" in text
    assert "below" not in text
    assert "None" not in text


def test_page_of_events_says_that_persons_are_protected_more_weakly(tmp_path: Path) -> None:
    code, text = stated(tmp_path, "clicks")
    assert code == 0
    power = "the factor is 2.72 to the power k (10 events: about 22,000), so only single events are hidden"
    assert f"A person with k events: {power} at this epsilon." in text
    assert "Someone who thought 50:50 could come to think at most about 73:27." in text
    assert "No total limits how many epochs may follow." in text


def test_the_page_of_a_stream_with_a_title_names_no_file(tmp_path: Path) -> None:
    config = tmp_path / "app.yaml"
    config.write_text(CONFIG.replace("  clicks:", '  clicks:\n    title: "Shop"') % "")
    text = CliRunner().invoke(main, ["statement", "clicks", "--config", str(config)]).output
    assert text.startswith("# What Shop publishes")
    assert "any one event of the log exists" in text
    assert "ndjson" not in text
    assert "file:visits.ndjson" in stated(tmp_path, "visits")[1]


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
