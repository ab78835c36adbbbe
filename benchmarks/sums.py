"""Speed of counting with a sum beside counting without one: decoding records, and adding to their cells.

Run with ``python -m benchmarks.sums``; results go to ``benchmarks/results/sums.json``. Both streams read one
file in turns and have the same keys. Seconds are processor time.
"""

from __future__ import annotations

import json
import platform
import statistics
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.counted import seconds
from stream_app.core.counting.cells import Amounts, Cells, KeyList

RESULTS = Path(__file__).parent / "results" / "sums.json"
RECORDS, ROUNDS = 300_000, 9
KEYS = KeyList("country", tuple(f"C{number}" for number in range(199)), True, False)
AMOUNTS = Amounts("cart.amount", Fraction(0), Fraction(500), Fraction(1, 100))


def write(file: Path) -> None:
    """Write records of a shop; some amounts are above the range."""
    rng = np.random.default_rng(1)
    amounts, countries = rng.gamma(2.0, 60.0, RECORDS), rng.integers(0, 210, RECORDS)
    with file.open("w") as lines:
        for number, (amount, country) in enumerate(zip(amounts.tolist(), countries.tolist(), strict=True)):
            record = {
                "at": number * 1_000_000,
                "country": f"C{country}",
                "cart": {"amount": round(amount, 2), "items": 1 + number % 5},
                "id": f"{number:032x}",
            }
            lines.write(json.dumps(record) + "\n")


def main() -> None:
    """Measure in turns, print the result and write it."""
    counts, sums = Cells(KEYS), Cells(KEYS, amounts=AMOUNTS)
    with TemporaryDirectory() as directory:
        file = Path(directory) / "events.ndjson"
        write(file)
        spent = [(seconds(file, counts), seconds(file, sums)) for _ in range(ROUNDS)]
    without, beside = (RECORDS / statistics.median(column) for column in zip(*spent, strict=True))
    found = {
        "without_sum_events_per_s": round(without),
        "with_sum_events_per_s": round(beside),
        "ratio": round(statistics.median(first / second for first, second in spent), 3),
        "machine": platform.platform(),
    }
    print(json.dumps(found, indent=2))
    RESULTS.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
