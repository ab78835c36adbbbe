"""A visitor's day lies in one epoch also where a stream's settings change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stream_app.config import StreamSettings, load_text
from stream_app.config.plans import planned
from stream_app.core.instants import format_instant
from stream_app.core.ledger import by_visitors_days, entry_of, own_unit, statement
from stream_app.core.records import EpochRecord, StreamState
from stream_app.core.segments.edges import common_edge, ends_ahead
from stream_app.core.visits import DAY_US

HOUR_US = DAY_US // 24
FIRST_US = 20_454 * DAY_US  # 2026-01-01


def settings(bin: str = "1h", epoch: str = "2d", epsilon: str = "1", unit: str = "") -> StreamSettings:
    """Return a stream over an access log. Args: unit, the user; empty for visitors."""
    text = f"""
streams:
  web:
    source: {{file: access.log, format: combined}}
    time: {{bin: {bin}, epoch: {epoch}, grace: 5m, first: 2026-01-01T00:00:00Z}}
    privacy: {{epsilon: {epsilon}, unit: {unit or "{max_events: 3}"}}}
    tree: {{release: causal}}
"""
    return load_text(text, Path("app.yaml"), {}).streams[0]


@pytest.mark.parametrize(
    ("wanted", "first_hour", "hours", "stopped", "edge"),
    [
        ({"epsilon": "2"}, 0, 48, False, "2026-01-03T00:00:00Z"),
        ({"bin": "1d"}, 0, 48, False, "2026-01-03T00:00:00Z"),
        # Bins of 7 hours begin at a midnight once a week.
        ({"bin": "7h", "epoch": "7d"}, 0, 48, False, "2026-01-08T00:00:00Z"),
        # A total stopped the stream, or an older version began its epoch at 14:00.
        ({"epsilon": "2"}, 0, 48, True, "2026-01-02T00:00:00Z"),
        ({"epsilon": "2"}, -10, 48, False, "2026-01-02T00:00:00Z"),
    ],
)
def test_settings_of_visitors_change_at_a_midnight(
    wanted: dict[str, str], first_hour: int, hours: int, stopped: bool, edge: str
) -> None:
    found = edge_us(wanted, first_hour, hours, stopped)
    assert found is not None
    assert format_instant(found) == edge


def test_settings_of_events_change_at_any_shared_bin() -> None:
    found = edge_us({"bin": "7h", "epoch": "7d", "unit": "event"}, 0, 48, False, unit="event")
    assert found is not None
    assert format_instant(found) == "2026-01-02T18:00:00Z"


@pytest.mark.parametrize(("log", "epsilon"), [(None, 1), ("file:access.log", 2)])
def test_epochs_of_visitors_add_up_only_in_a_group(log: str | None, epsilon: int) -> None:
    """They are stored with the unit user; other logs of a group may name people for more than a day."""
    declared = settings().declared
    first = FIRST_US // HOUR_US
    records = (EpochRecord(epoch, first + 48 * epoch, 48, 1, "h") for epoch in range(2))
    stored = [replace(entry_of(declared, "web", record), log=log) for record in records]
    assert {entry.per for entry in stored} == {None}
    told = statement(declared.source.name, by_visitors_days(declared, stored))
    assert told.epsilon == epsilon
    assert (own_unit(declared), told.unit) == ("user per 1d", "user" if log else "user per 1d")
    assert ("in one epoch of 2 UTC days together cost epsilon 2" in told.whole_user_line) is (log is None)


def edge_us(wanted: dict[str, str], first_hour: int, hours: int, stopped: bool, unit: str = "") -> int | None:
    """Return where wanted settings begin. Args: first_hour, hours, of the epoch that runs at 05:20."""
    running = planned(settings(unit=unit))
    first_bin = FIRST_US // HOUR_US + first_hour
    state = StreamState(
        strategy=running.to_json(),
        epoch=EpochRecord(0, first_bin, hours, 1, running.hash),
        seq=0,
        head="",
        released_bin=first_bin,
        sealed_bin=first_bin,
        counter=b"",
        stopped=stopped,
    )
    now_us = FIRST_US + 5 * HOUR_US + HOUR_US // 3
    return common_edge(running, settings(**wanted).declared, ends_ahead(running, state, now_us))
