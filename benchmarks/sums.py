"""Speed of counting with a sum beside counting without one: decoding records, and adding to their cells.

Run with ``python -m benchmarks.sums``; results go to ``benchmarks/results/sums.json``. Both streams have the
same keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.counted import RECORDS, compare
from stream_app.core.counting.cells import Amounts, Cells
from stream_app.core.counting.keys import KeyList

KEYS = KeyList("country", tuple(f"C{number}" for number in range(199)), True, False)
AMOUNTS = Amounts("cart.amount", Fraction(0), Fraction(500), Fraction(1, 100))


def sales() -> Iterator[dict[str, Any]]:
    """Yield records of a shop; some amounts are above the range."""
    rng = np.random.default_rng(1)
    amounts, countries = rng.gamma(2.0, 60.0, RECORDS), rng.integers(0, 210, RECORDS)
    for number, (amount, country) in enumerate(zip(amounts.tolist(), countries.tolist(), strict=True)):
        yield {
            "at": number * 1_000_000,
            "country": f"C{country}",
            "cart": {"amount": round(amount, 2), "items": 1 + number % 5},
            "id": f"{number:032x}",
        }


def main() -> None:
    """Measure in turns, print the result and keep it."""
    compare("sums", sales(), {"without_sum": Cells(KEYS), "with_sum": Cells(KEYS, amounts=AMOUNTS)})


if __name__ == "__main__":
    main()
