"""Sums through the whole service, compared with a recount in whole cents."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from pathlib import Path

import httpx
import pytest

from dphist.tree.design import Release
from stream_app.api.app import create_app
from stream_app.core.answered import QueryError
from stream_app.core.kinds.tables import Span
from stream_app.core.records import Reason
from stream_app.core.sums import mean_over, sum_of
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

    async def ask() -> list[httpx.Response]:
        app = create_app(one.store.reader(), apart=SHARED)
        await app.state.replicas.refresh()
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            paths = ("sum", "mean", "sum?key=DE", "mean?key=DE&confidence=0.999999", "sum?key=ES", "")
            return [await client.get(f"/v1/streams/{STREAM}/{path}".rstrip("/")) for path in paths]

    summed, mean, of_key, mean_of_key, unknown, detail = asyncio.run(ask())
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
