"""Sums beside a cap per user, through the whole service, compared with a recount in whole cents."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from dphist.tree.design import Release
from stream_app.core.answers.sums import mean_over, sum_of
from stream_app.core.incoming import Reason
from stream_app.core.kinds.tables import Span
from tests.stream_app.declared import FIRST_BIN, STREAM
from tests.stream_app.product_stream import view_of
from tests.stream_app.summed_stream import (
    AMOUNTS,
    BINS,
    RELEASES,
    Sale,
    Sales,
    recounted,
    released,
    some_sales,
    sums_strategy,
)

MOST = 2
USERS = 25
EPOCH = 6  # bins


def sales_of_users(seed: int) -> list[Sale]:
    """Return sales in which no user has two in one bin, so that bins alone decide which ones count."""
    rng, seen = np.random.default_rng(seed), set[tuple[int, str]]()
    sales: list[Sale] = []
    for bin, country, amount, *_ in some_sales(seed):
        user = f"u{rng.integers(0, USERS)}"
        if (int(bin), user) not in seen:
            seen.add((int(bin), user))
            sales.append((bin, country, amount, user))
    return sales


def counting(sales: list[Sale]) -> list[Sale]:
    """Return the sales that count: of each user the first ones in each epoch that have an amount."""
    taken = dict[tuple[int, str], int]()
    kept = []
    for sale in sorted(sales, key=lambda sale: int(sale[0])):
        if sale[2] in (None, "?"):
            continue
        window = ((int(sale[0]) - FIRST_BIN) // EPOCH, str(sale[-1]))
        taken[window] = taken.get(window, 0) + 1
        if taken[window] <= MOST:
            kept.append(sale)
    return kept


@pytest.mark.parametrize("release", RELEASES)
def test_without_noise_sums_are_a_recount_of_the_first_events_of_each_user(
    tmp_path: Path, release: Release
) -> None:
    sales = sales_of_users(5)
    one = released(tmp_path, sums_strategy(release, max_events=MOST), sales)
    kept = counting(sales)
    assert MOST * USERS < len(kept) < 0.6 * len(sales)
    counts, cents = recounted(kept)
    view = asyncio.run(view_of(one.store))
    for a, b in ((0, BINS), (0, EPOCH), (1, 4), (7, 9)):
        span = Span(FIRST_BIN + a, FIRST_BIN + b)
        for key, columns in ((None, [0, 1, 2]), ("FR", [0]), ("other", [2])):
            number, total = (int(table[a:b, columns].sum()) for table in (counts, cents))
            assert view.of_key(key).count(span).value == pytest.approx(number, abs=1e-9)
            assert sum_of(view, span, key).value == pytest.approx(total / 100, abs=1e-9)
            if number:
                assert mean_over(view, span, key).value == pytest.approx(total / 100 / number, abs=1e-9)
    over = sum(sale[2] not in (None, "?") for sale in sales) - len(kept)
    assert one.store._streams[STREAM].operator_counts[Reason.OVER_CAP] == over


def test_one_user_adds_the_cap_times_the_weight_at_most(tmp_path: Path) -> None:
    """Many events of one user, in one bin and with all kinds of amounts, add as much as the cap allows."""
    rng = np.random.default_rng(2)
    many: list[Sale] = [
        (FIRST_BIN + 0.5 + bin, str(rng.choice(["FR", "DE", "IT"])), float(rng.integers(-40, 700)), "ann")
        for bin in (0, 0, 0, 0, 0, 1, 1, 2)
    ]
    one = Sales(tmp_path, sums_strategy("causal", max_events=MOST))
    one.append_sales(many)
    one.run_until(FIRST_BIN + 3)
    one.close()
    view = asyncio.run(view_of(one.store))
    ends = view.epochs[0].rows("2")  # the leaves: every bin's cells, without noise
    assert int(np.abs(ends).sum()) == MOST * AMOUNTS.range.weight
    assert int(np.abs(ends[1:]).sum()) == 0  # earlier bins count first


def test_sales_of_users_dated_far_ahead_are_refused_by_record(tmp_path: Path) -> None:
    one = Sales(tmp_path, sums_strategy("causal", max_events=MOST))
    far: list[Sale] = [(FIRST_BIN + 40, "FR", 20, "ann"), (FIRST_BIN + 50, "DE", -1, "bob")]
    one.append_sales([(FIRST_BIN + 0.5, "FR", 10, "ann"), *far])
    one.run_until(FIRST_BIN + 1)
    one.run_until(FIRST_BIN + 3)
    one.close()
    assert one.store._streams[STREAM].operator_counts[Reason.FUTURE] == 2
    view = asyncio.run(view_of(one.store))
    assert sum_of(view, view.span).value == 10
