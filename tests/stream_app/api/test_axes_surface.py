"""Keys and values equal a recount in the clients, the terminal and Prometheus."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from prometheus_client.parser import text_string_to_metric_families

from stream_app.api.admission.access import AccessRules
from stream_app.api.prometheus.metrics import Newest, exposition
from stream_app.client import AsyncClient, Client, ClientError
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.readings import readings
from stream_app.core.alerts.rules import Rule
from stream_app.ports.access import Scrapes
from stream_app.shell.commands import main
from tests.stream_app.api.client import asking, served
from tests.stream_app.declared import BIN_US, FIRST_BIN, STREAM
from tests.stream_app.loops.test_windows import run as run_windows
from tests.stream_app.loops.test_windows import window_strategy
from tests.world import World
from tests.world.counted import counted as counted_visits
from tests.world.counted import table_of
from tests.world.features import BUCKETS, FEATURES, Feature
from tests.world.recounts import counting
from tests.world.surfaces import view_of

pytestmark = pytest.mark.slow

BINS = 8
_SETTINGS = FEATURES["keys-and-values"].settings
VISITS = Feature({**_SETTINGS, "keys": {**_SETTINGS["keys"], "total": True}})
LABELS = [*VISITS.keys]
Table = NDArray[np.int64]
Counted = tuple[World, Table]


@pytest.fixture(scope="module")
def counted() -> Iterator[Counted]:
    """Yield a stream without noise, and its exact counts, shape (bins, keys, buckets)."""
    with counted_visits(VISITS, "causal", BINS) as (world, recount):
        yield world, table_of(recount, VISITS, BINS)


@asynccontextmanager
async def asked(one: World) -> AsyncIterator[httpx.AsyncClient]:
    rules = AccessRules(scrapes=Scrapes(keys_of=frozenset({STREAM})))
    async with asking(one.store, rules) as (_, client):
        yield client


def answer(one: World, path: str, **parameters: Any) -> Any:
    async def run() -> httpx.Response:
        async with asked(one) as client:
            return await client.get(path, params=parameters)

    response = asyncio.run(run())
    if path == "/metrics":
        return response.text
    return response.json() if response.status_code == 200 else (response.status_code, response.json())


def seconds(bin: int) -> float:
    return (FIRST_BIN + bin) * BIN_US / 1e6


def test_metrics_have_every_key_and_the_total(counted: Counted) -> None:
    one, table = counted
    samples = {
        (sample.name, sample.labels.get("key")): sample.value
        for family in text_string_to_metric_families(answer(one, "/metrics"))
        for sample in family.samples
    }
    assert samples["private_counts_running", None] == pytest.approx(table.sum(), abs=0.01)
    for place, key in enumerate(LABELS):
        truth = table[:, place].sum()
        assert samples["private_counts_key_running", key] == pytest.approx(truth, abs=0.01)
        lower, upper = (samples[f"private_counts_key_running_{end}", key] for end in ("lower", "upper"))
        assert lower <= samples["private_counts_key_running", key] <= upper
    assert ("private_counts_running", "FR") not in samples


def test_keys_have_metrics_only_if_asked_for_and_a_scrape_ends_at_its_limit(counted: Counted) -> None:
    one, _ = counted
    view = one.view()

    def series(with_keys: bool, most: int) -> tuple[Counter[str], float]:
        """Return the number of series of each key ("" for the stream), and how many are left out."""
        text = exposition([Newest.of(view, with_keys)], {}, most_series=most).decode()
        samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
        [left_out] = [one.value for one in samples if one.name == "private_counts_series_left_out"]
        return Counter(one.labels.get("key", "") for one in samples if "stream" in one.labels), left_out

    without, nothing = series(False, 1_000)
    assert without.keys() == {""}
    assert nothing == 0
    everything, nothing = series(True, 1_000)
    assert everything == without + Counter(dict.fromkeys(LABELS, 4))
    assert nothing == 0
    some, left_out = series(True, without[""] + 7)  # room for one whole key
    assert some == without + Counter({LABELS[0]: 4})
    assert left_out == 4 * (len(LABELS) - 1)
    assert series(True, without[""] - 1) == (Counter(), without[""] + 4 * len(LABELS))


def test_prometheus_charts_every_key(counted: Counted) -> None:
    one, table = counted
    times = {"start": seconds(1), "end": seconds(BINS), "step": BIN_US / 1e6}
    for metric, axis in (("private_counts_key_bin", False), ("private_counts_key_running", True)):
        data = answer(one, "/api/v1/query_range", query=f'{metric}{{stream="{STREAM}"}}', **times)["data"]
        found = {one["metric"]["key"]: [float(v) for _, v in one["values"]] for one in data["result"]}
        assert list(found) == LABELS
        for place, key in enumerate(LABELS):
            truth = table[:, place].sum(axis=1)
            assert np.allclose(found[key], truth.cumsum() if axis else truth, atol=0.01)
    some = answer(
        one, "/api/v1/query", query='private_counts_key_bin_stderr{key=~"FR|DE"}', time=seconds(BINS)
    )
    assert [found["metric"]["key"] for found in some["data"]["result"]] == ["FR", "DE"]
    assert answer(one, "/api/v1/label/key/values")["data"] == sorted(LABELS)


def test_every_query_of_the_grafana_dashboards_is_answered(counted: Counted) -> None:
    one, _ = counted
    boards = sorted((Path(__file__).parents[3] / "deploy/grafana/dashboards").glob("*.json"))
    assert boards
    for board in boards:
        found = json.loads(board.read_text())
        named = {"stream": STREAM, "generation": ".*", "key": "(FR|DE)", "__interval": f"{BIN_US / 1e6:g}s"}

        def filled(text: str, named: dict[str, str] = named) -> str:
            for name, value in named.items():
                text = text.replace(f"${name}", value)
            assert "$" not in text, text
            return text

        queries = [filled(target["expr"]) for panel in found["panels"] for target in panel["targets"]]
        assert len(queries) >= 10
        for query in queries:
            times = {"start": seconds(1), "end": seconds(BINS), "step": BIN_US / 1e6}
            data = answer(one, "/api/v1/query_range", query=query, **times)["data"]
            assert len(data["result"]) == (2 if "_key_" in query else 1), query
            assert all(len(series["values"]) == BINS for series in data["result"])
        for variable in found["templating"]["list"][:3]:
            match = re.fullmatch(r"label_values\((.+), (\w+)\)", filled(variable["query"]["query"]))
            assert match is not None, variable
            values = answer(one, f"/api/v1/label/{match[2]}/values", **{"match[]": match[1]})["data"]
            assert values == {"stream": [STREAM], "generation": [], "key": sorted(LABELS)}[match[2]]


@pytest.mark.slow  # imports pandas, polars and pyarrow
async def test_both_clients_and_the_terminal_give_distributions(counted: Counted) -> None:
    one, table = counted
    async with served(one.store.reader()) as service:
        url = str(service.base_url).rstrip("/")
        async with AsyncClient(url, timeout_s=60.0) as client:
            cdf = await client.cdf(STREAM, seconds(1), seconds(5), key="DE")
            cdfs = await client.cdfs(STREAM, seconds(1), seconds(5), step=2, key="DE")
            found = await client.quantile(STREAM, [0.5, 0.9], seconds(1), seconds(5), key="DE")
            single = await client.quantile(STREAM, 0.9, seconds(1), seconds(5), key="DE")
            count = await client.count(STREAM, key="DE")
            with pytest.raises(ClientError, match="not on the public list"):
                await client.cdf(STREAM, key="LH")
        truth = table[1:5, 1].sum(axis=0).cumsum()
        assert cdf.consistent.tolist() == truth.tolist()
        assert (cdf.lower <= truth + 0.01).all()
        assert (cdf.upper >= truth - 0.01).all()
        assert (cdf.key, cdf.private, len(cdf)) == ("DE", False, BUCKETS)
        assert cdfs.value.tolist() == [table[1:3, 1].sum(axis=0).cumsum().tolist(), truth.tolist()]
        assert (cdfs.end.astype(float) / 1e6).tolist() == [seconds(3), seconds(5)]
        assert cdfs.columns()["end"].tolist() == [end for end in cdfs.end.tolist() for _ in cdf.upto]
        assert (cdfs.stderr[-1] == cdf.stderr).all()
        assert (cdfs.key, cdfs.private, len(cdfs)) == ("DE", False, 2)
        assert count.value == pytest.approx(table[:, 1].sum(), abs=0.01)
        assert found.level.tolist() == [0.5, 0.9]
        assert (found.value[1:] == single.value).all()
        assert ((found.lower <= found.value) & (found.value <= found.upper)).all()
        await asyncio.to_thread(blocking, url, cdf.columns(), found.columns(), cdfs.columns())


def blocking(url: str, cdf: dict[str, Any], quantiles: dict[str, Any], cdfs: dict[str, Any]) -> None:
    with Client(url) as client:
        grown = client.cdfs(STREAM, seconds(1), seconds(5), step=2, key="DE")
        assert all((column == cdfs[name]).all() for name, column in grown.columns().items())
        assert grown.to_pandas()["upto"].tolist() == grown.to_polars()["upto"].to_list()
        for found, columns in (
            (client.cdf(STREAM, seconds(1), seconds(5), key="DE"), cdf),
            (client.quantile(STREAM, [0.5, 0.9], seconds(1), seconds(5), key="DE"), quantiles),
        ):
            assert all((column == columns[name]).all() for name, column in found.columns().items())
            assert {"lower", "upper"} < set(found.to_pandas().columns) == set(found.to_polars().columns)
            assert found.to_pandas()["value"].tolist() == found.to_polars()["value"].to_list()
        series = client.series(STREAM, kind="bin", key="DE")
        assert series.to_pandas()["value"].sum() == pytest.approx(
            client.count(STREAM, key="DE").value, abs=0.05
        )
    span = ["--start", f"{seconds(1):.6f}", "--end", f"{seconds(5):.6f}", "--key", "DE"]
    asked = ["query", STREAM, "--url", url, *span]
    said = CliRunner().invoke(main, [*asked, "--cdf", "--format", "csv"])
    rows = list(csv.DictReader(io.StringIO(said.output)))
    assert [float(row["value"]) for row in rows] == cdf["value"].tolist()
    levels = ["--quantile", "0.5", "--quantile", "0.9"]
    said = CliRunner().invoke(main, [*asked, *levels, "--format", "json"])
    assert json.loads(said.output)["value"] == quantiles["value"].tolist()
    shown = CliRunner().invoke(main, [*asked, *levels])
    assert "NOT PRIVATE" in shown.output
    both = CliRunner().invoke(main, [*asked, "--cdf", *levels])
    assert both.exit_code != 0


def test_keys_in_windows_have_no_series_and_no_rules(tmp_path: Path) -> None:
    one = run_windows(tmp_path, window_strategy(), [(FIRST_BIN + 0.5, "UA", 5)] * 9)
    text = answer(one, "/metrics")
    assert f'private_counts_running{{private="false",stream="{STREAM}"}} 9.0' in text
    assert "private_counts_key_running{" not in text
    assert answer(one, "/api/v1/label/key/values")["data"] == []
    view = asyncio.run(view_of(one.store, STREAM))
    bins = f"{BIN_US // 1_000_000}s"
    conditions = (f"sum({STREAM}['UA'], {bins})", f"quantile({STREAM}, 0.5, {bins})", f"count({STREAM})")
    texts = [f"{one} > 5" for one in conditions]
    found = readings([Rule(text, text, parse_condition(text)) for text in texts], view)
    assert [reading is None for reading in found] == [True, True, False]


def test_quantile_of_no_events_is_null() -> None:
    with counting({STREAM: VISITS}, "causal") as one:
        one.arrive(FIRST_BIN, country="FR", flight={"delay": 5})
        one.run_until(FIRST_BIN + 2)
        [found] = answer(one, f"/v1/streams/{STREAM}/quantile", q="0.5", key="DE")["quantiles"]
        assert found["value"] is None
