"""A stream's strategy is planned once and never silently another."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from stream_app.config import load
from stream_app.core.strategy import Strategy
from stream_app.plans import kept, planned
from stream_app.ports import OperatorError

(FLIGHTS,) = load(Path(__file__).parents[2] / "examples" / "flights.yaml", {}).streams


def test_the_plan_spends_no_more_than_epsilon_and_covers_the_epoch():
    design = planned(FLIGHTS).design
    assert design.horizon == 8_760 <= design.shape.capacity
    assert sum(design.level_epsilons) <= 1


def test_a_restart_goes_on_with_the_stored_tree_not_with_a_newer_plan():
    older = replace(FLIGHTS, tree=replace(FLIGHTS.tree, branching=(24, 365)))
    stored = Strategy("departures", FLIGHTS.source.identity, planned(FLIGHTS).declared, planned(older).design)
    assert kept(FLIGHTS, stored.to_json()) == stored != planned(FLIGHTS)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (replace(FLIGHTS, late="drop"), "late is 'drop'"),
        (
            replace(FLIGHTS, privacy=replace(FLIGHTS.privacy, epsilon=Fraction(1, 2))),
            "privacy.epsilon is '1/2'",
        ),
        (replace(FLIGHTS, time=replace(FLIGHTS.time, grace_us=1)), "time.grace_us is 1"),
        (replace(FLIGHTS, source=replace(FLIGHTS.source, identity="file:b")), "source is 'file:b'"),
    ],
)
def test_another_declaration_under_the_same_name_is_refused(changed, named):
    with pytest.raises(OperatorError, match="for its whole life; put it back, or give") as caught:
        kept(changed, planned(FLIGHTS).to_json())
    assert named in str(caught.value)


def test_a_tree_that_does_not_hold_the_epoch_is_refused_by_its_key():
    small = replace(FLIGHTS, tree=replace(FLIGHTS.tree, branching=(24, 364)))
    with pytest.raises(OperatorError, match=r"streams\.departures\.tree: "):
        planned(small)
