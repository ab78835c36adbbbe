"""Every query of the dashboard for Grafana's Infinity plugin is answered, and holds what its columns say."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import yaml

from tests.models.memory import MemoryStore
from tests.stream_app.api.client import asking
from tests.stream_app.published import FIRST_BIN
from tests.stream_app.published_axes import PublishedKeys

INFINITY = Path(__file__).parents[3] / "deploy" / "grafana" / "infinity"
BOARD = json.loads((INFINITY / "dashboards" / "calendar.json").read_text())
STEPS = [one["value"] for one in BOARD["templating"]["list"][1]["options"]]
READ: dict[str, Callable[[Any], Any]] = {
    "number": float,
    "timestamp": datetime.fromisoformat,
    "string": str,
    "boolean": lambda value: {True: True, False: False}[value],
}


def rows(target: dict[str, Any], response: httpx.Response) -> list[dict[str, Any]]:
    """Read an answer as the plugin's parser does: a column of a CSV file, or a field of a list's objects."""
    assert response.status_code == 200, response.text
    if target["type"] == "csv":
        assert response.headers["content-type"].startswith("text/csv")
        found: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(response.text)))
    else:
        found = response.json()[target["root_selector"]]
    return [
        {column["text"]: READ[column["type"]](row[column["selector"]]) for column in target["columns"]}
        for row in found
    ]


def filled(url: str, **chosen: str) -> str:
    for name, value in chosen.items():
        url = url.replace(f"${{{name}}}", value)
    assert "$" not in url
    return url


async def test_every_query_is_answered_with_the_numbers_of_its_columns() -> None:
    store = MemoryStore()
    stream = PublishedKeys(store, epoch_bins=24 * 70, first_bin=FIRST_BIN, carriers=("AA", "UA"))
    cells = np.random.default_rng(1).poisson(30, (24 * 70, 2))
    await stream.fill(cells)
    [of_days], [of_keys], [of_streams] = (panel["targets"] for panel in BOARD["panels"])
    variable, _ = BOARD["templating"]["list"]
    async with asking(store) as (_, client):
        found = rows(variable["query"]["infinityQuery"], await client.get("/v1/streams"))
        assert found == [{"stream": "carriers"}]
        whole = (await client.get("/v1/streams/carriers/series?kind=bin&days=1")).json()
        for step, points in zip(STEPS, (70, 9, 2), strict=True):
            url = filled(of_days["url"], **{"stream:percentencode": "carriers", "step": step})
            found = rows(of_days, await client.get(url))
            assert len(found) == points
            assert all(row["lower"] < row["value"] < row["upper"] for row in found)
            if step == "days=1":
                assert [row["value"] for row in found] == whole["value"]
                assert [row["time"].timestamp() for row in found] == whole["start"]
        found = rows(
            of_keys, await client.get(filled(of_keys["url"], **{"stream:percentencode": "carriers"}))
        )
        truth = dict(zip(stream.carriers, cells.sum(axis=0).tolist(), strict=True))
        assert {row["key"]: abs(row["value"] - truth[row["key"]]) < 9 * row["stderr"] for row in found} == {
            "AA": True,
            "UA": True,
        }
        [found_stream] = rows(of_streams, await client.get(of_streams["url"]))
        assert (found_stream["title"], found_stream["private"]) == ("carriers", True)


def test_every_panel_names_the_provisioned_data_source() -> None:
    [source] = yaml.safe_load((INFINITY / "provisioning" / "datasources" / "infinity.yaml").read_text())[
        "datasources"
    ]
    named = [panel["datasource"] for panel in BOARD["panels"]]
    named += [one["datasource"] for one in chain(*(panel["targets"] for panel in BOARD["panels"]))]
    assert {(one["type"], one["uid"]) for one in named} == {(source["type"], source["uid"])}
