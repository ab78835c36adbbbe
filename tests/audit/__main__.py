"""``make audit``: run one stream of each kind, audit all of them, and write the report.

    python -m tests.audit [DIRECTORY]

The report is audit-report.json in the directory; the site makes a page of it. Its last part runs the audit's
own tests: faults that are built in on purpose, each of which must be noticed.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from stream_app.audit.examination import Depth, examine
from stream_app.audit.report import Check, draw, failed, in_json
from stream_app.config import load_text
from stream_app.wiring.storage import new_ledger
from stream_app.wiring.workers import run_worker
from tests.audit.others import other_programs
from tests.ending import end_all_with_this_run

COMMAND = "make audit"
DEPTH = Depth(bins=30, seed=1)
EVENTS, USERS, DAYS = 4_000, 60, 4
HERE = Path(__file__).parent


def write_events(file: Path) -> None:
    """Write the made-up events that the streams count."""
    rng = random.Random(1)
    first = datetime(2024, 1, 1, tzinfo=UTC)
    with file.open("w", encoding="utf-8") as lines:
        for _ in range(EVENTS):
            at = first + timedelta(seconds=rng.randrange(DAYS * 86_400))
            event = {
                "at": at.isoformat().replace("+00:00", "Z"),
                "country": rng.choice(["AT", "CH", "DE", "FR"]),
                "who": {"id": f"u{rng.randrange(USERS)}"},
                "amount": round(rng.uniform(0, 120), 2),
            }
            lines.write(json.dumps(event) + "\n")


def noticed_faults() -> list[Check]:
    """Run the tests that build faults in, and return a check for each."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "tests/stream_app/audit"],
        capture_output=True,
        text=True,
        cwd=HERE.parent.parent,
        check=False,
    )
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR) \S*::test_(\S+)", run.stdout, flags=re.MULTILINE)
    return [
        Check("faults", name.replace("_", " "), "It is found", outcome == "PASSED", outcome.lower())
        for outcome, name in outcomes
        if re.search(r"noticed|found|refused|costs_twice", name)
    ]


def main() -> int:
    """Return 0 if no check failed."""
    report = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("audit")
    began = time.monotonic()
    with TemporaryDirectory(prefix="audited-") as name:
        directory = Path(name)
        write_events(directory / "events.ndjson")
        text = (HERE / "streams.yaml").read_text(encoding="utf-8")
        settings = load_text(text, directory / "streams.yaml", {})
        asyncio.run(new_ledger(settings))
        asyncio.run(run_worker(settings))
        checks = list(examine(settings, DEPTH, lambda line: print(line, flush=True)))
    print("independent programs", flush=True)
    checks += other_programs()
    print("the audit's own tests", flush=True)
    checks += noticed_faults()
    (report / "images").mkdir(parents=True, exist_ok=True)
    draw(checks, report / "images" / "audit.png")
    (report / "audit-report.json").write_text(in_json(checks, COMMAND), encoding="utf-8")
    for check in failed(checks):
        print(f"FAIL {check.part}, {check.subject}: {check.asked}: {check.found}")
    print(f"{len(checks)} checks, {len(failed(checks))} failed, {time.monotonic() - began:.0f} s; {report}")
    return 2 if failed(checks) else 0


if __name__ == "__main__":
    end_all_with_this_run()
    sys.exit(main())
