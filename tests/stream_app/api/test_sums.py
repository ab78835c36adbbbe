"""Sums and means over time, and of every key: their history for Prometheus, series over calendar days."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dphist.product.sums import Mean
from stream_app.api.prometheus.promql import parse_selector
from stream_app.api.prometheus.samples import selected, values_of
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import mean_over, sum_of
from stream_app.core.kinds.tables import Span
from tests.models.memory import MemoryStore
from tests.stream_app.api.client import EXACT, Api, api_at, api_over, fill
from tests.stream_app.published_axes import PublishedSums, sales_of

pytestmark = pytest.mark.slow

HOURS, DAY = 60, 24
EDGES = {"start": "2013-01-01T05:00:00Z", "end": "2013-01-01T23:00:00Z"}
PARIS = {"kind": "bin", "days": 1, "timezone": "Europe/Paris"}
FIRST_DAY = {"start": "2013-01-01T23:00:00Z", "end": "2013-01-02T23:00:00Z"}  # that is whole, in Paris
WORDS = "of amount, each clamped to 0 to 500 and rounded to 0.01"


async def sold(epsilon: str, hours: int = HOURS) -> tuple[PublishedSums, np.ndarray]:
    """Return a stream with sales, and the cents of each bin and key."""
    stream = PublishedSums(MemoryStore(), epsilon=epsilon, epoch_bins=HOURS)
    cells, cents = sales_of(stream, hours)
    await fill(stream, cells)
    return stream, cents


def expected(view: StreamView, of: str, part: str, span: Span, key: str | None) -> float:
    """Return a part of the sum or the mean of a range, as the API answers it."""
    if of == "mean":
        mean: Mean = mean_over(view, span, key)
        return float(getattr(mean, part)) if getattr(mean, part) is not None else float("nan")
    found = sum_of(view, span, key)
    interval = found.interval(0.95)
    parts = {"value": found.value, "stderr": found.stderr, "lower": interval.lower, "upper": interval.upper}
    return float(parts[part])


@pytest.mark.parametrize("key", [None, "DE"])
async def test_history_of_sums_and_means_is_what_the_api_answers_for_each_range(key: str | None) -> None:
    stream, _ = await sold("1", 6)
    async with api_at(stream) as api:
        view = api.view
        first = view.span.start
        metrics = "sum_running", "sum_bin", "mean_running", "mean_bin"
        name = "private_counts_" if key is None else "private_counts_key_"
        pattern = f'{{__name__=~"{name}({"|".join(metrics)}).*"}}'
        matching = selected(view, [parse_selector(pattern)])
        wanted = [one for one in matching if one.labels.get("key") == key]
        assert len(wanted) == 2 * 4 + 2 * 3
        for one, found in zip(wanted, values_of(view, wanted, [first, first + 5]), strict=True):
            metric = one.metric
            for bin in (first, first + 5):
                span = Span(first if metric.quantity == "running" else bin, bin + 1)
                value = expected(view, metric.of, metric.part, span, key)
                assert found[bin] == pytest.approx(value, rel=1e-6), (one.labels, bin)


async def test_prometheus_reads_the_sum_of_each_key_and_bin_without_noise() -> None:
    stream, cents = await sold(EXACT, 6)
    async with api_at(stream) as api:
        asked = {"start": "2013-01-01T01:00:00Z", "end": "2013-01-01T06:00:00Z", "step": "1h"}
        query = "private_counts_key_sum_bin"
        answer = await api.json("/api/v1/query_range", query=query, **asked)
        found = {one["metric"]["key"]: one["values"] for one in answer["data"]["result"]}
        for place, key in enumerate([*stream.carriers, "other"]):
            values = [float(value) for _, value in found[key]]
            assert values == pytest.approx((cents[:, place] / 100).tolist())
        said = (await api.json("/api/v1/metadata"))["data"]
        [words] = said["private_counts_sum_running"]
        assert words["help"].startswith("Estimated sum of the amounts since the first bin of this generation")
        assert f"Stream {stream.name}: The sum {WORDS}." in words["help"]
        assert "private_counts_mean_running_stderr" not in said


async def test_a_mean_without_events_has_no_sample() -> None:
    stream = PublishedSums(MemoryStore(), epsilon=EXACT, epoch_bins=HOURS)
    await fill(stream, np.zeros((2, stream.keys, 2), np.int64))
    async with api_at(stream) as api:
        found = await api.json("/api/v1/query", query="private_counts_mean_bin", time="2013-01-01T02:00:00Z")
        assert found["data"]["result"] == []


async def test_bins_that_were_never_measured_stop_no_metric_and_no_overview() -> None:
    stream = PublishedSums(MemoryStore(), epsilon=EXACT, epoch_bins=8)
    cells, cents = sales_of(stream, 5)
    await fill(stream, cells[:3])
    state = await stream.store.load(stream.name)
    assert state is not None
    await stream.store.end_epoch(stream.name, 0, state.seq, "its noise was lost")
    await stream.open(1, stream.first_bin + 6)
    await stream.close_cells(cells[3:])
    async with api_at(stream) as api:
        total = cents.sum() / 100
        [glance] = (await api.json("/v1/overview"))["streams"]
        assert glance["sum"]["value"] == pytest.approx(total)
        text = (await api.get("/metrics")).text
        [line] = [one for one in text.splitlines() if one.startswith("private_counts_sum_running{")]
        assert float(line.split()[-1]) == pytest.approx(total)
        for query in ("private_counts_sum_running", "private_counts_key_sum_running"):
            answer = await api.json("/api/v1/query", query=query, time="2013-01-01T08:00:00Z")
            found = answer["data"]["result"]
            assert sum(float(one["value"][1]) for one in found) == pytest.approx(total)


async def test_sums_and_means_of_calendar_days_are_those_of_their_hours() -> None:
    stream, cents = await sold(EXACT)
    async with api_at(stream) as api:
        totals = await api.json("sum/series", **PARIS)
        means = await api.json("mean/series", **PARIS, key="FR")
        assert (totals["days"], totals["timezone"]) == (1, "Europe/Paris")
        assert (means["days"], means["timezone"]) == (1, "Europe/Paris")
        assert totals["value"] == pytest.approx([cents[23:47].sum() / 100])
        alone = await api.json("mean", key="FR", **FIRST_DAY)
        assert means["value"] == pytest.approx([alone["value"]])
        refused = await api.error("mean/series", kind="bin", days=1, step=2)
        assert "need kind=bin and no step" in refused[1]["error"]


async def test_days_of_sums_have_the_errors_of_the_same_hours() -> None:
    stream, _ = await sold("1")
    async with api_at(stream) as api:
        for of in ("sum", "mean"):
            days: dict[str, Any] = await api.json(f"{of}/series", **PARIS)
            alone = await api.json(of, **FIRST_DAY)
            assert days["value"] == pytest.approx([alone["value"]])
            assert [days["lower"][0], days["upper"][0]] == pytest.approx(alone["interval"])


async def test_preview_of_sums_has_their_values_and_the_widths_of_their_intervals() -> None:
    stream, _ = await sold("1", 12)
    async with api_at(stream) as api:
        for key in (None, "FR"):
            named = {} if key is None else {"key": key}
            found = await api.json("preview", of="sum", epsilon=0.25, step=6, **named)
            series = await api.json("sum/series", kind="bin", step=6, **named)
            assert found["value"] == pytest.approx(series["value"])
            halves = (np.array(series["upper"]) - np.array(series["lower"])) / 2
            assert found["half_width"] == pytest.approx(halves, rel=1e-3)
            assert np.all(np.array(found["preview_half_width"]) > 2 * halves)
            assert found["meaning"].startswith(f"The sum {WORDS}.")
            assert found["questions"][-1]["question"].endswith("its running total at the end")


async def test_sums_without_noise_are_the_recount_over_the_range_and_in_every_slice() -> None:
    stream, cents = await sold(EXACT, DAY)
    async with api_at(stream) as api:
        found = await api.json("sum/keys", step=6, aligned=True, **EDGES)
        order = np.argsort(-cents[5:23].sum(axis=0))
        assert [one["key"] for one in found["keys"]] == [[*stream.carriers, "other"][i] for i in order]
        assert [one["value"] for one in found["keys"]] == pytest.approx(cents[5:23].sum(axis=0)[order] / 100)
        slices = np.array([cents[a:b].sum(axis=0) for a, b in ((5, 6), (6, 12), (12, 18), (18, 23))]) / 100
        assert np.allclose([one["counts"] for one in found["keys"]], slices[:, order].T)
        assert found["meaning"].startswith("The sum of amount, each clamped to 0 to 500")
        assert found["amounts"]["unit"] == 0.01


async def test_every_key_has_the_answer_of_its_own_question() -> None:
    async def of_sums(api: Api) -> None:
        for one in (await api.json("sum/keys", confidence=0.9, **EDGES))["keys"]:
            alone = await api.json("sum", key=one["key"], confidence=0.9, **EDGES)
            assert one["value"] == pytest.approx(alone["value"])
            assert one["stderr"] == pytest.approx(alone["stderr"])
            assert one["interval"] == pytest.approx(alone["interval"])

    async def of_means(api: Api) -> None:
        answer = await api.json("mean/keys", confidence=0.9, **EDGES)
        counts = {one["key"]: one["value"] for one in (await api.json("keys", **EDGES))["keys"]}
        assert [one["key"] for one in answer["keys"]] == sorted(counts, key=lambda key: -counts[key])
        for one in answer["keys"]:
            alone = await api.json("mean", key=one["key"], confidence=0.9, **EDGES)
            assert (one["value"], one["interval"]) == (alone["value"], alone["interval"])

    stream, _ = await sold("1", DAY)
    async with api_at(stream) as api:
        await of_sums(api)
        await of_means(api)


async def test_fewer_keys_are_listed_and_the_note_says_how_many_are_not() -> None:
    stream, _ = await sold("1", DAY)
    async with api_at(stream) as api:
        for path, what in (("sum/keys", "sums"), ("mean/keys", "counts")):
            found = await api.json(path, limit=2)
            assert (len(found["keys"]), found["keys_available"]) == (2, 5)
            assert found["note"].startswith(f"3 keys with smaller {what} are not shown.")
            assert [one["key"] for one in (await api.json(path, key=["DE", "IT"]))["keys"]] == [
                "DE",
                "IT",
            ]


async def test_a_stream_without_a_sum_says_so() -> None:
    async with api_over([1, 2]) as api:
        for path in ("sum/keys", "mean/keys"):
            status, body = await api.error(path)
            assert status == 400
            assert "this stream has no sum" in body["error"]
