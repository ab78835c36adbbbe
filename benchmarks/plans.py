"""Checks every interval that random plans of the service state against the interval's exact law.

It is the check of ``tests/stream_app/config/test_plans_hold.py`` over more and longer plans, with another
seed each time. ``main`` prints each plan that has a wrong interval, with its seed, and then ends with status
1.
"""

from __future__ import annotations

import argparse
import time

from tests.stream_app.drawn_plans import drawn_plan, intervals, plan_text, shortfall


def main() -> int:
    """Check this many plans; return the exit status."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--plans", type=int, default=500)
    options.add_argument("--longest", type=int, default=200, help="bins of an epoch, at most")
    options.add_argument("--seed", type=int, default=int(time.time()), help="of the first plan")
    asked = options.parse_args()
    checked, wrong = 0, 0
    for seed in range(asked.seed, asked.seed + asked.plans):
        view = drawn_plan(seed, asked.longest)
        for stated in intervals(view, seed):
            line, checked = shortfall(stated), checked + 1
            if line is not None:
                wrong += 1
                print(f"seed {seed}: {plan_text(view.strategy)}\n  {line}", flush=True)
    print(f"{checked} intervals of {asked.plans} plans from seed {asked.seed}: {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
