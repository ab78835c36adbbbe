"""Other people's programs, asked the same questions in an environment of their own.

dp-accounting (Google) composes the releases of some ledgers; dp-recorder (ObliviousAI) watches noise being
added. The environment is made on first use and kept in ``.audit-env``. Without a package index these checks
are not asked, and the report says so. dp-recorder is on no index: DP_RECORDER names a checkout of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path

from dphist.composition import Losses, epsilon_of
from stream_app.audit.report import Check

PART = "others"
ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".audit-env"
ACCOUNTING = "dp-accounting==0.6.0"
NEEDED = (ACCOUNTING, "pandas", "tqdm", "matplotlib", "seaborn", "graphviz", "scikit-learn", "rich")
SAME_AS_HERE = ("numpy", "scipy", "opendp", "msgspec")
INSTALL_S, RUN_S = 300, 300
# dp-accounting rounds upward on a grid of 1e-4: by less than this in all cases.
_ITS_ROUNDING = 1e-3


def other_programs() -> list[Check]:
    """Return a check for each question that another program answered, or could not be asked."""
    python, why = _environment()
    if python is None:
        return [
            Check(PART, name, "It agrees with what is stated", None, f"not run: {why}")
            for name in (ACCOUNTING, "dp-recorder")
        ]
    return [*_accounting(python), _recorder(python)]


def _environment() -> tuple[Path | None, str]:
    """Return the environment's Python, or why there is none."""
    python = ENVIRONMENT / "bin" / "python"
    wanted = " ".join([*NEEDED, *(f"{name}=={version(name)}" for name in SAME_AS_HERE)])
    note = ENVIRONMENT / "installed"
    if note.exists() and note.read_text() == wanted:
        return python, ""
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    try:
        done = _run([python, "-m", "pip", "install", "-q", "--retries", "1", *wanted.split()], INSTALL_S)
    except subprocess.TimeoutExpired:
        return None, f"the package index did not answer within {INSTALL_S} s"
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["pip failed"]
        return None, f"its packages cannot be installed ({said[-1]})"
    note.write_text(wanted)
    return python, ""


def _accounting(python: Path) -> list[Check]:
    """Compare the epsilons of dp-accounting with ours."""
    script = ROOT / "tests" / "dphist" / "composition" / "figures_of_dp_accounting.py"
    done = _run([python, script], RUN_S)
    if done.returncode:
        return [Check(PART, ACCOUNTING, "It answers", False, done.stderr.strip().splitlines()[-1])]
    return [_compared(name, case) for name, case in json.loads(done.stdout).items()]


def _compared(name: str, case: Mapping[str, object]) -> Check:
    losses = Losses()
    for kind, parts in ((Losses.of_pure, case["pure"]), (Losses.of_gaussian, case["gaussian"])):
        assert isinstance(parts, list)
        for size, times in parts:
            losses += kind(Fraction(size), times)
    delta, most = str(case["delta"]), case["at_most"]
    assert isinstance(most, float)
    stated = epsilon_of(losses, Fraction(delta))
    agrees = stated is not None and most - _ITS_ROUNDING <= stated <= most * 1.0001
    found = f"stated {float(stated or 0):.6g}, by dp-accounting at most {most:.6g}"
    return Check(PART, ACCOUNTING, f"{name}: its epsilon for delta {delta} is the stated one", agrees, found)


def _recorder(python: Path) -> Check:
    """Let dp-recorder record one log and replay its neighbour."""
    asked = "Re:cord-play finds no difference but counts within the declared sensitivity"
    checkout = os.environ.get("DP_RECORDER")
    if checkout is None:
        why = "not run: dp-recorder is on no package index; set DP_RECORDER to a checkout of it"
        return Check(PART, "dp-recorder", asked, None, why)
    path = os.pathsep.join([str(ROOT), str(Path(checkout) / "src")])
    done = _run([python, ROOT / "benchmarks" / "recordplay.py"], RUN_S, PYTHONPATH=path)
    # The package prints the shapes that it compares; a verdict has a colon.
    said = [line.strip() for line in done.stdout.splitlines() if ": " in line]
    said = said or done.stderr.strip().splitlines()[-1:]
    return Check(PART, "dp-recorder", asked, done.returncode == 0, "; ".join(said))


def _run(command: list[str | Path], limit_s: float, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=limit_s,
        env=os.environ | environment,
        check=False,
    )


if __name__ == "__main__":
    for check in other_programs():
        print(check.subject, check.passed, check.asked, check.found, sep=" | ")
    sys.exit(0)
