"""What a stream's settings are planned into."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stream_app.config import load
from stream_app.plans import planned
from stream_app.ports import OperatorError

(FLIGHTS,) = load(Path(__file__).parents[2] / "examples" / "flights.yaml", {}).streams


def test_the_plan_spends_no_more_than_epsilon_and_covers_the_epoch():
    design = planned(FLIGHTS).design
    assert design.horizon == 8_760 <= design.shape.capacity
    assert sum(design.level_epsilons) <= 1


def test_a_tree_that_does_not_hold_the_epoch_is_refused_by_its_key():
    small = replace(FLIGHTS, tree=replace(FLIGHTS.tree, branching=(24, 364)))
    with pytest.raises(OperatorError, match=r"streams\.departures\.tree: "):
        planned(small)
