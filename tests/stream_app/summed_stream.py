"""A small stream with sums for tests of the loops and readers: sales per country, and their amounts."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from dphist.planning.product import plan_sums
from dphist.tree.design import Release
from stream_app.core.counting.cells import Amounts, KeyList
from stream_app.core.kinds import kind_of
from stream_app.core.strategy import Strategy
from stream_app.sources.file import FileSource
from tests.stream_app.declared import BIN_US, FIRST_BIN, NO_NOISE, strategy_of
from tests.stream_app.files import AT
from tests.stream_app.product_stream import ProductSource

AMOUNTS = Amounts("cart.amount", Fraction(-20), Fraction(500), Fraction(1, 100))
COUNTRIES = ("FR", "DE")
BINS = 9  # an epoch and a half
RELEASES: list[Release] = ["causal", "anticipating"]
Sale = tuple[float, str, Any] | tuple[float, str, Any, str]  # place in bins, country, amount, user


def sums_strategy(
    release: Release, epsilon: Fraction = NO_NOISE, total: bool = False, max_events: int | None = None
) -> Strategy:
    """Return a strategy over countries and amounts. Args: max_events, of each user; None: no cap."""
    design = plan_sums(
        6,
        epsilon,
        AMOUNTS.range.weight,
        3,
        total_share=Fraction(1, 5) if total else Fraction(0),
        release=release,
        max_events=max_events or 1,
        branching=(2, 3),
    )
    keys = KeyList("country", COUNTRIES, True, total)
    return replace(
        strategy_of(design.time, keys=keys, amounts=AMOUNTS, max_events=max_events), kind=kind_of(design)
    )


class Sales(ProductSource):
    """A file of sales, a store and a witness."""

    def source(self) -> FileSource:
        """Open the file."""
        self.sources.append(
            FileSource(self.path, "ndjson", AT, self.directory / "notes", ["country", "cart.amount", "user"])
        )
        return self.sources[-1]

    def append_sales(self, sales: list[Sale]) -> None:
        """Append sales; an amount of None is left out of the record."""
        with self.path.open("ab") as file:
            for bin, country, amount, *user in sales:
                cart = {} if amount is None else {"amount": amount}
                line = {
                    "at": int(bin * BIN_US),
                    "country": country,
                    "cart": cart,
                    "user": (user or ["all"])[0],
                }
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
    for bin, country, amount, *_ in sales:
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
