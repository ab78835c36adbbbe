"""Coverage of what people count: how often intervals of 95 % hold the recounted number, in seeded runs.

Run with ``python -m benchmarks.features_coverage``; results go to
``benchmarks/results/features_coverage.json``. Some four minutes. The runs are those of the tests in
``tests/stream_app/loops``, which make fewer of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scipy.stats import beta

from stream_app.loops import ingest
from tests.stream_app.loops import (
    test_count_users,
    test_groups_coverage,
    test_logs_coverage,
    test_sums_coverage,
    test_where_coverage,
)
from tests.stream_app.loops.test_count_users import ServiceNoise

RESULTS = Path(__file__).parent / "results" / "features_coverage.json"
RUNS = 200
FEATURES: dict[str, Callable[[Path], Counter[str]]] = {
    "where, causal": lambda folder: test_where_coverage.held_in(folder, "causal"),
    "where, anticipating": lambda folder: test_where_coverage.held_in(folder, "anticipating"),
    "key fields and groups": lambda folder: test_groups_coverage.held_in(folder, RUNS, ServiceNoise),
    "sums and means": lambda folder: test_sums_coverage.held_in(folder, RUNS),
    "users": lambda folder: test_count_users.held_in(folder, RUNS),
    "history then live": lambda folder: test_logs_coverage.held_in(folder, "files", RUNS, ServiceNoise),
    "events over HTTP": lambda folder: test_logs_coverage.held_in(folder, "spool", RUNS, ServiceNoise),
}


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
    ingest.READ_TIMEOUT_S = 0.0
    found = {}
    for feature, held_in in FEATURES.items():
        with TemporaryDirectory() as directory:
            found[feature] = rows_of(held_in(Path(directory)), RUNS)
        for row in found[feature]:
            print(feature, *(f"{name}={value}" for name, value in row.items()), flush=True)
    RESULTS.write_text(json.dumps({"runs": RUNS, "stated": 0.95, "features": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
