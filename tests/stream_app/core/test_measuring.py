"""Counts with a histogram of users beside them: the release, its parts, and what is stored."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dphist import SeededNoise, plan_product, plan_tree
from dphist.epochs import EpochLevels
from dphist.users import BUCKETS, NumbersOfUsers
from stream_app.api.answers.streams import detail, detail_for_board
from stream_app.core.answers.caps import proposed
from stream_app.core.kinds import Kind, kind_of, measuring
from stream_app.core.kinds.tables import PUBLISHED, USERS
from tests.oracles import NoNoise
from tests.world.counted import counted
from tests.world.features import FEATURES
from tests.world.settings import EPOCH_BINS

BINS, WINDOW = 6, 3
USERS_OF = NumbersOfUsers(Fraction(1, 4), WINDOW)


def kinds() -> list[Kind]:
    return [kind_of(plan_tree(BINS, Fraction(3, 4))), kind_of(plan_product(BINS, Fraction(3, 4), keys=3))]


@pytest.mark.parametrize("counts", kinds(), ids=["total", "keys"])
def test_the_last_window_of_a_whole_epoch_is_released_once(counts: Kind) -> None:
    kind = measuring(counts, USERS_OF)
    assert kind.width == counts.width + BUCKETS
    assert kind.epsilon == counts.epsilon + USERS_OF.epsilon == 1
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 9, (BINS, counts.width))
    changes = rng.integers(-2, 5, (BINS, BUCKETS))
    held, other, released = b"", b"", []
    for bin in range(BINS):
        row = np.hstack([rows[bin], changes[bin]])[np.newaxis]
        done, alone = (
            kind.close(held, row, NoNoise(), None),
            counts.close(other, rows[bin : bin + 1], NoNoise(), None),
        )
        held, other = done.state, alone.state
        assert [block.table for block in done.blocks[: len(alone.blocks)]] == [
            one.table for one in alone.blocks
        ]
        assert done.row(PUBLISHED, bin).tolist() == alone.row(PUBLISHED, bin).tolist()
        released += [block.values[0].tolist() for block in done.blocks if block.table == USERS]
        part = kind.row_part(done, 0)
        assert part.get("users") == (changes[WINDOW:].sum(axis=0).tolist() if bin == BINS - 1 else None)
    assert released == [changes[WINDOW:].sum(axis=0).tolist()]
    assert [kind.rows_after(USERS, bins) for bins in range(BINS + 1)] == [0] * BINS + [1]


def test_the_histogram_has_noise_of_its_own() -> None:
    kind, noise = measuring(kinds()[0], replace(USERS_OF, epsilon=Fraction(1, 8))), NoNoise()
    kind.close(b"", np.zeros((BINS, kind.width), np.int64), noise, None)
    assert noise.draws[-1] == (Fraction(8), (BUCKETS,))
    drawn = [kind.close(b"", np.zeros((BINS, kind.width), np.int64), SeededNoise(n), None) for n in (1, 2)]
    assert drawn[0].row(USERS, 0).tolist() != drawn[1].row(USERS, 0).tolist()


def test_kinds_that_find_keys_or_span_epochs_are_refused() -> None:
    levels = EpochLevels(plan_tree(2, Fraction(1, 2)), Fraction(1), (2,), (Fraction(1, 2),))
    with pytest.raises(ValueError, match="go with a tree over time"):
        measuring(kind_of(levels), USERS_OF)


@pytest.mark.parametrize(
    ("name", "release"), [("numbers-of-users", "causal"), ("numbers-of-users-by-key", "anticipating")]
)
def test_the_last_whole_epoch_proposes_caps(name: str, release: str) -> None:
    with counted(FEATURES[name], release, 2 * EPOCH_BINS + 1) as (world, recount):
        view = world.view()
    found = proposed(view)
    assert found is not None
    assert found.now == FEATURES[name].cap
    assert (found.end_us - found.start_us) == EPOCH_BINS * view.binning.bin_us
    assert found.end_us == view.binning.start_us(view.span.stop - 1)
    numbers = [number for (epoch, _), number in recount.users.items() if epoch == 1]
    for cap in found.caps:
        truth = sum(max(number - cap.max_events, 0) for number in numbers)
        assert cap.most is not None
        assert cap.least - 0.1 <= truth <= cap.most + 0.1
        assert cap.error == pytest.approx(found.caps[0].error * cap.max_events)
    assert found.caps[-1].most == pytest.approx(
        0, abs=0.1
    )  # noise is as good as none, so the largest cap is best
    assert found.best.together == min(cap.together for cap in found.caps)
    told = detail(view, 1_000_000).caps
    assert told is not None
    assert (told.proposed, told.sentence) == (found.best.max_events, found.sentence)
    assert detail_for_board(view, 1_000_000).caps is None


def test_without_a_whole_epoch_nothing_is_proposed() -> None:
    with counted(FEATURES["numbers-of-users"], "causal", EPOCH_BINS - 1) as (world, _):
        assert proposed(world.view()) is None
    with counted(FEATURES["two-of-a-user"], "causal", EPOCH_BINS) as (world, _):
        assert proposed(world.view()) is None
