"""Groups of keys, and rollups of several key fields, equal a recount in every answer, metric and rule."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from dphist.arrays import Int64Array
from stream_app.api import replies
from stream_app.api.admission.work import QUICK_US
from stream_app.api.answers import counts
from stream_app.api.schemas import CountQuery
from stream_app.client import Client
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.readings import readings
from stream_app.core.alerts.rules import Rule
from stream_app.core.answers.asked_keys import MOST_NAMES
from stream_app.shell.commands import main
from tests.stream_app.api.test_axes_surface import BINS, LABELS, Counted, answer, counted, seconds
from tests.stream_app.declared import BIN_US, STREAM
from tests.world import World
from tests.world.counted import counted as counted_visits
from tests.world.counted import table_of
from tests.world.features import BUCKETS, FEATURES, Feature, total_of

pytestmark = pytest.mark.slow

__all__ = ["counted"]  # the fixture: a stream without noise, and its exact counts

PATH = f"/v1/streams/{STREAM}"
GROUP = ["FR", "other"]
PLACES = [LABELS.index(key) for key in GROUP]
EVENTS = "Counts events with a number in flight.delay."
WORDS = f"{EVENTS} These numbers are of 2 keys together: FR, other."


def names(found: dict[str, Any]) -> tuple[Any, ...]:
    return found["key"], found["keys"], found["meaning"]


def test_counts_and_series_of_a_group_equal_the_recount(counted: Counted) -> None:
    one, table = counted
    truth = table[:, PLACES].sum(axis=(1, 2))
    found = answer(one, f"{PATH}/count", key=GROUP)
    assert found["value"] == pytest.approx(truth.sum(), abs=0.01)
    assert found["interval"] == pytest.approx([truth.sum()] * 2, abs=0.01)
    assert names(found) == ("FR, other", GROUP, WORDS)
    series = answer(one, f"{PATH}/series", key=GROUP, kind="bin")
    assert np.allclose(series["value"], truth, atol=0.01)
    assert names(series) == ("FR, other", GROUP, WORDS)
    whole = answer(one, f"{PATH}/series", key=GROUP, view="consistent")
    assert whole["value"] == truth.cumsum().tolist()
    but = answer(one, f"{PATH}/count", not_key=["DE"])
    assert but["value"] == pytest.approx(truth.sum(), abs=0.01)
    assert (but["key"], but["not_keys"], "keys" in but) == ("all but DE", ["DE"], False)
    assert but["meaning"].endswith("of 2 keys together: all but DE.")
    part = answer(one, f"{PATH}/preview", key=GROUP, epsilon=1)
    assert np.allclose(part["value"], truth, atol=0.01)
    assert part["meaning"] == WORDS


def test_distributions_of_a_group_equal_the_recount(counted: Counted) -> None:
    one, table = counted
    truth = table[:, PLACES].sum(axis=(0, 1)).cumsum()
    cdf = answer(one, f"{PATH}/cdf", key=GROUP)
    assert cdf["consistent"] == truth.tolist()
    assert names(cdf) == ("FR, other", GROUP, WORDS)
    found = answer(one, f"{PATH}/quantile", key=GROUP, q=0.5)
    assert names(found) == ("FR, other", GROUP, WORDS)
    [slices] = answer(one, f"{PATH}/quantiles", key=GROUP, q=0.5, step=BINS)["quantiles"]
    assert slices["value"] == [found["quantiles"][0]["value"]]
    growing = answer(one, f"{PATH}/cdfs", key=GROUP, step=BINS)
    assert growing["counts"] == [truth.tolist()]
    heat = answer(one, f"{PATH}/heat", key=GROUP, step=BINS, rows=BUCKETS)
    assert np.allclose(heat["counts"], np.diff(truth, prepend=0)[np.newaxis], atol=0.01)
    assert names(growing) == names(heat) == ("FR, other", GROUP, WORDS)


def test_lists_of_keys_show_the_named_ones_only(counted: Counted) -> None:
    one, _ = counted
    found = answer(one, f"{PATH}/keys", key=GROUP, step=BINS)
    assert sorted(row["key"] for row in found["keys"]) == sorted(GROUP)
    assert found["keys_available"] == 2


@pytest.mark.parametrize("what", ["count", "series", "cdf", "quantile"])
def test_answer_about_one_key_has_no_field_of_groups(what: str, counted: Counted) -> None:
    one, _ = counted
    for key in ("FR", None):
        levels = {"q": 0.5} if what == "quantile" else {}
        found = answer(one, f"{PATH}/{what}", **({"key": key} if key else {}), **levels)
        assert found["key"] == key
        assert not {"keys", "not_keys"} & set(found)
        assert found["meaning"] == EVENTS


def test_names_that_make_no_group_are_refused_in_one_line(counted: Counted) -> None:
    one, _ = counted
    for keys, status, words in (
        ({"key": ["FR", "ZZ"]}, 400, "key: 'ZZ' is not on the public list; known are FR, DE, other"),
        ({"key": ["FR", "FR"]}, 400, "key: 'FR' is named twice; an event is counted once, so take one out"),
        ({"not_key": "ZZ"}, 400, "not_key: 'ZZ' is not on the public list"),
        ({"not_key": LABELS}, 400, "not_key: every key is left out; name fewer of them"),
        ({"key": "FR", "not_key": "DE"}, 400, "not_key: leave key out"),
        ({"key": ["FR"] * (MOST_NAMES + 1)}, 422, "at most 1000 items"),
    ):
        for path in ("count", "series", "keys", "cdf"):
            found, body = answer(one, f"{PATH}/{path}", **keys)
            assert (found, "\n" in body["error"]) == (status, False)
            assert words in body["error"]
            assert len(body["error"]) < 400


def test_groups_are_computed_in_the_process_for_long_questions(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of 1,000 names takes its turn like every long question; a single key is answered at once."""
    one, _ = counted
    asked: list[float] = []
    own = replies.computing

    def noted(request: Any, us: float, replica: Any) -> Any:
        asked.append(us)
        return own(request, us, replica)

    monkeypatch.setattr(replies, "computing", noted)
    for keys in ({"key": "FR"}, {"key": GROUP}, {"not_key": "FR"}):
        answer(one, f"{PATH}/count", **keys)
    assert [us > QUICK_US for us in asked] == [False, True, True]


def test_sums_and_means_of_a_group_equal_the_recount() -> None:
    sales = FEATURES["sums-by-key-and-total"]
    with counted_visits(sales, "anticipating", BINS) as (one, recount):
        own = [sale for key in ("FR", "DE") for sale in recount.within(0, BINS, key)]
        total, mean = float(total_of(own, sales)), float(total_of(own, sales) / len(own))
        found = answer(one, f"{PATH}/sum", key=["FR", "DE"])
        assert found["value"] == pytest.approx(total, abs=0.01)
        assert names(found)[:2] == ("FR, DE", ["FR", "DE"])
        found = answer(one, f"{PATH}/mean", key=["FR", "DE"])
        assert found["value"] == pytest.approx(mean, abs=1e-3)
        assert found["interval"] == pytest.approx([mean] * 2, abs=1e-3)
        assert found["meaning"].endswith("of 2 keys together: FR, DE.")


def test_client_and_terminal_ask_for_groups(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    one, table = counted
    truth = table[:, PLACES].sum()
    view = one.view()
    seen: list[tuple[str, list[str]]] = []

    def serve(request: httpx.Request) -> httpx.Response:
        seen.extend((name, request.url.params.get_list(name)) for name in ("key", "not_key"))
        asked: dict[str, Any] = {name: request.url.params.get_list(name) for name in ("key", "not_key")}
        return httpx.Response(200, json=counts.count(view, CountQuery(**asked)).model_dump(mode="json"))

    with Client("http://service", transport=httpx.MockTransport(serve)) as client:
        assert client.count(STREAM, key=GROUP).value == pytest.approx(truth, abs=0.01)
        assert client.count(STREAM, key=tuple(GROUP)).meaning == WORDS
        assert client.count(STREAM, not_key="FR").meaning.endswith("all but FR.")
        with pytest.raises(ValueError, match="key: names no key"):
            client.count(STREAM, key=[])
    assert [keys for _, keys in seen] == [GROUP, [], GROUP, [], [], ["FR"]]

    class Mocked(Client):
        def __init__(self, url: str, api_key: str | None) -> None:
            super().__init__(url, transport=httpx.MockTransport(serve))

    monkeypatch.setattr("stream_app.shell.readers.Client", Mocked)
    asked = ["query", STREAM, "--url", "http://service", "--key", "FR", "--key", "other", "--format", "json"]
    said = json.loads(CliRunner().invoke(main, asked).output)
    assert (said["value"], said["meaning"]) == (pytest.approx(truth, abs=0.01), WORDS)
    both = CliRunner().invoke(main, [*asked, "--histogram"])
    assert "name one key" in both.output


COUNTRIES, DEVICES = ("FR", "DE", "other"), ("tv", "desk/top")
KEYS = {
    "fields": ["geo.country", "device"],
    "list": {"geo.country": [*COUNTRIES[:2]], "device": [*DEVICES]},
    "other": {"geo.country": True, "device": False},
}
CELLS = FEATURES["key-fields"].keys
Rolled = tuple[World, Int64Array]


@pytest.fixture(scope="module", params=[("causal", True), ("anticipating", False)], ids=str)
def rolled(request: pytest.FixtureRequest) -> Iterator[Rolled]:
    """Yield a stream without noise, and its exact counts, (bins, countries, devices)."""
    release, total = request.param
    visits = Feature({"keys": {**KEYS, "total": total}})
    with counted_visits(visits, release, BINS) as (world, recount):
        yield world, table_of(recount, visits, BINS).sum(axis=2).reshape(BINS, 3, 2)


def test_cells_rollups_and_total_equal_the_recount_and_add_up(rolled: Rolled) -> None:
    one, table = rolled
    view = one.view()
    for place, label in enumerate(CELLS):
        exact = table.reshape(BINS, -1)[:, place]
        assert view.of_key(label).count(view.span).value == pytest.approx(exact.sum(), abs=0.01)
    exacts = {
        "FR/*": table[:, 0],
        "other/*": table[:, 2],
        "*/tv": table[:, :, 0],
        r"*/desk\/top": table[:, :, 1],
        "*/*": table,
    }
    for pattern, exact in exacts.items():
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


def test_rows_by_field_are_its_rollups(rolled: Rolled) -> None:
    one, table = rolled
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


def test_description_names_fields_and_values(rolled: Rolled) -> None:
    one, _ = rolled
    axes = answer(one, PATH)["axes"]
    assert (axes["keys"], axes["first_keys"]) == (6, list(CELLS))
    assert axes["key_fields"] == [{"field": "geo.country", "values": 3}, {"field": "device", "values": 2}]
    listed = {
        field: answer(one, f"{PATH}/keys/list", field=field)["keys"] for field in ("geo.country", "device")
    }
    assert listed == {"geo.country": ["FR", "DE", "other"], "device": ["tv", "desk/top"]}
    looked_up = answer(one, f"{PATH}/keys/list", key=["FR/*", "FR/radio", CELLS[3], "FR"])
    assert (looked_up["keys"], looked_up["unknown"]) == (["FR/*", CELLS[3]], ["FR/radio", "FR"])
    status, refused = answer(one, f"{PATH}/keys/list", field="town")
    assert (status, refused["error"]) == (
        400,
        "field: 'town' is none of several key fields; known are geo.country, device",
    )
    assert answer(one, f"{PATH}/count")["meaning"] == "Counts events whose device is listed."


def test_metrics_have_a_label_for_each_field(rolled: Rolled) -> None:
    one, table = rolled
    samples = [
        sample
        for family in text_string_to_metric_families(answer(one, "/metrics"))
        for sample in family.samples
        if sample.name == "private_counts_key_running"
    ]
    assert [sample.labels["key"] for sample in samples] == list(CELLS)
    for sample, exact in zip(samples, table.sum(axis=0).ravel().tolist(), strict=True):
        key = f"{sample.labels['geo_country']}/{sample.labels['device']}".replace("desk/", "desk\\/")
        assert key == sample.labels["key"]
        assert sample.value == pytest.approx(exact, abs=0.01)
    asked = 'private_counts_key_bin{geo_country=~"FR|DE",device="desk/top"}'
    found = answer(one, "/api/v1/query", query=asked, time=seconds(BINS))["data"]["result"]
    assert [row["metric"]["key"] for row in found] == [r"FR/desk\/top", r"DE/desk\/top"]


def test_rules_over_patterns_read_the_rollup(rolled: Rolled) -> None:
    one, table = rolled
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
