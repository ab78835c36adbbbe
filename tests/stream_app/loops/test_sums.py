"""Sums through the whole service, compared with a recount in whole cents."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dphist.planning.product import plan_sums
from dphist.tree.design import Release
from stream_app.api.app import create_app
from stream_app.core.answered import QueryError
from stream_app.core.cells import Amounts, KeyList
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.tables import Span
from stream_app.core.records import Reason
from stream_app.core.strategy import Strategy
from stream_app.core.sums import mean_over, sum_of
from stream_app.sources.file import FileSource
from tests.stream_app.api.client import SHARED
from tests.stream_app.declared import BIN_US, FIRST_BIN, NO_NOISE, STREAM, strategy_of
from tests.stream_app.files import AT
from tests.stream_app.product_stream import ProductSource, product_strategy, view_of

AMOUNTS = Amounts("cart.amount", Fraction(-20), Fraction(500), Fraction(1, 100))
COUNTRIES = ("FR", "DE")
BINS = 9  # an epoch and a half
RELEASES: list[Release] = ["causal", "anticipating"]
Sale = tuple[float, str, Any]  # place on the time line in bins, country, amount


def sums_strategy(release: Release, epsilon: Fraction = NO_NOISE, total: bool = False) -> Strategy:
    """Return a strategy over countries and amounts."""
    design = plan_sums(
        6,
        epsilon,
        AMOUNTS.range.weight,
        3,
        total_share=Fraction(1, 5) if total else Fraction(0),
        release=release,
        branching=(2, 3),
    )
    keys = KeyList("country", COUNTRIES, True, total)
    return replace(strategy_of(design.time, keys=keys, amounts=AMOUNTS), kind=kind_of(design))


class Sales(ProductSource):
    """A file of sales, a store and a witness."""

    def source(self) -> FileSource:
        """Open the file."""
        self._sources.append(
            FileSource(self.path, "ndjson", AT, self.directory / "notes", ["country", "cart.amount"])
        )
        return self._sources[-1]

    def append_sales(self, sales: list[Sale]) -> None:
        """Append sales; an amount of None is left out of the record."""
        with self.path.open("ab") as file:
            for bin, country, amount in sales:
                cart = {} if amount is None else {"amount": amount}
                line = {"at": int(bin * BIN_US), "country": country, "cart": cart}
                file.write(json.dumps(line).encode() + b"\n")


def some_sales(seed: int) -> list[Sale]:
    """Return sales of all amounts: below, within and above the range, as numbers and as text."""
    rng = np.random.default_rng(seed)
    sales: list[Sale] = []
    for place in np.sort(rng.uniform(0, BINS, 60 * BINS)):
        cents = int(rng.integers(-4_000, 60_000))
        amount: Any = [cents / 100, f"{cents / 100:.2f}", None, "?"][min(int(rng.integers(0, 30)), 3)]
        if rng.random() < 0.9:
            amount = cents / 100
        sales.append((FIRST_BIN + float(place), ["FR", "DE", "IT"][int(rng.integers(0, 3))], amount))
    return sales


def recounted(sales: list[Sale]) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of sales, and the sum of their clamped amounts in cents, (bins, countries)."""
    counts, cents = np.zeros((2, BINS, 3), np.int64)
    for bin, country, amount in sales:
        if amount in (None, "?"):
            continue
        place = int(bin) - FIRST_BIN, ["FR", "DE", "IT"].index(country)
        counts[place] += 1
        cents[place] += min(max(round(Fraction(str(amount)) * 100), -2_000), 50_000)
    return counts, cents


def released(directory: Path, strategy: Strategy, sales: list[Sale]) -> Sales:
    """Count and release all sales; loops end and begin anew, in the middle of an epoch and between two."""
    one = Sales(directory, strategy)
    for start in range(0, BINS, 2):
        one.append_sales([sale for sale in sales if start <= sale[0] - FIRST_BIN < start + 2])
        one.run_until(FIRST_BIN + min(start + 2, BINS))
    one.close()
    return one


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
