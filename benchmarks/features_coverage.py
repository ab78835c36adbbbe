"""Coverage of what people count: how often intervals of 95 % hold the recounted number, in seeded runs.

Run with ``python -m benchmarks.features_coverage``; results go to
``benchmarks/results/features_coverage.json``. Some ten minutes. The runs are those of
``tests/world/test_coverage.py``, which makes fewer of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scipy.stats import beta

from tests.world.recounts import ServiceNoise
from tests.world.test_coverage import COVERED, rates

RESULTS = Path(__file__).parent / "results" / "features_coverage.json"
RUNS = 200


def rows_of(held: Mapping[str, int], runs: int) -> list[dict[str, Any]]:
    """Return the coverage of each question with its interval of 95 % (Clopper and Pearson)."""
    return [
        {
            "question": question,
            "held": number,
            "coverage": number / runs,
            "from": round(float(beta.ppf(0.025, number, runs - number + 1)), 4),
            "to": round(float(beta.ppf(0.975, number + 1, runs - number)), 4) if number < runs else 1.0,
        }
        for question, number in held.items()
    ]


def main() -> None:
    """Measure, print and store."""
    found = {}
    for feature in COVERED:
        held, _ = rates(feature, RUNS, ServiceNoise)
        found[feature] = rows_of(held, RUNS)
        for row in found[feature]:
            print(feature, *(f"{name}={value}" for name, value in row.items()), flush=True)
    RESULTS.write_text(json.dumps({"runs": RUNS, "stated": 0.95, "features": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
