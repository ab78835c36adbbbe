"""Coverage of an approximate stream's intervals, over HTTP: how often they hold the truth, in seeded runs.

Run with ``python -m benchmarks.approximate_coverage``; results go to
``benchmarks/results/approximate_coverage.json``. Some two minutes on a busy machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.features_coverage import rows_of
from stream_app.loops import ingest
from tests.stream_app.loops.test_approximate_coverage import CONFIDENCE, FALSE_ALARM, coverage, least

RESULTS = Path(__file__).parent / "results" / "approximate_coverage.json"
RUNS = 200


def main() -> None:
    """Measure, print and store."""
    ingest.READ_TIMEOUT_S = 0.0
    with TemporaryDirectory() as directory:
        held = coverage(Path(directory), RUNS)
    rows = rows_of(held, RUNS)
    facts = {
        "runs": RUNS,
        "stated": CONFIDENCE,
        "least_that_a_test_accepts": least(RUNS),
        "false_alarms": FALSE_ALARM,
    }
    for row in rows:
        print(*(f"{name}={value}" for name, value in row.items()))
    RESULTS.write_text(json.dumps(facts | {"questions": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
