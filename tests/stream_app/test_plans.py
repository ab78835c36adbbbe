"""What a stream's settings are planned into."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from stream_app.config import StreamSettings, load
from stream_app.config.settings import KeySettings, ValueSettings, WindowSettings
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


def over_carriers(keys: int, buckets: int, epoch_bins: int) -> StreamSettings:
    return replace(
        FLIGHTS,
        time=replace(FLIGHTS.time, epoch_bins=epoch_bins),
        keys=KeySettings("carrier", tuple(f"C{number}" for number in range(keys)), False, False),
        value=ValueSettings("delay", Fraction(0), Fraction(1), buckets),
    )


def test_keys_and_values_are_anticipating_as_long_as_their_noise_can_be_drawn_ahead(
    caplog: pytest.LogCaptureFixture,
):
    month = planned(over_carriers(20, 256, 720))
    assert month.product is not None
    assert month.design.release == month.product.time.release == "anticipating"
    assert caplog.text == ""
    wide = planned(over_carriers(2_000, 256, 720))
    assert wide.product is not None
    assert wide.design.release == wide.product.time.release == "causal"
    assert "released causally" in caplog.text


def test_noise_that_takes_longer_to_draw_than_to_use_is_refused():
    fast = over_carriers(200, 256, 100)
    fast = replace(fast, time=replace(fast.time, bin_us=500_000))
    with pytest.raises(OperatorError, match="fewer keys or buckets, or longer bins"):
        planned(fast)


def test_windows_take_their_share_and_the_tree_the_rest():
    window = WindowSettings(24 * FLIGHTS.time.bin_us, "dawa", Fraction(3, 4))
    value = ValueSettings("delay", Fraction(0), Fraction(1), 10, window)
    keys = KeySettings("carrier", ("AA", "UA"), True, False)
    over_values = planned(replace(FLIGHTS, keys=keys, value=value))
    assert over_values.window is not None
    assert (over_values.window.histograms, over_values.window.buckets, over_values.width) == (3, 10, 30)
    assert over_values.window.epsilon == FLIGHTS.privacy.epsilon * Fraction(3, 4)
    assert over_values.design.epsilon == FLIGHTS.privacy.epsilon
    assert sum(over_values.design.shares) <= Fraction(1, 4)
    over_keys = planned(replace(FLIGHTS, keys=replace(keys, window=window)))
    assert over_keys.window is not None
    assert (over_keys.window.histograms, over_keys.window.buckets) == (1, 3)
