"""Cells and rollups of several key fields equal a recount in every answer, metric and rule."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dphist.arrays import Int64Array
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.readings import readings
from stream_app.core.alerts.rules import Rule
from tests.stream_app.api.test_axes_surface import answer, seconds
from tests.stream_app.declared import BIN_US, STREAM
from tests.world import World
from tests.world.counted import counted as counted_visits
from tests.world.counted import table_of
from tests.world.features import FEATURES, Feature

PATH = f"/v1/streams/{STREAM}"
BINS = 8  # the second epoch is open
COUNTRIES, DEVICES = ("FR", "DE", "other"), ("tv", "desk/top")
KEYS = {
    "fields": ["geo.country", "device"],
    "list": {"geo.country": [*COUNTRIES[:2]], "device": [*DEVICES]},
    "other": {"geo.country": True, "device": False},
}
LABELS = FEATURES["key-fields"].keys
Counted = tuple[World, Int64Array]


@pytest.fixture(scope="module", params=[("causal", True), ("anticipating", False)], ids=str)
def counted(request: pytest.FixtureRequest) -> Iterator[Counted]:
    """Yield a stream without noise, and its exact counts, (bins, countries, devices)."""
    release, total = request.param
    visits = Feature({"keys": {**KEYS, "total": total}})
    with counted_visits(visits, release, BINS) as (world, recount):
        yield world, table_of(recount, visits, BINS).sum(axis=2).reshape(BINS, 3, 2)


def test_cells_rollups_and_total_equal_the_recount_and_add_up(counted: Counted) -> None:
    one, table = counted
    view = one.view()
    for place, label in enumerate(LABELS):
        exact = table.reshape(BINS, -1)[:, place]
        assert view.of_key(label).count(view.span).value == pytest.approx(exact.sum(), abs=0.01)
    rolled = {
        "FR/*": table[:, 0],
        "other/*": table[:, 2],
        "*/tv": table[:, :, 0],
        r"*/desk\/top": table[:, :, 1],
        "*/*": table,
    }
    for pattern, exact in rolled.items():
        found = answer(one, f"{PATH}/count", key=pattern, start=seconds(1), end=seconds(7))
        assert found["value"] == pytest.approx(exact[1:7].sum(), abs=0.01)
        assert (found["key"], found["keys"]) == (pattern, [pattern])
        assert f"keys together: {pattern}." in found["meaning"]
        series = answer(one, f"{PATH}/series", key=pattern, kind="bin")
        assert np.allclose(series["value"], exact.reshape(BINS, -1).sum(axis=1), atol=0.01)
    parts = [view.of_key(f"{country}/tv").count(view.span).value for country in COUNTRIES]
    whole = answer(one, f"{PATH}/count", key="*/tv")["value"]
    assert sum(parts) == pytest.approx(whole, rel=1e-12)
    both = sum(answer(one, f"{PATH}/count", key=key)["value"] for key in ("*/tv", r"*/desk\/top"))
    assert both == pytest.approx(view.count(view.span).value, rel=1e-12)


def test_rows_by_field_are_its_rollups(counted: Counted) -> None:
    one, table = counted
    found = answer(one, f"{PATH}/keys", by="geo.country", step=4)
    totals = {row["key"]: row["value"] for row in found["keys"]}
    sizes = dict(zip(["FR/*", "DE/*", "other/*"], table.sum(axis=(0, 2)).tolist(), strict=True))
    assert totals == pytest.approx(sizes, abs=0.01)
    assert found["keys_available"] == 3
    for row in found["keys"]:
        alone = answer(one, f"{PATH}/count", key=row["key"])
        assert (row["value"], row["stderr"]) == (pytest.approx(alone["value"]), alone["stderr"])
        assert row["interval"] == pytest.approx(alone["interval"], abs=0.001)
        exact = table[:, ["FR/*", "DE/*", "other/*"].index(row["key"])].sum(axis=1)
        assert np.allclose(row["counts"], [exact[:4].sum(), exact[4:].sum()], atol=0.01)
    for wrong in ({"by": "country"}, {"by": "device", "key": "FR/*"}):
        status, body = answer(one, f"{PATH}/keys", **wrong)
        assert (status, body["error"].startswith("by: ")) == (400, True)


def test_description_names_fields_and_values(counted: Counted) -> None:
    one, _ = counted
    axes = answer(one, PATH)["axes"]
    assert (axes["keys"], axes["first_keys"]) == (6, list(LABELS))
    assert axes["key_fields"] == [{"field": "geo.country", "values": 3}, {"field": "device", "values": 2}]
    listed = {
        field: answer(one, f"{PATH}/keys/list", field=field)["keys"] for field in ("geo.country", "device")
    }
    assert listed == {"geo.country": ["FR", "DE", "other"], "device": ["tv", "desk/top"]}
    looked_up = answer(one, f"{PATH}/keys/list", key=["FR/*", "FR/radio", LABELS[3], "FR"])
    assert (looked_up["keys"], looked_up["unknown"]) == (["FR/*", LABELS[3]], ["FR/radio", "FR"])
    status, refused = answer(one, f"{PATH}/keys/list", field="town")
    assert (status, refused["error"]) == (
        400,
        "field: 'town' is none of several key fields; known are geo.country, device",
    )
    assert answer(one, f"{PATH}/count")["meaning"] == "Counts events whose device is listed."


def test_metrics_have_a_label_for_each_field(counted: Counted) -> None:
    one, table = counted
    samples = [
        sample
        for family in text_string_to_metric_families(answer(one, "/metrics"))
        for sample in family.samples
        if sample.name == "private_counts_key_running"
    ]
    assert [sample.labels["key"] for sample in samples] == list(LABELS)
    for sample, exact in zip(samples, table.sum(axis=0).ravel().tolist(), strict=True):
        key = f"{sample.labels['geo_country']}/{sample.labels['device']}".replace("desk/", "desk\\/")
        assert key == sample.labels["key"]
        assert sample.value == pytest.approx(exact, abs=0.01)
    asked = 'private_counts_key_bin{geo_country=~"FR|DE",device="desk/top"}'
    found = answer(one, "/api/v1/query", query=asked, time=seconds(BINS))["data"]["result"]
    assert [row["metric"]["key"] for row in found] == [r"FR/desk\/top", r"DE/desk\/top"]


def test_rules_over_patterns_read_the_rollup(counted: Counted) -> None:
    one, table = counted
    view = one.view()
    window = f"{4 * BIN_US // 1_000_000}s"
    conditions = {
        f"sum({STREAM}['FR/*'], {window}) > 1": table[-4:, 0].sum(),
        f"sum({STREAM}['FR/*', 'DE/tv'], {window}) > 1": table[-4:, 0].sum() + table[-4:, 1, 0].sum(),
        f"count({STREAM}['*/tv']) > 1": table[:, :, 0].sum(),
    }
    rules = [Rule(text, text, parse_condition(text)) for text in conditions]
    for reading, exact in zip(readings(rules, view), conditions.values(), strict=True):
        assert reading is not None
        assert reading.show()[0] == pytest.approx(exact, abs=0.01)
    for text in (f"count({STREAM}['FR/mobile']) > 1", f"count({STREAM}['FR/*', 'FR/tv']) > 1"):
        assert readings([Rule(text, text, parse_condition(text))], view) == [None]
