"""Answers of a stream with a share of epsilon for every node."""

from __future__ import annotations

import pytest

from dphist.tree.node_design import NodeDesign
from dphist.tree.published_error import published_variance
from tests.stream_app.api.client import Api, with_api

EPOCH = 24
COUNTS = [5] * EPOCH
AXES = {"release": "anticipating", "shares": "node", "epoch_bins": EPOCH}


@with_api(COUNTS, **AXES)
async def test_a_range_has_the_exact_error_of_its_nodes(api: Api) -> None:
    design = api.stream.strategy.design
    assert isinstance(design, NodeDesign)
    series = await api.json("series", kind="bin", step=6)
    start, end = series["start"][1], series["end"][2]
    count = await api.json("count", start=start, end=end)
    assert count["stderr"] == pytest.approx(published_variance(design, 6, 18) ** 0.5, rel=1e-9)
    assert count["interval"][0] < count["value"] < count["interval"][1]
    assert series["value"][1] + series["value"][2] == pytest.approx(count["value"])
    consistent = await api.json("series", kind="running", view="consistent")
    assert consistent["value"] == sorted(consistent["value"])


@with_api(COUNTS, **AXES)
async def test_nodes_come_with_their_scales(api: Api) -> None:
    design = api.stream.strategy.design
    assert isinstance(design, NodeDesign)
    assert (await api.json(""))["shares"] == "node"
    nodes = await api.json("nodes", first=3, limit=5)
    assert nodes["scale"] is None
    assert nodes["scales"] == design.node_scales[-1][3:8].tolist()
    assert len(nodes["values"]) == 5
