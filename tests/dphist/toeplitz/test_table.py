"""The stored strategies: valid at every horizon, and as good as a new search finds."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import pytest

from benchmarks.strategies import loss_of, optimise
from dphist.toeplitz import optimal_strategy
from dphist.toeplitz.strategy import LARGEST_HORIZON

# Every horizon up to 300, and some of each octave beyond.
HORIZONS = [*range(1, 301), *(2**k + shift * 2**k // 7 for k in range(9, 24) for shift in range(7)), 2**24]


def test_every_horizon_has_a_strategy_and_longer_ones_larger_errors() -> None:
    losses = [loss_of(optimal_strategy(horizon)) for horizon in HORIZONS]
    # A row with more buffers is up to 0.1 % better than the row before.
    assert all(before < 1.001 * after for before, after in pairwise(losses))
    assert losses[0] == 1.0


def test_stored_strategies_never_change() -> None:
    """A running stream is refused if its plan changes: add rows for new horizons only."""
    texts = "\n".join(optimal_strategy(horizon).to_json() for horizon in HORIZONS)
    assert (
        hashlib.sha256(texts.encode()).hexdigest()
        == "8875da5636587624693bfce46cdea2641ddfccd936f9623c1240a5eacd50b62a"
    )


@pytest.mark.parametrize(("horizon", "buffers"), [(7, 1), (40, 2), (150, 3)])
def test_a_new_search_with_as_many_buffers_or_one_more_is_hardly_better(horizon: int, buffers: int) -> None:
    stored = optimal_strategy(horizon)
    found = optimise(horizon, buffers, None if buffers > stored.buffers else stored)
    assert loss_of(stored) <= 1.0011 * loss_of(found)


@pytest.mark.parametrize(("bits", "loss"), [(10, 9.671), (16, 19.664), (20, 28.275)])
def test_loss_is_below_that_of_the_square_root(bits: int, loss: float) -> None:
    assert loss_of(optimal_strategy(2**bits)) < loss


@pytest.mark.parametrize("bad", [0, -1, LARGEST_HORIZON + 1, True, 1.0])
def test_bad_horizon_is_refused(bad: int) -> None:
    with pytest.raises(ValueError, match=r"^horizon:"):
        optimal_strategy(bad)
