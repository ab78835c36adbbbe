"""Without noise, every released count and both ends of its interval are whole numbers, on every surface."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stream_app.declared import FIRST_BIN
from tests.world.features import FEATURES, drawn
from tests.world.recounts import counting

COUNTS = ("value", "counts", "lower", "upper", "interval", "estimate")
ADDRESSES = (
    *("", "count", "count?key=FR", "series?kind=bin", "series?kind=running&key=FR", "cdf?key=FR", "cdf"),
    *("series?kind=window&window=3", "series?kind=bin&view=first_published", "keys?step=1", "heat?step=2"),
    "preview?epsilon=1",
)


def counts_in(answer: Any, name: str = "") -> list[float]:
    """Return every count and end of an interval in an answer."""
    if isinstance(answer, dict):
        return [one for name, part in answer.items() for one in counts_in(part, name)]
    if isinstance(answer, list):
        return [one for part in answer for one in counts_in(part, name)]
    return [answer] if name in COUNTS and isinstance(answer, float) else []


@pytest.mark.parametrize("release", ["causal", "anticipating"])
@pytest.mark.parametrize("name", ["keys-and-values", "keys-and-values-and-total"])
def test_zero_width_intervals_hold_one_whole_number(name: str, release: str) -> None:
    with counting({name: FEATURES[name]}, release) as world:
        world.play(drawn(9, 9), FIRST_BIN + 9)
        for address, answer in zip(ADDRESSES, world.get(*ADDRESSES), strict=True):
            assert answer.status_code == 200, address
            found = counts_in(answer.json())
            assert found, address
            assert [count for count in found if count != round(count)] == [], address
        csv, metrics = world.get("series?kind=bin&key=FR&format=csv", "/metrics")
        assert {row.split(",")[2].partition(".")[2] for row in csv.text.splitlines()[1:]} == {"0"}
        running = [line for line in metrics.text.splitlines() if "running" in line and line[0] != "#"]
        assert len(running) > 4
        assert all(float(line.split()[-1]).is_integer() for line in running)
        assert all(count == round(count) for row in world.rows() for count in counts_in(row))
