"""One stream whose drawn visits are counted and released, and the same by hand: for tests of surfaces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from dphist.arrays import Int64Array
from tests.stream_app.declared import FIRST_BIN, STREAM
from tests.world.features import BUCKETS, Feature, Recount, drawn, recounted
from tests.world.recounts import counting
from tests.world.world import World


@contextmanager
def counted(
    feature: Feature, release: str, bins: int, seed: int = 4, epsilon: str = "1e9"
) -> Iterator[tuple[World, Recount]]:
    """Yield a world whose stream has released its bins, and its recount. Args: as ``counting``."""
    arrivals = drawn(seed, bins)
    with counting({STREAM: feature}, release, epsilon, seed=seed) as world:
        world.play(arrivals, FIRST_BIN + bins)
        yield world, recounted(feature, arrivals, bins)


def table_of(recount: Recount, feature: Feature, bins: int) -> Int64Array:
    """Return the exact counts, shape (bins, keys, buckets)."""
    table = np.zeros((bins, len(feature.keys), BUCKETS), np.int64)
    for one in recount.counted:
        table[one.bin - FIRST_BIN, feature.keys.index(one.key), one.bucket] += 1
    return table
