"""The demo's events: every row of the table, in order, with the same bytes every time."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections import Counter

import pytest

from stream_app.shell.flights import archive, write_flights


@pytest.mark.slow
def test_every_departure_becomes_one_event_at_its_scheduled_minute(tmp_path):
    file = tmp_path / "made" / "flights.ndjson"
    assert write_flights(file) == 336_776
    events = [json.loads(line) for line in file.read_text().splitlines()]
    with zipfile.ZipFile(archive()) as packed:
        rows = list(csv.DictReader(io.StringIO(packed.read("flights.csv").decode())))
    # The local minute and the UTC hour come from different columns; both must be in the event's time.
    expected = Counter(
        (row["time_hour"][:13], int(row["minute"]), row["carrier"], row["tailnum"]) for row in rows
    )
    made = Counter(
        (e["scheduled"][:13], int(e["scheduled"][14:16]), e["carrier"], e["tailnum"] or "NA") for e in events
    )
    assert made == expected
    times = [event["scheduled"] for event in events]
    assert times == sorted(times)
    assert "2013-01-01T05" <= times[0] <= times[-1] < "2014-01-01T05"
    assert [path.name for path in file.parent.iterdir()] == ["flights.ndjson"]
    assert file.parent.stat().st_mode & 0o077 == 0  # the folder is the state directory
