"""Every benchmark runs to its end, with little work: what nothing runs breaks unnoticed.

    pytest tests/small_benchmarks.py

It is not among the tests that ``make test`` finds, because it takes minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[1]

# What each benchmark's module is changed to before it runs.
SMALL: dict[str, dict[str, Any]] = {
    "accuracy": {"QUICK_RUNS": {"64": 4}, "arguments": ["--quick"]},
    "alerts": {"EVALUATIONS": 200},
    "api": {"SECONDS": 2, "WARM_UP_S": 0.5},
    "approximate": {
        "RUNS": {"10": 40, "16": 4, "20": 2},
        "COLUMNS": {"10": 40, "16": 4, "20": 2},
        "arguments": ["--quick"],
    },
    "attacks": {"arguments": ["0.4"]},
    "batch_names": {"USERS": 100_000, "KEYS": 10_000},
    "cdf": {"RUNS": 2, "EPSILONS": [1.0], "BINS": 32},
    "clients": {"RECORDS": 2_000, "ROUNDS": 1},
    "consistency": {"RUNS": {"720": 2}},
    "coverage": {"QUICK_RUNS": 600, "arguments": ["--quick"]},
    "cuts": {"arguments": ["2"]},
    "delays": {"RUNS": 2, "RUNS_AT_ONCE": 2},
    "engines": {"WORKERS": [1, 2], "ROUNDS": 1, "WAITING": 60_000, "FEW": 1_000, "BEHIND": 20_000},
    "epochs": {"CASES": [[24, 12]], "QUICK_STREAMS": 4, "arguments": ["--quick"]},
    "exact_answers": {"POINTS": 600, "RANGES": 20, "LONG": 65_536},
    "features_coverage": {"RUNS": 4},
    "generated": {"BINS": 2_048, "EVENTS": [10_000], "TRIALS": 2, "COMPARED": ["hb"]},
    "house": {},
    "ingest": {  # without the programs in Java and C, which are compiled from Debian's sources
        "NAMES": {name: name for name in ("worker", "consume", "getmany", "confluent", "faust_agent")},
        "arguments": ["--quick", "--rounds", "1", "--events", "100000", "--part", "contenders"],
    },
    "keys_of_users": {"ROUNDS": 1},
    "long": {"EPOCH_BINS": 4_096, "BINS": 500, "QUESTIONS": 10},
    "many": {"arguments": ["--streams", "2", "--seconds", "5", "--bin", "2"]},
    "many_keys": {"EVENTS": 500, "arguments": ["--keys", "20"]},
    "mechanisms": {"MEASURED": ["identity", "dawa", "greedy_h", "structure_first"]},
    "names": {"RUNS": 20_000},
    "noise": {"DRAWS": 2_000, "DRAWS_OPENDP": 100, "ROUNDS": 1},
    "page": {"BINS": 200, "FEW": 50, "TIMES": 1},
    "plans": {"arguments": ["--plans", "3", "--longest", "12", "--seed", "1"]},
    "product": {"CLOSED": {"50": 1}, "ASKED_KEYS": 100, "ASKED_BINS": 12, "MONTH": 48, "ROUNDS": 2},
    "recordplay": {},
    "scale": {"arguments": ["--seconds", "1", "--first", "1", "--output", "FOLDER/scale.json"]},
    "soak": {"arguments": ["--folder", "FOLDER", "--seconds", "25"]},
    "sqlp": {"USERS": 200_000, "KEYS": 20_000, "arguments": ["--seeds", "1"]},
    "sqlp_topic": {"SHARE": 0.0005, "SECONDS": 5, "EPOCH_S": 120, "arguments": ["--of", "approximate"]},
    "strategies": {"BITS": [4]},
    "users": {"USERS": 1_000, "RECORDS": 2_000, "SLICE": 500, "ROUNDS": 1},
    "visible": {"WARM_UP_S": 2, "PROBES": 3, "arguments": ["--streams", "1", "--seconds", "12"]},
    "web_log": {"LINES": 20_000},
}
# What several of them share, or reads the code only.
SHARED = {"beside", "figures", "machine", "nonnegative", "published"}
CODE = """
import importlib, json, sys
from pathlib import Path
name, changes, results, *arguments = sys.argv[1:]
for part in ("audit_primitives", "metrics"):  # of a package that is on no index
    sys.modules[f"dp_recorder.auditing.{part}"] = importlib.import_module("tests.recorder")
module = importlib.import_module(name)
loaded = [one for path, one in sys.modules.items() if path.startswith("benchmarks.")]
for constant, value in json.loads(changes).items():
    holders = [one for one in loaded if hasattr(one, constant)]
    known = getattr(holders[0], constant)  # or the table above is wrong
    if isinstance(known, dict) and all(isinstance(key, int) for key in known):
        value = {int(key): one for key, one in value.items()}
    for holder in holders:
        setattr(holder, constant, value)
for one in loaded:
    if hasattr(one, "RESULTS"):
        one.RESULTS = Path(results) if one.RESULTS.suffix else Path(results).parent
    if hasattr(one, "PICTURE"):
        one.PICTURE = Path(results).with_name(one.PICTURE.name)
sys.argv = [name, *arguments]
sys.exit(module.main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SMALL))
def test_benchmark_runs_to_its_end(name: str, tmp_path: Path) -> None:
    changes = dict(SMALL[name])
    arguments = [one.replace("FOLDER", str(tmp_path)) for one in changes.pop("arguments", [])]
    results = tmp_path / "results.json"
    known = REPOSITORY / "benchmarks" / "results" / f"{name}.json"
    if known.is_file():  # some go on from what was measured before
        results.write_bytes(known.read_bytes())
    module = f"benchmarks.{name}" + (".__main__" if (REPOSITORY / "benchmarks" / name).is_dir() else "")
    command = [sys.executable, "-c", CODE, module, json.dumps(changes), results, *arguments]
    done = subprocess.run(
        list(map(str, command)),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "DPHIST_DATA"},
    )
    assert done.returncode == 0, done.stdout[-6_000:]
