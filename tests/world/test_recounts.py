"""Every feature that decides what counts, side by side over drawn logs: all answers equal a recount."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stream_app.api.answers.streams import users_of_epoch
from tests.world.features import FEATURES, Feature, drawn
from tests.world.recounts import (
    ServiceNoise,
    check_exact,
    check_letters,
    check_points,
    check_rows,
    counting,
    played,
)
from tests.world.redis import over_redis
from tests.world.settings import EPOCH_BINS
from tests.world.world import World

pytestmark = pytest.mark.slow

BINS = 15  # two epochs and a half


def check_all(
    features: dict[str, Feature],
    release: str,
    seed: int,
    bins: int = BINS,
    make: Callable[..., World] = World,
) -> None:
    """Count a drawn log by features, and compare every surface with the recounts."""
    with counting(features, release, seed=seed, make=make) as world:
        for name, feature, recount in played(world, drawn(seed, bins), bins, features):
            try:
                view = world.view(name)
                check_exact(view, feature, recount, bins)
                check_rows(world, name, feature, recount)
                check_letters(world, feature, name, recount)
                if feature.settings.get("count") == "users":
                    users = users_of_epoch(view)
                    open_epoch = recount.within(bins - bins % EPOCH_BINS, bins)
                    assert users is not None
                    assert users.value == pytest.approx(len(open_epoch), abs=0.05)
            except AssertionError as difference:
                raise AssertionError(f"{name}: {difference}") from difference


@pytest.mark.parametrize(("seed", "release"), [(0, "causal"), (1, "anticipating")])
def test_every_surface_of_every_feature_equals_its_recount(seed: int, release: str) -> None:
    check_all(FEATURES, release, seed)


@pytest.mark.parametrize("release", ["causal", "anticipating"])
def test_points_of_series_are_the_answers_about_their_ranges(release: str) -> None:
    names = ("events", "keys-and-total", "sums-by-key", "over-epochs", "approximate-users-by-key")
    features = {name: FEATURES[name] for name in names}
    with counting(features, release, "1", ServiceNoise(1)) as world:
        for name, feature, _ in played(world, drawn(3, BINS, per_bin=5), BINS, features):
            check_points(world.view(name), feature)


@pytest.mark.redis
def test_features_equal_their_recounts_over_redis(tmp_path: Path) -> None:
    names = ["refused-if-late", "keys-and-total", "two-of-a-user-by-key-and-value", "users", "over-epochs"]
    names += ["numbers-of-users-by-key", "numbers-of-users-and-sums"]
    with over_redis(tmp_path) as make:
        check_all({name: FEATURES[name] for name in names}, "anticipating", seed=1, bins=13, make=make)
