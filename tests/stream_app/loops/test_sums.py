"""Sums through the whole service, compared with a recount in whole cents."""

from __future__ import annotations

import asyncio
from dataclasses import astuple
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow
import pyarrow.ipc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dphist.tree.design import Release
from stream_app.api.app import create_app
from stream_app.api.metrics.text import Newest, exposition
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.sums import mean_over, mean_series, sum_of, sum_series
from stream_app.core.incoming import Reason
from stream_app.core.kinds.tables import SeriesKind, Span
from tests.stream_app.api.client import SHARED
from tests.stream_app.declared import FIRST_BIN, STREAM
from tests.stream_app.product_stream import ProductSource, product_strategy, view_of
from tests.stream_app.summed_stream import (
    BINS,
    RELEASES,
    Sales,
    recounted,
    released,
    some_sales,
    sums_strategy,
)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("total", [False, True])
def test_without_noise_sums_means_and_counts_are_the_recount(
    tmp_path: Path, total: bool, release: Release
) -> None:
    sales = some_sales(7)
    one = released(tmp_path, sums_strategy(release, total=total), sales)
    counts, cents = recounted(sales)
    view = asyncio.run(view_of(one.store))
    for a, b in ((0, BINS), (1, 5), (7, 9), (4, 5)):
        span = Span(FIRST_BIN + a, FIRST_BIN + b)
        for key, columns in ((None, [0, 1, 2]), ("FR", [0]), ("DE", [1]), ("other", [2])):
            number, total_cents = (int(table[a:b, columns].sum()) for table in (counts, cents))
            assert view.of_key(key).count(span).value == pytest.approx(number, abs=1e-9)
            summed = sum_of(view, span, key)
            assert summed.value == pytest.approx(total_cents / 100, abs=1e-9)
            assert (summed.variance, summed.stderr) == (0, 0)
            mean = mean_over(view, span, key)
            assert mean.value == pytest.approx(total_cents / 100 / number, abs=1e-9)
            assert mean.upper - mean.lower < 0.01
    if not total:  # whole cents come out as they would be written
        assert sum_of(view, Span(FIRST_BIN, FIRST_BIN + BINS)).value == cents.sum() / 100
    running = view.series("running", view.span).values
    assert running.tolist() == pytest.approx(counts.sum(axis=1).cumsum().tolist(), abs=1e-3)
    bad = sum(amount in (None, "?") for *_, amount in sales)
    assert one.letters.reasons() == [Reason.BAD_VALUE] * bad


def test_sales_dated_far_ahead_are_counted_for_the_operator_by_record(tmp_path: Path) -> None:
    one = Sales(tmp_path, sums_strategy("causal"))
    one.append_sales([(FIRST_BIN + 0.5, "FR", 10), (FIRST_BIN + 40, "FR", 20), (FIRST_BIN + 50, "DE", -1)])
    one.run_until(FIRST_BIN + 1)
    one.run_until(FIRST_BIN + 3)
    one.close()
    assert one.store._streams[STREAM].operator_counts[Reason.FUTURE] == 2
    view = asyncio.run(view_of(one.store))
    assert sum_of(view, view.span).value == 10


@pytest.mark.parametrize("release", RELEASES)
def test_the_api_answers_sums_and_means(tmp_path: Path, release: Release) -> None:
    one = released(tmp_path, sums_strategy(release, Fraction(1)), some_sales(8))
    counts, cents = recounted(some_sales(8))

    paths = ["sum", "mean", "sum?key=DE", "mean?key=DE&confidence=0.999999", "sum?key=ES", ""]
    summed, mean, of_key, mean_of_key, unknown, detail = asyncio.run(asked(one, paths))
    amounts = {"field": "cart.amount", "min": -20, "max": 500, "unit": 0.01}
    for answer in (summed, mean, of_key, mean_of_key):
        assert answer.status_code == 200, answer.text
        assert answer.json()["amounts"] == amounts
    for answer, of in ((summed, "sum"), (of_key, "sum"), (mean, "mean")):
        words = f"{of} of cart.amount, each clamped to -20 to 500 and rounded to 0.01"
        assert (answer.json()["counted"], answer.json()["meaning"]) == (words, f"The {words}.")
        assert f"for the {of} of the clamped and rounded amounts" in answer.json()["intervals"]
    truth = cents.sum() / 100
    assert abs(summed.json()["value"] - truth) < 12 * summed.json()["stderr"]
    low, high = mean_of_key.json()["interval"]
    assert -20 <= low < high <= 500
    assert low <= cents[:, 1].sum() / 100 / counts[:, 1].sum() <= high
    assert unknown.status_code in (400, 404, 422)
    assert "is not on the public list" in unknown.text
    assert detail.json()["sum"] == amounts


@pytest.mark.parametrize("total", [False, True])
def test_metrics_are_the_answers_of_the_api(tmp_path: Path, total: bool) -> None:
    one = released(tmp_path, sums_strategy("causal", Fraction(1), total), some_sales(11))
    view = asyncio.run(view_of(one.store))
    text = exposition([Newest.of(view, with_keys=True)], {}).decode()
    found = {
        (line.name.removeprefix("private_counts_"), line.labels.get("key")): line.value
        for family in text_string_to_metric_families(text)
        for line in family.samples
    }
    for key in (None, "FR", "DE", "other"):
        name = "sum_running" if key is None else "key_sum_running"
        summed = sum_of(view, view.span, key)
        interval = summed.interval(0.95)
        parts = {
            "": summed.value,
            "_stderr": summed.stderr,
            "_lower": interval.lower,
            "_upper": interval.upper,
        }
        for part, value in parts.items():
            assert found[f"{name}{part}", key] == pytest.approx(float(value), rel=1e-9)
    mean = mean_over(view, view.span)
    names = ("mean_running", "mean_running_lower", "mean_running_upper")
    assert [found[name, None] for name in names] == pytest.approx(list(astuple(mean)), rel=1e-12)
    events = float(np.sum(view.epochs[-1].estimate(Span(0, 3), "unbiased").value))
    filled = found["sum_epoch_filled", None]
    assert filled == pytest.approx(max(events, 0) * 52_000 / 2**44, rel=1e-9)
    assert "Stream shop: The sum of cart.amount, each clamped to" in text.replace(
        f"Stream {STREAM}", "Stream shop"
    )


def test_a_service_without_sums_has_no_metric_of_them(tmp_path: Path) -> None:
    one = ProductSource(tmp_path, product_strategy())
    one.append_events([(FIRST_BIN + 0.5, "UA", 3)])
    one.run_until(FIRST_BIN + 1)
    one.close()
    assert b"sum" not in exposition([Newest.of(asyncio.run(view_of(one.store)))], {})


KINDS: list[tuple[SeriesKind, dict[str, Any]]] = [
    ("running", {}),
    ("bin", {}),
    ("bin", {"step": 2}),
    ("window", {"window": 3}),
]


@pytest.mark.parametrize("release", RELEASES)
def test_without_noise_every_point_of_a_series_is_the_recount(tmp_path: Path, release: Release) -> None:
    sales = some_sales(9)
    one = released(tmp_path, sums_strategy(release), sales)
    counts, cents = recounted(sales)
    view = asyncio.run(view_of(one.store))
    for key, columns in ((None, [0, 1, 2]), ("DE", [1])):
        for kind, asked in KINDS:
            summed = sum_series(view, kind, view.span, key, **asked)
            means = mean_series(view, kind, view.span, key, **asked)
            assert summed.spans == means.spans
            assert summed.available == means.available == len(summed.spans) > 3
            for span, value, mean in zip(summed.spans, summed.values, means.means, strict=True):
                a, b = (bin - FIRST_BIN for bin in span)
                number, total = (int(table[a:b, columns].sum()) for table in (counts, cents))
                assert value == pytest.approx(total / 100, abs=1e-9)
                assert mean.value == pytest.approx(total / 100 / number, abs=1e-9)
                assert mean.upper - mean.lower < 0.01


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("total", [False, True])
def test_a_point_of_a_series_is_the_answer_about_its_range(
    tmp_path: Path, total: bool, release: Release
) -> None:
    one = released(tmp_path, sums_strategy(release, Fraction(1), total), some_sales(10))
    view = asyncio.run(view_of(one.store))
    for key in (None, "other"):
        for kind, asked in KINDS:
            summed = sum_series(view, kind, view.span, key, **asked)
            means = mean_series(view, kind, view.span, key, **asked, points=4)
            for place, span in enumerate(summed.spans):
                alone = sum_of(view, span, key)
                assert summed.values[place] == pytest.approx(alone.value, rel=1e-9, abs=1e-6)
                assert summed.laws.deviations()[place] == pytest.approx(alone.stderr, rel=1e-9)
            assert len(means.spans) == 4
            assert means.spans[-1] == summed.spans[-1]
            for span, mean in zip(means.spans, means.means, strict=True):
                expected = np.array(astuple(mean_over(view, span, key)), np.float64)  # no value: NaN
                assert np.array(astuple(mean), np.float64) == pytest.approx(expected, rel=1e-6, nan_ok=True)


def test_the_api_answers_series_of_sums_and_means_in_every_format(tmp_path: Path) -> None:
    one = released(tmp_path, sums_strategy("causal", Fraction(1)), some_sales(8))
    paths = [
        "sum/series?kind=bin",
        "mean/series?kind=bin&points=3",
        "sum/series?format=csv",
        "mean/series?format=arrow",
        "sum/series?view=consistent",
        "sum/series?view=first_published",
        "mean/series?kind=window",
        "mean/series?view=unbiased",
    ]
    answers = asyncio.run(asked(one, paths))
    sums, means, csv, arrow, *refused = answers
    assert [answer.status_code for answer in answers[:4]] == [200] * 4
    found, found_means = sums.json(), means.json()
    assert len(found["value"]) == len(found["stderr"]) == BINS
    assert found["lower"][0] < found["value"][0] < found["upper"][0]
    words = "of cart.amount, each clamped to -20 to 500 and rounded to 0.01"
    assert (found["counted"], found["meaning"]) == (f"sum {words}", f"The sum {words}.")
    assert (found_means["counted"], found_means["meaning"]) == (f"mean {words}", f"The mean {words}.")
    assert (len(found_means["value"]), found_means["points_available"]) == (3, BINS)
    assert "evenly spaced" in found_means["note"]
    assert csv.text.splitlines()[0] == "start,end,value,stderr,lower,upper,private,meaning"
    with pyarrow.ipc.open_stream(arrow.content) as reader:
        table = reader.read_all()
    assert table.column_names == ["start", "end", "value", "lower", "upper"]
    assert b"cart.amount" in table.schema.metadata[b"meaning"]
    assert {answer.status_code for answer in refused} <= {400, 422}
    lines = [answer.json()["error"] for answer in refused]
    assert lines[0] == "view: sums are never made consistent; leave out view and method"
    assert lines[1] == "view: only the count is kept as first published; leave out view"
    assert "window: say how many bins" in lines[2]


async def asked(one: Sales, paths: list[str]) -> list[httpx.Response]:
    """Return what the API answers about the stream."""
    app = create_app(one.store.reader(), apart=SHARED)
    await app.state.replicas.refresh()
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return [await client.get(f"/v1/streams/{STREAM}/{path}".rstrip("/")) for path in paths]


def test_a_stream_without_a_sum_says_so(tmp_path: Path) -> None:
    one = ProductSource(tmp_path, product_strategy())
    one.append_events([(FIRST_BIN + 0.5, "UA", 3)])
    one.run_until(FIRST_BIN + 1)
    one.close()
    view = asyncio.run(view_of(one.store))
    with pytest.raises(QueryError, match="this stream has no sum; configure sum"):
        sum_of(view, view.span)
    with pytest.raises(QueryError, match="this stream has no sum"):
        mean_over(view, view.span)
