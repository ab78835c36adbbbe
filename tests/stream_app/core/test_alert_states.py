"""Pending, firing, resolved: exact values against transitions by hand, noisy values against the law."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.laws.law import WeightedNoise
from dphist.tree.estimate import Estimate
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.readings import Reading, margin_bounds, margins, readings
from stream_app.core.alerts.rules import QuietHours, Rule
from stream_app.core.alerts.states import Moment, State, evaluate, retire, watch_silence
from stream_app.core.answers.query import StreamView
from tests.models.memory import MemoryStore
from tests.stream_app.published import HOUR_US, Published

EXACT = "1000000000"


def rule(text: str, **options: Any) -> Rule:
    return Rule("busy", text, parse_condition(text), **options)


async def view_of(stream: Published) -> StreamView:
    reader = stream.store.reader()
    state = await reader.public_state(stream.name)
    assert state is not None
    view = StreamView(state.strategy)
    blocks = [(want, await reader.tile_rows(stream.name, *want, 1)) for want in view.missing(state)]
    view.extend(state, blocks)
    return view


def transitions(one: Rule, counts: Sequence[int]) -> list[tuple[int, str]]:
    """Release one bin with each of these exact counts; return (seq, kind) of each transition."""

    async def run() -> list[tuple[int, str]]:
        stream = Published(MemoryStore(), epsilon=EXACT)
        await stream.open()
        states: dict[str, State] = {}
        found = []
        for count in counts:
            await stream.close([count])
            outcome = evaluate([one], states, await view_of(stream), now_us=7)
            states |= {name: State.from_json(state.to_json()) for name, state in outcome.states.items()}
            found += [(told["seq"], told["kind"]) for told in outcome.transitions]
        return found

    return asyncio.run(run())


def test_a_sum_fires_at_once_and_ends_at_its_threshold() -> None:
    assert transitions(rule("sum(departures, 2h) > 10"), [9, 9, 0, 1, 5, 6, 5, 5]) == [
        (2, "firing"),
        (3, "resolved"),
        (6, "firing"),
        (8, "resolved"),
    ]


def test_pending_alert_starts_again_after_a_lapse() -> None:
    one = rule("sum(departures, 1h) > 5", for_us=2 * HOUR_US)
    assert transitions(one, [6, 6, 5, 6, 6, 6, 6, 0]) == [
        (1, "pending"),
        (3, "inactive"),
        (4, "pending"),
        (6, "firing"),
        (8, "resolved"),
    ]


def test_hysteresis_holds_until_the_clear_value() -> None:
    one = rule("sum(departures, 1h) >= 10", clear=4.0)
    assert transitions(one, [10, 9, 5, 4, 9, 12]) == [(1, "firing"), (4, "resolved"), (6, "firing")]
    falling = rule("rate(departures, 2h) < 2/h", clear=3.0)
    assert transitions(falling, [1, 1, 2, 3, 3, 3]) == [(2, "firing"), (5, "resolved")]


def test_a_rule_against_the_past_fires_once_its_past_is_known_and_clears_at_a_factor() -> None:
    one = rule("count(departures, 1h) < 0.5 * count(departures, 1h, 2h ago)", clear=0.9)
    assert transitions(one, [0, 0, 8, 8, 3, 5, 2, 3, 0, 4]) == [(5, "firing"), (10, "resolved")]


def test_a_rule_does_not_fire_in_quiet_hours_but_is_resolved_in_them() -> None:
    """The bins end at 10:00, 11:00, 12:00 and 13:00 in Tokyo."""
    night, noon = (QuietHours(start * 60, end * 60, "Asia/Tokyo") for start, end in ((20, 13), (11, 12)))
    one = rule("sum(departures, 1h) > 5", quiet=night)
    assert transitions(one, [6, 6, 6, 6]) == [(4, "firing")]
    at_noon = transitions(replace(one, quiet=noon), [6, 0, 6, 6])
    assert at_noon == [(1, "firing"), (2, "resolved"), (3, "firing")]
    assert one.fingerprint != rule(one.text).fingerprint


def test_running_count_can_be_a_rule_s_measure() -> None:
    assert transitions(rule("count(departures) > 10"), [5, 5, 1]) == [(3, "firing")]


def test_no_data_fires_after_silence_and_resolves_with_a_release() -> None:
    one = rule("no_data(departures, 2h)")
    moment = Moment("departures", 5, 10 * HOUR_US, 12 * HOUR_US, True)
    assert watch_silence([one], {}, moment).transitions == []
    late = Moment("departures", 5, 10 * HOUR_US, 12 * HOUR_US + 1, True)
    outcome = watch_silence([one], {}, late)
    assert [told["kind"] for told in outcome.transitions] == ["firing"]
    assert watch_silence([one], outcome.states, late).transitions == []
    back = watch_silence([one], outcome.states, Moment("departures", 6, 12 * HOUR_US, 12 * HOUR_US, True))
    assert [told["kind"] for told in back.transitions] == ["resolved"]


def test_a_rule_that_is_gone_or_changed_is_resolved_once() -> None:
    old, new = rule("count(departures) > 10"), rule("count(departures) > 20")
    last = {"stream": "departures", "rule": "busy", "seq": 7, "at_us": 5, "private": True}
    firing = {"busy": State(old.fingerprint, "firing", 0, 0, last)}
    decided = {"departures": 9}
    assert retire([old], firing, decided, 6).transitions == []
    for rules in ([], [new]):
        outcome = retire(rules, firing, decided, 6)
        assert [(told["kind"], told["seq"]) for told in outcome.transitions] == [("resolved", 9)]
        assert retire(rules, outcome.states, decided, 6).transitions == []


async def test_same_decision_repeats_its_key_and_no_other_decision_has_it() -> None:
    stream = Published(MemoryStore(), epsilon=EXACT)
    await stream.open()
    await stream.close([9])
    view = await view_of(stream)
    keys = {
        evaluate([rule(text)], {}, view, now_us=now).transitions[0]["key"]
        for text in ("count(departures) > 5", "count(departures) > 6")
        for now in (1, 2)
    }
    assert len(keys) == 2


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.99])
async def test_a_margin_is_the_quantile_of_the_noise(confidence: float) -> None:
    """The margin is compared with P(Z > m) of one node, summed term by term."""

    stream = Published(MemoryStore(), branching=(64,))
    await stream.open()
    await stream.close([5, 5, 5])
    view = await view_of(stream)
    last = view.count(view.span._replace(start=view.span.stop - 1))
    [margin] = margins([last], confidence)
    scale = float(view.strategy.design.scales[-1])
    a = np.exp(-1.0 / scale)

    def beyond(m: float) -> float:  # P(Z > m) for a whole m: a^(m + 1) / (1 + a)
        return float(a ** (np.floor(m) + 1) / (1 + a))

    assert beyond(margin) <= 1 - confidence + 1e-9
    if confidence > 0.5:
        assert beyond(margin - 1) > 1 - confidence
    for distance in (-1.0, 0.0, margin - 0.25, margin, margin + 0.25, 2 * margin + 1, 40 * margin + 40):
        for comparison in (">", ">=", "<", "<="):
            away = distance if comparison[0] == ">" else -distance
            text = f"sum(departures, 1h) {comparison} {float(last.value) - away:.12f}"
            one = rule(text, confidence=confidence)
            [reading] = readings([one], view)
            assert reading is not None
            holds = reading.beyond >= margin if comparison[1:] else reading.beyond > margin
            assert reading.past(one) is (holds and reading.beyond >= 0), text


noise_groups = st.lists(
    st.tuples(st.floats(0.05, 2.0), st.integers(1, 40), st.floats(0.3, 200.0)), min_size=1, max_size=5
)


@given(noise_groups, st.floats(0.5, 0.9999), st.floats(0.0, 2.0))
def test_bounds_hold_the_margin(
    groups: list[tuple[float, int, float]], confidence: float, rounding: float
) -> None:
    law = WeightedNoise.of(groups)
    estimate = Estimate(0.0, law.variance, law, rounding)
    [exact], ([low], [high]) = margins([estimate], confidence), margin_bounds([estimate], confidence)
    assert low <= exact <= high
    if confidence > 0.6:
        assert high < 12 * estimate.stderr + rounding


def test_strict_comparison_needs_more_than_the_margin() -> None:
    at_the_margin = Reading(5.0, 5.0, 5.0, lambda: (15.0, 2.0))
    for comparison, holds in ((">", False), (">=", True), ("<", False), ("<=", True)):
        assert at_the_margin.past(rule(f"count(a) {comparison} 10")) is holds
    assert Reading(5.01, 5.0, 5.01, lambda: (15.0, 2.0)).past(rule("count(a) > 9.99"))


def test_window_that_begins_before_the_first_bin_has_no_reading() -> None:
    assert transitions(rule("sum(departures, 3h) < 100"), [1, 1]) == []
    assert transitions(rule("sum(departures, 3h) < 100"), [1, 1, 1]) == [(3, "firing")]
