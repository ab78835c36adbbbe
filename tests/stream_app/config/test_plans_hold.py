"""Every stated interval holds at least as often as it says, for every plan that the service can make.

Plans are drawn at random: workloads, releases, horizons, epsilons, neighbours, units, keys, values, totals,
windows, levels over epochs, and shapes and shares set by hand. The test compares each answer's interval with
the exact law of the answer's noise (``plan_noise.py``, ``convolved.py``). It simulates nothing, so there are
no false alarms. ``make bench-accuracy`` draws many more and longer plans, with another seed each time.
"""

from __future__ import annotations

import pytest

from tests.stream_app.drawn_plans import drawn_plan, intervals, plan_text, shortfall

pytestmark = pytest.mark.slow

PLANS = range(7, 27)


@pytest.mark.parametrize("seed", PLANS)
def test_every_interval_of_a_plan_holds_as_often_as_it_says(seed: int) -> None:
    view = drawn_plan(seed)
    wrong = [line for interval in intervals(view, seed) if (line := shortfall(interval))]
    assert not wrong, f"{plan_text(view.strategy)}\n" + "\n".join(wrong)
