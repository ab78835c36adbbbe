"""Rows of a stream with a sum say the running sum of its epoch, with its error, beside the count."""

from __future__ import annotations

import asyncio
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dphist.tree.design import Release
from stream_app import client
from stream_app.core.answers.sums import sum_of
from tests.stream_app.declared import FIRST_BIN, NO_NOISE, STREAM
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

EPOCH_BINS = 6
WORDS = "sum of cart.amount, each clamped to -20 to 500 and rounded to 0.01"


def rows_of(one: ProductSource) -> list[dict[str, Any]]:
    """Return the rows that readers see."""

    async def read() -> list[dict[str, Any]]:
        return [json.loads(row) for _, row in await one.store.reader().rows(STREAM, 0, 99)]

    return asyncio.run(read())


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("total", [False, True])
def test_without_noise_rows_say_the_recount_of_their_epoch(
    tmp_path: Path, total: bool, release: Release
) -> None:
    one = released(tmp_path, sums_strategy(release, NO_NOISE, total), some_sales(7))
    _, cents = recounted(some_sales(7))
    rows = rows_of(one)
    assert len(rows) == BINS
    for bin, row in enumerate(rows):
        start = bin - bin % EPOCH_BINS
        truth = int(cents[start : bin + 1].sum()) / 100
        said = row["sum"]
        assert (said["field"], said["counted"], said["variance"]) == ("cart.amount", WORDS, 0)
        assert [said["estimate"], *said["interval"]] == pytest.approx([truth] * 3, abs=1e-9 if total else 0)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("total", [False, True])
def test_rows_say_the_sum_that_the_api_answered_when_they_were_new(
    tmp_path: Path, total: bool, release: Release
) -> None:
    """Both laws are exact, and both values follow from the same released columns."""
    one = Sales(tmp_path, sums_strategy(release, Fraction(1), total))
    sales = some_sales(12)
    for bin in range(BINS):
        one.append_sales([sale for sale in sales if bin <= sale[0] - FIRST_BIN < bin + 1])
        one.run_until(FIRST_BIN + bin + 1)
        view = asyncio.run(view_of(one.store))
        newest = next(epoch.span for epoch in reversed(view.epochs) if epoch.bins)
        summed = sum_of(view, newest)
        said, interval = rows_of(one)[-1]["sum"], summed.interval(0.95)
        assert said["estimate"] == pytest.approx(summed.value, abs=0.001)
        assert said["variance"] == pytest.approx(summed.variance, rel=1e-6)
        assert said["interval"] == pytest.approx([interval.lower, interval.upper], abs=0.01)
    one.close()


def test_rows_of_a_stream_without_a_sum_stay_as_they_were(tmp_path: Path) -> None:
    one = ProductSource(tmp_path, product_strategy())
    one.append_events([(FIRST_BIN + 0.5, "UA", 3)])
    one.run_until(FIRST_BIN + 1)
    one.close()
    [row] = rows_of(one)
    assert "sum" not in row
    assert client.Release.of(row).total is None


def test_the_client_reads_the_sum_of_a_row_and_rows_of_before(tmp_path: Path) -> None:
    one = released(tmp_path, sums_strategy("causal", Fraction(1)), some_sales(3))
    row = rows_of(one)[-1]
    found = client.Release.of(row)
    low, high = row["sum"]["interval"]
    assert (found.total, found.total_interval, found.added) == (row["sum"]["estimate"], (low, high), WORDS)
    del row["sum"]
    old = client.Release.of(row)
    assert (old.total, old.total_interval, old.added, old.value) == (None, None, "", found.value)
