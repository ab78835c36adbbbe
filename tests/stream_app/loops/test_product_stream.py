"""Keys and values through the whole service, compared with a recount and with a neighbouring log."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.tree.design import Release
from stream_app.api.app import create_app
from stream_app.core.answers.answered import QueryError
from stream_app.core.incoming import Reason
from stream_app.core.kinds.tables import PUBLISHED, SeriesKind, Span, node_table
from stream_app.core.strategy import Strategy
from tests.examples import examples
from tests.stream_app.api.client import SHARED
from tests.stream_app.declared import BIN_US, FIRST_BIN, STREAM
from tests.stream_app.product_stream import (
    BUCKETS,
    CARRIERS,
    Event,
    ProductSource,
    product_strategy,
    recount,
    some_events,
    view_of,
)
from tests.stream_app.series import estimates

pytestmark = pytest.mark.slow

BINS = 9  # an epoch and a half
SERIES: tuple[tuple[SeriesKind, int], ...] = (("bin", 1), ("window", 4), ("running", 1))


def placed(events: list[Event]) -> list[Event]:
    return [(FIRST_BIN + bin, carrier, delay) for bin, carrier, delay in events]


def table_of(counts: Counter[tuple[int, int]], bins: int = BINS) -> np.ndarray:
    """Return counts as (bins, keys, buckets)."""
    table = np.zeros((bins, len(CARRIERS) + 1, BUCKETS), np.int64)
    for (bin, cell), count in counts.items():
        table[bin - FIRST_BIN, cell // BUCKETS, cell % BUCKETS] += count
    return table


RELEASES: list[Release] = ["causal", "anticipating"]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("total", [False, True])
def test_without_noise_every_answer_is_the_recount(tmp_path: Path, total: bool, release: Release) -> None:
    one = ProductSource(tmp_path, product_strategy(total=total, release=release))
    events = placed(some_events(5, BINS))
    for start in range(0, BINS, 2):
        # Loops end and new ones start, in the middle of an epoch and between two epochs.
        one.append_events(event for event in events if start <= event[0] - FIRST_BIN < start + 2)
        one.run_until(FIRST_BIN + min(start + 2, BINS))
    one.close()
    truth = table_of(recount(events))
    view = asyncio.run(view_of(one.store))
    assert view.span == (FIRST_BIN, FIRST_BIN + BINS)
    for a, b in ((0, BINS), (1, 5), (7, 9)):
        span = Span(FIRST_BIN + a, FIRST_BIN + b)
        for place, label in enumerate([*CARRIERS, "other"]):
            assert view.of_key(label).count(span).value == pytest.approx(truth[a:b, place].sum(), abs=1e-2)
        assert view.count(span).value == pytest.approx(truth[a:b].sum(), abs=1e-2)
        levels = view.cells(span).groups
        assert np.allclose(levels[-1].values, truth[a:b].sum(axis=0), atol=1e-2)
    whole = Span(FIRST_BIN, FIRST_BIN + BINS)
    for view_kind in ("unbiased", "first_published"):
        series = view.series("bin", whole, view=view_kind)
        assert [round(float(one.value)) for one in estimates(series)] == truth.sum(axis=(1, 2)).tolist()
    running = estimates(view.of_key("AA").series("running", whole))
    assert [round(float(one.value)) for one in running] == truth[:, 1].sum(axis=1).cumsum().tolist()
    reasons = Counter(one.letters.reasons())
    assert reasons == {Reason.BAD_VALUE: sum(delay is None for _, _, delay in events)}


def test_rows_hold_the_total_and_vouch_for_the_tiles(tmp_path: Path) -> None:
    one = ProductSource(tmp_path, product_strategy(Fraction(1)))
    one.append_events(placed(some_events(6, 6)))
    one.run_until(FIRST_BIN + 4)
    one.run_until(FIRST_BIN + 6)
    one.close()

    async def read() -> None:
        reader, strategy = one.store.reader(), one.strategies[0]
        rows = [json.loads(row) for _, row in await reader.rows(STREAM, 0, 99)]
        published = await reader.tile_rows(STREAM, 0, PUBLISHED, 0, 6, 1)
        view = await view_of(one.store)
        shown = estimates(view.series("running", Span(FIRST_BIN, FIRST_BIN + 6), view="first_published"))
        assert len(rows) == 6
        for position, row in enumerate(rows):
            assert row["published"] == published[position].tolist()
            assert row["estimate"] == [row["published"][0] / 2**16] == [shown[position].value]
            assert row["variance"] == pytest.approx(shown[position].variance)
            assert row["nodes"] == []
            for level, index, digest in row["node_hashes"]:
                table = node_table(level)
                node = await reader.tile_rows(STREAM, 0, table, index, 1, strategy.kind.tables[table])
                assert hashlib.sha256(node.astype("<i8").tobytes()).hexdigest() == digest
        assert sum(len(row["node_hashes"]) for row in rows) == 6 + 2
        for key in (None, "AA"):
            for kind, window in SERIES:
                series = view.of_key(key).series(kind, Span(FIRST_BIN, FIRST_BIN + 6), window=window)
                for span, point in zip(series.spans, estimates(series), strict=True):
                    alone = view.of_key(key).count(span)
                    assert point.variance == pytest.approx(alone.variance)
                    assert point.variance > 1
                    assert point.rounding == pytest.approx(alone.rounding)

    asyncio.run(read())


def test_published_columns_are_vouched_for_and_err_as_stated(tmp_path: Path) -> None:
    strategy = product_strategy(Fraction(1), total=True, release="anticipating")
    one = ProductSource(tmp_path, strategy)
    one.append_events(placed(some_events(6, 9)))
    for bin in (4, 6, 9):
        one.run_until(FIRST_BIN + bin)
    one.close()

    async def read() -> None:
        reader = one.store.reader()
        rows = [json.loads(row) for _, row in await reader.rows(STREAM, 0, 99)]
        view = await view_of(one.store)
        whole = Span(FIRST_BIN, FIRST_BIN + 9)
        shown = estimates(view.series("running", whole))
        assert [row["epoch"] for row in rows] == [0] * 6 + [1] * 3
        for row in rows[:6]:
            position = row["bin"] - FIRST_BIN
            columns = await reader.tile_rows(
                STREAM, 0, PUBLISHED, position, 1, strategy.kind.tables[PUBLISHED]
            )
            assert hashlib.sha256(columns.astype("<i8").tobytes()).hexdigest() == row["columns_hash"]
            assert row["nodes"] == []
            assert row["estimate"] == [row["published"][0] / 2**16]
            assert row["estimate"][0] == pytest.approx(shown[position].value, abs=2.0**-16)
            assert row["variance"] == pytest.approx(shown[position].variance)
        for key in (None, "AA"):
            for kind, window in SERIES:
                series = view.of_key(key).series(kind, whole, window=window)
                for span, point in zip(series.spans, estimates(series), strict=True):
                    alone = view.of_key(key).count(span)
                    assert point.value == pytest.approx(alone.value)
                    assert point.variance == pytest.approx(alone.variance)
                    assert point.rounding >= alone.rounding * (1 - 1e-9)
        # Epochs have independent noise and all values are final, so all views are equal.
        first = view.series("bin", whole, view="first_published").values
        assert np.array_equal(first, view.series("bin", whole).values)

    asyncio.run(read())


def cells_after(strategy: Strategy, events: list[Event], batches: int) -> dict[tuple[int, int], int]:
    """Count events with loops that restart; return the exact cells of bins that are not released yet."""
    with TemporaryDirectory() as directory:
        one = ProductSource(Path(directory), strategy)
        for part in range(batches):
            one.append_events(events[part::batches])
            one.run_until(FIRST_BIN)
        one.close()
        return one.open_cells()


@pytest.mark.slow
@examples(25)
@given(st.integers(0, 10**6), st.data())
def test_one_record_less_moves_one_cell_by_one(seed: int, data: st.DataObject) -> None:
    other = data.draw(st.booleans())
    strategy = product_strategy(other=other)
    # All events are in the open bin or the next one, so that none is from the future.
    events = placed([(min(place, 1.0), carrier, delay) for place, carrier, delay in some_events(seed, 2, 8)])
    left_out = data.draw(st.integers(0, len(events) - 1))
    neighbour = events[:left_out] + events[left_out + 1 :]
    first = cells_after(strategy, events, data.draw(st.integers(1, 3)))
    second = cells_after(strategy, neighbour, data.draw(st.integers(1, 3)))
    assert first == recount(events, other)
    moved = {cell: first.get(cell, 0) - second.get(cell, 0) for cell in first.keys() | second.keys()}
    counted = recount([events[left_out]], other)
    assert {cell: by for cell, by in moved.items() if by} == counted
    assert sum(counted.values()) <= 1


def test_keys_off_the_list_are_refused_where_nothing_is_other(tmp_path: Path) -> None:
    one = ProductSource(tmp_path, product_strategy(other=False, value=False))
    one.append_events([(FIRST_BIN, "ZZ", 1), (FIRST_BIN, "UA", None), (FIRST_BIN, None, 3)])
    one.run_until(FIRST_BIN)
    one.close()
    assert one.open_cells() == {(FIRST_BIN, 0): 1}
    assert one.letters.reasons() == [Reason.UNKNOWN_KEY] * 2


def test_keys_are_only_known_from_the_list(tmp_path: Path) -> None:
    one = ProductSource(tmp_path, product_strategy())
    one.append_events(placed(some_events(1, 1)))
    one.run_until(FIRST_BIN + 1)
    one.close()
    view = asyncio.run(view_of(one.store))
    with pytest.raises(QueryError, match="known are UA, AA, 7, other"):
        view.of_key("ZZ")


async def ask(client: httpx.AsyncClient, path: str) -> tuple[int, dict[str, Any]]:
    answer = await client.get(f"/v1/streams/{STREAM}/{path}".rstrip("/"))
    return answer.status_code, answer.json()


@pytest.mark.parametrize("release", RELEASES)
def test_distributions_over_http(tmp_path: Path, release: Release) -> None:
    one = ProductSource(tmp_path, product_strategy(total=True, release=release))
    events = placed(some_events(9, 6, per_bin=200))
    one.append_events(events)
    one.run_until(FIRST_BIN + 6)
    one.close()
    truth = table_of(recount(events), 6)
    start, end = ((FIRST_BIN + edge) * BIN_US // 10**6 for edge in (2, 5))

    async def check() -> None:
        app = create_app(one.store.reader(), apart=SHARED)
        await app.state.replicas.refresh()
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            status, found = await ask(client, f"cdf?key=AA&start={start}&end={end}")
            counts = truth[2:5, 1].sum(axis=0).cumsum()
            assert status == 200
            assert found["consistent"] == counts.tolist()
            assert found["upto"] == [-5 + 5 * bucket for bucket in range(BUCKETS)]
            assert np.allclose(found["value"], counts, atol=0.05)
            assert np.allclose(np.subtract(found["upper"], found["lower"]), 0, atol=0.1)
            status, found = await ask(client, f"quantile?q=0.5&q=0.95&start={start}&end={end}")
            assert status == 200
            whole = truth[2:5].sum(axis=(0, 1)).cumsum()
            for answer in found["quantiles"]:
                bucket = int(np.argmax(whole >= answer["q"] * whole[-1]))
                assert -10 + 5 * bucket <= answer["value"] <= -5 + 5 * bucket
                low, high = answer["interval"]
                assert low <= -10 + 5 * bucket < -5 + 5 * bucket <= high <= low + 10
            status, found = await ask(client, f"count?key=AA&start={start}&end={end}")
            assert (status, found["key"]) == (200, "AA")
            assert found["value"] == pytest.approx(int(counts[-1]), abs=0.05)
            status, found = await ask(client, "series?key=AA&kind=bin")
            assert [round(value) for value in found["value"]] == truth[:, 1].sum(axis=1).tolist()
            causal = release == "causal"
            for path, refusal, word in [
                ("quantile", 422, "q"),
                ("quantile?q=1", 400, "q: every quantile"),
                ("cdf?key=ZZ", 400, "not on the public list"),
                ("series?key=AA&view=first_published", 400, "view")
                if causal
                else ("nodes?epoch=0", 400, "running counts only"),
            ]:
                status, found = await ask(client, path)
                assert status == refusal
                assert word in found["error"]
            axes = (await ask(client, ""))[1]["axes"]
            assert (axes["keys"], axes["first_keys"]) == (len(CARRIERS) + 1, [*CARRIERS, "other"])
            columns = sum(group["keys"] * group["nodes"] for group in axes["columns"])
            if causal:
                assert columns == len((await ask(client, "nodes?epoch=0"))[1]["values"][0])
            else:
                assert columns == one.strategies[0].kind.tables[PUBLISHED]

    asyncio.run(check())
