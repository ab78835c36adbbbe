"""Speed of counting by two key fields beside one: decoding records, and finding their cells.

Run with ``python -m benchmarks.key_fields``; results go to ``benchmarks/results/key_fields.json``. Both
streams read one file in turns, and have the same number of cells. Seconds are processor time.
"""

from __future__ import annotations

import json
import platform
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.counted import seconds
from stream_app.core.counting.cells import Cells, KeyField, KeyList

RESULTS = Path(__file__).parent / "results" / "key_fields.json"
RECORDS, ROUNDS = 300_000, 9
COUNTRIES = tuple(f"C{number}" for number in range(39))
DEVICES = ("mobile", "desktop", "tablet", "tv")
ONE = KeyList("page", tuple(f"P{number}" for number in range(199)), True, False)
TWO = KeyList(fields=(KeyField("country", COUNTRIES, True), KeyField("device", DEVICES, True)), total=False)


def write(file: Path) -> None:
    """Write records of a web page: some values are on no list."""
    rng = np.random.default_rng(1)
    with file.open("w") as lines:
        for number in range(RECORDS):
            page, country, device = rng.integers(0, 210), rng.integers(0, 42), rng.integers(0, 5)
            record = {
                "at": number * 1_000_000,
                "page": f"P{page}",
                "country": f"C{country}",
                "device": (*DEVICES, "watch")[device],
                "id": f"{number:032x}",
            }
            lines.write(json.dumps(record) + "\n")


def main() -> None:
    """Measure in turns, print the result and write it."""
    with TemporaryDirectory() as directory:
        file = Path(directory) / "events.ndjson"
        write(file)
        spent = [(seconds(file, Cells(ONE)), seconds(file, Cells(TWO))) for _ in range(ROUNDS)]
    one, two = (RECORDS / statistics.median(column) for column in zip(*spent, strict=True))
    found = {
        "one_field_events_per_s": round(one),
        "two_fields_events_per_s": round(two),
        "ratio": round(statistics.median(first / second for first, second in spent), 3),
        "machine": platform.platform(),
    }
    print(json.dumps(found, indent=2))
    RESULTS.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
