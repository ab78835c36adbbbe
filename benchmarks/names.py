"""How often a key that one person brought is named, and what one person can change, in ten million runs.

Both are repeated with half of either noise, which must show. ``tests/dphist/found_shares.py`` counts.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from benchmarks.machine import commit, machine
from tests.dphist.found_shares import BAR, DECISION, RARE, Runs

RESULTS = Path(__file__).parent / "results" / "names.json"
RUNS = 10_000_000
DECISIONS = 4
NOISES = {"as it is": b"", "half of r": BAR, "half of z": DECISION}


def main() -> None:
    """Count the runs and keep the bounds."""
    runs, started = Runs(RUNS, DECISIONS), time.process_time()
    told: dict[str, object] = {"runs": RUNS, "decisions": DECISIONS, "epsilon": 1, "stated": runs.stated}
    for name, purpose in NOISES.items():
        told[name] = runs.shares(purpose)._asdict()
        print(name, told[name], flush=True)
    told |= {
        "each bound is wrong with probability": RARE,
        "processor_seconds": round(time.process_time() - started),
        "commit": commit(),
        "machine": machine(),
    }
    RESULTS.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
