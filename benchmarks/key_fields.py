"""Speed of counting by two key fields beside one: decoding records, and finding their cells.

Run with ``python -m benchmarks.key_fields``; results go to ``benchmarks/results/key_fields.json``. Both
streams have the same number of cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.counted import RECORDS, compare
from stream_app.core.counting.cells import Cells
from stream_app.core.counting.keys import KeyField, KeyList

COUNTRIES = tuple(f"C{number}" for number in range(39))
DEVICES = ("mobile", "desktop", "tablet", "tv")
ONE = KeyList("page", tuple(f"P{number}" for number in range(199)), True, False)
TWO = KeyList(fields=(KeyField("country", COUNTRIES, True), KeyField("device", DEVICES, True)), total=False)


def visits() -> Iterator[dict[str, Any]]:
    """Yield records of a web page: some values are on no list."""
    rng = np.random.default_rng(1)
    for number in range(RECORDS):
        page, country, device = rng.integers(0, 210), rng.integers(0, 42), rng.integers(0, 5)
        yield {
            "at": number * 1_000_000,
            "page": f"P{page}",
            "country": f"C{country}",
            "device": (*DEVICES, "watch")[device],
            "id": f"{number:032x}",
        }


def main() -> None:
    """Measure in turns, print the result and keep it."""
    compare("key_fields", visits(), {"one_field": Cells(ONE), "two_fields": Cells(TWO)})


if __name__ == "__main__":
    main()
