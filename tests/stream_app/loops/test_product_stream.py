"""Distributions of a value over HTTP, compared with a recount (``tests/world`` recounts all counts)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from stream_app.core.kinds.tables import PUBLISHED
from tests.stream_app.declared import BIN_US, FIRST_BIN
from tests.world.features import BUCKETS, FEATURES, Counted, drawn
from tests.world.recounts import counting, played

BINS = 6
NAME = "keys-and-values-and-total"


@pytest.mark.parametrize("release", ["causal", "anticipating"])
def test_distributions_over_http(release: str) -> None:
    start, end = ((FIRST_BIN + edge) * BIN_US // 10**6 for edge in (2, 5))
    span = f"start={start}&end={end}"
    refusals = [
        ("quantile", 422, "q"),
        ("quantile?q=1", 400, "q: every quantile"),
        ("cdf?key=ZZ", 400, "not on the public list"),
        ("series?key=FR&view=first_published", 400, "view")
        if release == "causal"
        else ("nodes?epoch=0", 400, "running counts only"),
    ]
    with counting({NAME: FEATURES[NAME]}, release) as world:
        [(_, feature, recount)] = played(world, drawn(9, BINS, 90), BINS, {NAME: FEATURES[NAME]})
        found = world.json(f"cdf?key=FR&{span}")
        counts = _by_bucket(recount.within(2, 5, "FR")).cumsum()
        assert found["consistent"] == counts.tolist()
        assert found["upto"] == [-5 + 5 * bucket for bucket in range(BUCKETS)]
        assert np.allclose(found["value"], counts, atol=0.05)
        assert np.allclose(np.subtract(found["upper"], found["lower"]), 0, atol=0.1)
        whole = _by_bucket(recount.within(2, 5)).cumsum()
        for answer in world.json(f"quantile?q=0.5&q=0.95&{span}")["quantiles"]:
            bucket = int(np.argmax(whole >= answer["q"] * whole[-1]))
            assert -10 + 5 * bucket <= answer["value"] <= -5 + 5 * bucket
            low, high = answer["interval"]
            assert low <= -10 + 5 * bucket < -5 + 5 * bucket <= high <= low + 10
        assert world.json(f"count?key=FR&{span}")["value"] == pytest.approx(int(counts[-1]), abs=0.05)
        for path, status, words in refusals:
            [refused] = world.get(path)
            assert refused.status_code == status
            assert words in refused.json()["error"]
        axes = world.json("")["axes"]
        assert (axes["keys"], axes["first_keys"]) == (len(feature.keys), [*feature.keys])
        columns = sum(group["keys"] * group["nodes"] for group in axes["columns"])
        if release == "causal":
            assert columns == len(world.json("nodes?epoch=0")["values"][0])
        else:
            assert columns == world.strategy(NAME).kind.tables[PUBLISHED]


def _by_bucket(counted: list[Counted]) -> np.ndarray:
    numbers = Counter(one.bucket for one in counted)
    return np.array([numbers[bucket] for bucket in range(BUCKETS)])
