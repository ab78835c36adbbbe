"""An approximate stream: what its rows, its ledger and its descriptions say (``tests/world`` recounts it)."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from msgspec import structs

from dphist.caps import Caps
from dphist.toeplitz import plan_toeplitz
from stream_app.api.answers.streams import detail, summary
from stream_app.api.overview import overview_of
from stream_app.core.counting.cells import KeyList
from stream_app.core.kinds.tables import Span
from stream_app.core.kinds.toeplitz import Toeplitz
from stream_app.core.ledger import statement
from stream_app.core.strategy import Strategy
from tests.stream_app.declared import FIRST_BIN, NO_NOISE, strategy_of
from tests.stream_app.visits_stream import BINS, COUNTRIES
from tests.world import World
from tests.world.settings import EPOCH_BINS

DELTA = Fraction(1, 10**6)


def approximate(epsilon: Fraction = NO_NOISE, *, keyed: bool = True) -> Strategy:
    """Return a strategy that counts users, by country if it is keyed."""
    keys = KeyList("country", COUNTRIES, False, False) if keyed else None
    plain = strategy_of(keys=keys, max_events=1, count="users")
    privacy = structs.replace(plain.declared.privacy, epsilon=epsilon, delta=DELTA)
    width = len(COUNTRIES) if keyed else 1
    design = plan_toeplitz(EPOCH_BINS, epsilon, DELTA, Caps(max_events=1), width=width)
    declared = structs.replace(plain.declared, privacy=privacy)
    return Strategy(plain.stream, declared, Toeplitz(design, keyed))


def test_each_epoch_is_entered_with_its_mu() -> None:
    with World(strategy := approximate(Fraction(1))) as world:
        world.run_until(FIRST_BIN + BINS)
        ledger = world.ledger()
    assert {(entry.epsilon, entry.delta) for entry in ledger} == {("1", "1/1000000")}
    assert {Fraction(entry.mu or 0) for entry in ledger} == {strategy.kind.mu}
    # Three epochs of a user add up by their mu, to less than the sum of their epsilons.
    stated = statement(strategy.source, ledger)
    assert (stated.epsilon, stated.delta) == (Fraction(3), 3 * DELTA)
    assert 1 < stated.composed < 3


def test_range_is_a_difference_of_published_counts_that_never_change() -> None:
    shown = list[list[float]]()
    with World(approximate(Fraction(1))) as world:
        for stop in range(3, BINS + 1, 3):
            world.run_until(FIRST_BIN + stop)
            view = world.view()
            shown.append(view.series("running", view.span).values.tolist())
    for before, after in pairwise(shown):
        assert after[: len(before)] == before
    running = [0.0, *shown[-1]]
    for start, stop in ((0, 3), (2, 5), (1, 14)):
        count = view.count(Span(FIRST_BIN + start, FIRST_BIN + stop))
        assert count.value == pytest.approx(running[stop] - running[start], abs=1e-9)


def test_every_description_of_a_stream_names_its_delta() -> None:
    with World(approximate(Fraction(1))) as world:
        world.run_until(FIRST_BIN + 3)
        view = world.view()
    assert summary(view).delta == detail(view, 1_000_000).delta == "1e-6"
    assert overview_of(view, {}, 1_000_000).delta == "1e-6"
    assert detail(view, 1_000_000).never_revised
    assert view.series("running", view.span).laws.draws().tolist() == [0.0] * 3


def test_noise_source_without_gaussian_noise_is_refused() -> None:
    class OnlyLaplace:
        private = True

    with pytest.raises(ValueError, match="OnlyLaplace draws no Gaussian noise"):
        approximate().kind.close(b"", np.zeros((1, 3), np.int64), OnlyLaplace(), None)  # type: ignore[arg-type]
