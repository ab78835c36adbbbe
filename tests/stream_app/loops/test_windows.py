"""Tumbling windows through the whole service: each is released once, with its last bin."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dphist import SeededNoise
from dphist.mechanisms import release
from dphist.product.answers import Cdf
from dphist.tree.design import Release
from dphist.windows.design import WindowDesign
from dphist.windows.error import WindowError, window_error
from stream_app.api.app import create_app
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.tables import PUBLISHED, WINDOWS, Span
from stream_app.core.kinds.windows import WindowsState
from stream_app.core.records import Release as Released
from stream_app.core.releases.release import make_release
from stream_app.core.strategy import Strategy
from stream_app.loops import noise_ahead
from stream_app.ports import OperatorError
from tests.patience import PATIENCE_S
from tests.stream_app.api.client import SHARED
from tests.stream_app.declared import BIN_US, FIRST_BIN, NO_NOISE, STREAM, changed, design_of
from tests.stream_app.product_stream import (
    BUCKETS,
    CARRIERS,
    ProductSource,
    product_strategy,
    recount,
    some_events,
    view_of,
)

pytestmark = pytest.mark.slow

WINDOW = 3  # bins; an epoch is two windows
BINS = 10
KEYS = len(CARRIERS) + 1


def window_strategy(
    mechanism: str = "dawa",
    epsilon: Fraction = NO_NOISE,
    release: Release = "anticipating",
    over_keys: bool = False,
    options: dict[str, Any] | None = None,
) -> Strategy:
    """Return a strategy with windows of delays per carrier, or with windows of the carriers' counts."""
    share = Fraction(4, 5)
    time = replace(design_of((2, 3), epsilon), shares=((1 - share) / 2,) * 2, release=release)
    histograms, buckets = (1, KEYS) if over_keys else (KEYS, BUCKETS)
    design = WindowDesign(time, WINDOW, histograms, buckets, mechanism, share, options or {})
    plain = product_strategy(epsilon, value=not over_keys)
    if options:
        axis = "keys" if over_keys else "value"
        plain = replace(plain, declared=changed(plain.declared, **{axis: {"options": options}}))
    return replace(plain, kind=kind_of(design))


def placed(seed: int, bins: int) -> list[tuple[float, Any, Any]]:
    return [(FIRST_BIN + bin, carrier, delay) for bin, carrier, delay in some_events(seed, bins)]


def counted(events: list[tuple[float, Any, Any]], bins: int = BINS) -> np.ndarray:
    table = np.zeros((bins, KEYS, BUCKETS), np.int64)
    for (bin, cell), count in recount(events).items():
        table[bin - FIRST_BIN, cell // BUCKETS, cell % BUCKETS] += count
    return table


def run(directory: Path, strategy: Strategy, events: list[tuple[float, Any, Any]]) -> ProductSource:
    """Count and release with loops that restart within windows and between windows."""
    one = ProductSource(directory, strategy)
    for start, stop in ((0, 2), (2, 4), (4, 7), (7, 10)):
        one.append_events(event for event in events if start <= event[0] - FIRST_BIN < stop)
        one.run_until(FIRST_BIN + stop)
    one.close()
    return one


async def ask(client: httpx.AsyncClient, path: str) -> tuple[int, dict[str, Any]]:
    answer = await client.get(f"/v1/streams/{STREAM}/{path}".rstrip("/"))
    return answer.status_code, answer.json()


def with_client(one: ProductSource, check: Any) -> None:
    async def inside() -> None:
        app = create_app(one.store.reader(), apart=SHARED)
        await app.state.replicas.refresh()
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await check(client)

    asyncio.run(inside())


@pytest.mark.parametrize("release", ["anticipating", "causal"])
@pytest.mark.parametrize("mechanism", ["dawa", "cdf_tree", "adaptive_tree"])
def test_without_noise_windows_and_totals_are_the_recount(
    tmp_path: Path, mechanism: str, release: Release
) -> None:
    events = placed(3, BINS)
    truth = counted(events)
    one = run(tmp_path, window_strategy(mechanism, release=release), events)
    view = asyncio.run(view_of(one.store))
    assert view.count(Span(FIRST_BIN + 1, FIRST_BIN + 9)).value == pytest.approx(truth[1:9].sum(), abs=1e-2)

    async def check(client: httpx.AsyncClient) -> None:
        # Ten bins: two epochs of two windows; the last one is still open.
        for window in range(3):
            end = (FIRST_BIN + WINDOW * (window + 1)) * BIN_US // 10**6
            for place, key in enumerate([*CARRIERS, "other"]):
                status, found = await ask(client, f"window?end={end}&key={key}&q=0.5&q=0.9")
                exact = truth[WINDOW * window : WINDOW * (window + 1), place].sum(axis=0)
                assert status == 200
                assert np.allclose(found["count"], exact, atol=1e-2)
                assert found["consistent"] == exact.cumsum().tolist()
                for answer in found["quantiles"]:
                    bucket = int(np.argmax(exact.cumsum() >= answer["q"] * exact.sum()))
                    assert -10 + 5 * bucket <= answer["value"] <= -5 + 5 * bucket
                    known = mechanism == "cdf_tree"
                    assert (answer["interval"] is not None) == known
                    assert not known or answer["interval"][0] <= answer["value"] <= answer["interval"][1]
        status, last = await ask(client, "window?key=AA")
        assert (status, last["end"]) == (200, found["end"])
        assert (last["mechanism"], last["epsilon"]) == (mechanism, "800000000")
        status, running = await ask(client, "count")
        assert (status, round(running["value"])) == (200, truth.sum())
        # A reader of all streams gets a stream without keys, which answers for any time.
        for path in ("/metrics", "/v1/overview", "/v1/streams", "/api/v1/labels"):
            assert (await client.get(path)).status_code == 200, path
        assert "private_counts_key_running{" not in (await client.get("/metrics")).text

    with_client(one, check)


def test_sorted_counts_say_how_skewed_the_load_is(tmp_path: Path) -> None:
    events = placed(4, BINS)
    one = run(tmp_path, window_strategy("sorted_isotonic", over_keys=True), events)
    labels = [*CARRIERS, "other"]
    loads = np.zeros((BINS, KEYS), np.int64)
    for bin, carrier, _ in events:
        name = str(carrier) if isinstance(carrier, str | int) else ""
        loads[int(bin) - FIRST_BIN, labels.index(name if name in CARRIERS else "other")] += 1

    async def check(client: httpx.AsyncClient) -> None:
        end = (FIRST_BIN + WINDOW) * BIN_US // 10**6
        status, found = await ask(client, f"window?end={end}")
        assert status == 200
        assert (found["sorted"], found["keys"], found["upto"]) == (True, None, None)
        assert np.allclose(found["count"], np.sort(loads[:WINDOW].sum(axis=0)), atol=1e-2)
        detail = (await ask(client, ""))[1]
        assert detail["windows"]["mechanism"] == "sorted_isotonic"
        for path, word in [
            ("window?key=AA", "leave key out"),
            ("window?q=0.5", "not by value"),
            (f"window?end={end + 10}", "no window ends there"),
            ("count?key=AA", "windows only"),
            ("cdf", "no value"),
            ("keys", "keys are counted in windows only; ask for /window"),
        ]:
            status, refused = await ask(client, path)
            assert status == 400, path
            assert word in refused["error"]

    with_client(one, check)


def test_windows_are_found_by_their_end_and_by_any_instant(tmp_path: Path) -> None:
    one = run(tmp_path, window_strategy("hb", Fraction(1)), placed(5, BINS))

    async def check(client: httpx.AsyncClient) -> None:
        first, second, third = [(FIRST_BIN + WINDOW * (place + 1)) * BIN_US // 10**6 for place in range(3)]
        found = [(await ask(client, f"window?key=AA&end={end}"))[1] for end in (first, second, third)]
        ends = [answer["end"] for answer in found]
        assert [answer["earlier"] for answer in found] == [None, *ends[:2]]
        assert [answer["later"] for answer in found] == [*ends[1:], None]
        assert {answer["windows"] for answer in found} == {3}
        for until, answer in ((first, 0), (second - 1, 0), (second, 1), (third + 10**9, 2)):
            assert (await ask(client, f"window?key=AA&until={until}"))[1] == found[answer]
        for path, word in (
            (f"window?key=AA&until={first - 1}", "no window had ended"),
            (f"window?key=AA&until={first}&end={first}", "not both"),
        ):
            status, refused = await ask(client, path)
            assert (status, word in refused["error"]) == (400, True)
        described = (await ask(client, ""))[1]["windows"]
        assert (described["first_keys"], described["value_field"]) == ([*CARRIERS, "other"], "flight.delay")

    with_client(one, check)


def test_bands_are_where_the_error_is_known_and_nowhere_else(tmp_path: Path) -> None:
    events = placed(6, BINS)
    truth = counted(events)[:WINDOW, 0].sum(axis=0)
    for mechanism in ("hb", "dawa"):
        directory = tmp_path / mechanism
        directory.mkdir()
        # tests/dphist/windows/test_design.py shows that these errors hold with their confidence.
        error = window_error(mechanism, BUCKETS, Fraction(8, 5), 0.9)

        async def check(client: httpx.AsyncClient, error: WindowError | None = error) -> None:
            end = (FIRST_BIN + WINDOW) * BIN_US // 10**6
            found = (await ask(client, f"window?key={CARRIERS[0]}&end={end}&confidence=0.9"))[1]
            columns = ("stderr", "count_lower", "count_upper", "lower", "upper")
            assert [found[name] is not None for name in columns] == [error is not None] * 5
            assert ("so no error is stated" in found["note"]) == (error is None)
            if error is None:
                return
            assert np.array_equal(found["stderr"], error.bucket_stderr)
            count = np.array(found["count"])
            assert np.array_equal(found["count_lower"], np.maximum(count - error.bucket_reach, 0))
            assert np.array_equal(found["count_upper"], np.maximum(count + error.bucket_reach, 0))
            # Of 10^12 releases, fewer than one is that far away.
            assert (np.abs(count - truth) <= 30 * error.bucket_stderr).all()
            band = Cdf(count.cumsum(), error.cumulative_stderr, error.reach, 0.9)
            assert np.array_equal(found["lower"], band.lower)
            assert np.array_equal(found["upper"], band.upper)

        with_client(run(directory, window_strategy(mechanism, Fraction(2)), events), check)


def test_options_of_the_mechanism_are_used_told_and_fixed_for_the_streams_life(tmp_path: Path) -> None:
    events = placed(7, BINS)
    error, told = {}, {}
    for branching in (None, 3):
        directory = tmp_path / str(branching)
        directory.mkdir()
        options = {} if branching is None else {"branching": branching}
        one = run(directory, window_strategy("h_bar", Fraction(2), options=options), events)

        async def check(client: httpx.AsyncClient, branching: int | None = branching) -> None:
            error[branching] = (await ask(client, f"window?key={CARRIERS[0]}"))[1]["stderr"]
            told[branching] = (await ask(client, ""))[1]["windows"]["options"]

        with_client(one, check)
    assert told == {None: {}, 3: {"branching": 3}}
    for branching, stderr in error.items():
        made = release("h_bar", [0] * BUCKETS, Fraction(8, 5), noise=SeededNoise(0), branching=branching or 2)
        exact = made.variance([[bucket, bucket + 1] for bucket in range(BUCKETS)])
        assert exact is not None
        assert np.allclose(stderr, np.sqrt(exact), rtol=0.15)
    for options, said in (
        ({"branching": 2}, "3 when the stream began and is 2"),
        ({}, "began and is not set"),
    ):
        other = one.closer(window_strategy("h_bar", Fraction(2), options=options))
        with pytest.raises(OperatorError, match=rf"value\.options.* was .*{said} now; put it back"):
            asyncio.run(other.reconcile())
    one.close()


def test_a_window_is_released_once_with_its_last_bin_and_vouched_for(tmp_path: Path) -> None:
    strategy = window_strategy("identity", Fraction(1))
    one = run(tmp_path, strategy, placed(5, BINS))

    async def read() -> None:
        reader = one.store.reader()
        rows = [json.loads(row) for _, row in await reader.rows(STREAM, 0, 99)]
        told = [(row["bin"] - FIRST_BIN, row["windows"]) for row in rows if row["windows"]]
        assert [(bin, windows[0][0]) for bin, windows in told] == [(2, 0), (5, 1), (8, 0)]
        for (bin, [[index, digest]]), epoch in zip(told, (0, 0, 1), strict=True):
            held = await reader.tile_rows(STREAM, epoch, WINDOWS, index, 1, strategy.width)
            assert hashlib.sha256(held.astype("<i8").tobytes()).hexdigest() == digest, bin
        with pytest.raises(ValueError, match="1 are visible"):
            await reader.tile_rows(STREAM, 1, WINDOWS, 0, 2, strategy.width)
        assert rows[0]["published"] == (await reader.tile_rows(STREAM, 0, PUBLISHED, 0, 1, 1))[0].tolist()
        # The open window's exact counts are only in the counter's secret state.
        state = await one.store.load(STREAM)
        assert state is not None
        secret = WindowsState.from_bytes(state.counter)
        assert secret.cells.tolist() == counted(placed(5, BINS))[9].ravel().tolist()
        with pytest.raises(ValueError, match="damaged"):
            WindowsState.from_bytes(state.counter[1:])

    asyncio.run(read())


def test_a_slow_mechanism_holds_up_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow mechanism runs in a thread. Meanwhile the loop takes cuts and serves other streams."""
    one = ProductSource(tmp_path, window_strategy("identity", Fraction(1)))
    one.append_events(placed(5, 3))
    begun, may_end = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Released:
        begun.set()
        assert may_end.wait(PATIENCE_S), "the loop stood still"
        return make_release(*arguments)

    monkeypatch.setattr("stream_app.loops.closer.make_release", slow)

    async def close() -> None:
        closer = one.closer()
        await closer.reconcile()
        ingest = one.ingest()
        one.clock.set_bin(FIRST_BIN + 3)
        while await ingest.step():
            pass
        closing = asyncio.create_task(closer.close_due())
        assert await asyncio.to_thread(begun.wait, 10)
        assert not closing.done()
        assert await ingest.step() == 0  # while the mechanism runs
        may_end.set()
        assert await closing == (FIRST_BIN + 3, True)

    asyncio.run(close())
    one.close()


def test_more_slow_mechanisms_than_threads_hold_up_no_row_and_no_letter() -> None:
    """Windows of many streams end at one instant. Rows and letters use asyncio's own threads."""
    may_end = threading.Event()

    async def write_while_they_run() -> None:
        slow = [
            asyncio.create_task(noise_ahead.in_thread(noise_ahead.OWN, may_end.wait, 30)) for _ in range(50)
        ]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "written"), 10) == "written"
        assert not any(task.done() for task in slow)
        may_end.set()
        assert await asyncio.gather(*slow) == [True] * 50

    asyncio.run(write_while_they_run())


def test_strategies_without_windows_have_the_text_that_they_had(tmp_path: Path) -> None:
    plain = product_strategy()
    assert "window" not in json.loads(plain.to_json())
    strategy = window_strategy()
    assert Strategy.from_json(strategy.to_json()) == strategy
    assert json.loads(strategy.to_json())["window"]
