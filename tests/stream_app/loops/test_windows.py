"""Tumbling windows through the whole service: each is released once, with its last bin."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dphist import SeededNoise
from dphist.mechanisms import release
from dphist.product.answers import Cdf
from dphist.tree.design import Release
from dphist.windows.design import WindowDesign
from dphist.windows.error import window_error
from stream_app.api.admission.access import AccessRules
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.tables import PUBLISHED, WINDOWS, Span
from stream_app.core.kinds.wrappers import WindowsState
from stream_app.core.releases.release import make_release
from stream_app.core.store_writes import Release as Released
from stream_app.core.strategy import Strategy
from stream_app.loops import noise_ahead
from stream_app.ports import OperatorError
from tests.patience import PATIENCE_S
from tests.stream_app.declared import BIN_US, FIRST_BIN, NO_NOISE, STREAM, changed, design_of
from tests.stream_app.product_stream import (
    BUCKETS,
    CARRIERS,
    ProductSource,
    product_strategy,
    recount,
    some_events,
)
from tests.world import World

pytestmark = pytest.mark.slow

WINDOW = 3  # bins; an epoch is two windows
BINS = 10
LABELS = [*CARRIERS, "other"]
KEYS = len(LABELS)


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


def end_of(window: int) -> int:
    """Return the end of a window in seconds."""
    return (FIRST_BIN + WINDOW * (window + 1)) * BIN_US // 10**6


def run(directory: Path, strategy: Strategy, events: list[tuple[float, Any, Any]]) -> World:
    """Return a world whose loops have ended, for readers of its store."""
    with released(strategy, events) as world:
        return world


def released(strategy: Strategy, events: list[tuple[float, Any, Any]]) -> World:
    """Count and release with workers that end within windows and between windows."""
    arrivals: dict[float, list[dict[str, Any]]] = {}
    for bin, carrier, delay in events:
        flight = {} if delay is None else {"delay": delay}
        event = {"at": int(bin * BIN_US), "carrier": carrier, "flight": flight}
        arrivals.setdefault(int(bin) + 0.5, []).append(event)
    world = World(strategy)
    world.play(arrivals, FIRST_BIN + BINS)
    return world


@pytest.mark.parametrize("release", ["anticipating", "causal"])
@pytest.mark.parametrize("mechanism", ["dawa", "cdf_tree", "adaptive_tree"])
def test_without_noise_windows_and_totals_are_the_recount(mechanism: str, release: Release) -> None:
    events = placed(3, BINS)
    truth = counted(events)
    with released(window_strategy(mechanism, release=release), events) as world:
        whole = world.view().count(Span(FIRST_BIN + 1, FIRST_BIN + 9))
        assert whole.value == pytest.approx(truth[1:9].sum(), abs=1e-2)
        # Ten bins: two epochs of two windows; the last one is still open.
        for window, place in product(range(3), range(KEYS)):
            exact = truth[WINDOW * window : WINDOW * (window + 1), place].sum(axis=0)
            found = world.json(f"window?end={end_of(window)}&key={LABELS[place]}&q=0.5&q=0.9")
            assert np.allclose(found["count"], exact, atol=1e-2)
            assert found["consistent"] == exact.cumsum().tolist()
            for answer in found["quantiles"]:
                bucket = int(np.argmax(exact.cumsum() >= answer["q"] * exact.sum()))
                assert -10 + 5 * bucket <= answer["value"] <= -5 + 5 * bucket
                known = mechanism == "cdf_tree"
                assert (answer["interval"] is not None) == known
                assert not known or answer["interval"][0] <= answer["value"] <= answer["interval"][1]
        last = world.json("window?key=AA")
        assert (last["end"], last["mechanism"], last["epsilon"]) == (found["end"], mechanism, "800000000")
        assert round(world.json("count")["value"]) == truth.sum()
        # A reader of all streams gets a stream without keys, which answers for any time.
        for answer in world.get("/metrics", "/v1/overview", "/v1/streams", "/api/v1/labels"):
            assert answer.status_code == 200
        assert "private_counts_key_running{" not in world.get("/metrics", rules=AccessRules())[0].text


def refused(world: World, path: str, words: str) -> None:
    """Check that the API refuses a question with these words."""
    [answer] = world.get(path)
    assert answer.status_code == 400, path
    assert words in answer.json()["error"]


def test_sorted_counts_say_how_skewed_the_load_is() -> None:
    events = placed(4, BINS)
    loads = np.zeros((BINS, KEYS), np.int64)
    for bin, carrier, _ in events:
        name = str(carrier) if isinstance(carrier, str | int) else ""
        loads[int(bin) - FIRST_BIN, LABELS.index(name if name in CARRIERS else "other")] += 1
    with released(window_strategy("sorted_isotonic", over_keys=True), events) as world:
        found = world.json(f"window?end={end_of(0)}")
        assert (found["sorted"], found["keys"], found["upto"]) == (True, None, None)
        assert np.allclose(found["count"], np.sort(loads[:WINDOW].sum(axis=0)), atol=1e-2)
        assert world.json("")["windows"]["mechanism"] == "sorted_isotonic"
        refused(world, "window?key=AA", "leave key out")
        refused(world, "window?q=0.5", "not by value")
        refused(world, f"window?end={end_of(0) + 10}", "no window ends there")
        refused(world, "count?key=AA", "windows only")
        refused(world, "cdf", "no value")
        refused(world, "keys", "keys are counted in windows only; ask for /window")


def test_windows_are_found_by_their_end_and_by_any_instant() -> None:
    with released(window_strategy("hb", Fraction(1)), placed(5, BINS)) as world:
        first, second, third = map(end_of, range(3))
        found = [world.json(f"window?key=AA&end={end}") for end in (first, second, third)]
        ends = [answer["end"] for answer in found]
        assert [answer["earlier"] for answer in found] == [None, *ends[:2]]
        assert [answer["later"] for answer in found] == [*ends[1:], None]
        assert {answer["windows"] for answer in found} == {3}
        for until, answer in ((first, 0), (second - 1, 0), (second, 1), (third + 10**9, 2)):
            assert world.json(f"window?key=AA&until={until}") == found[answer]
        refused(world, f"window?key=AA&until={first - 1}", "no window had ended")
        refused(world, f"window?key=AA&until={first}&end={first}", "not both")
        described = world.json("")["windows"]
        assert (described["first_keys"], described["value_field"]) == (LABELS, "flight.delay")


@pytest.mark.parametrize("mechanism", ["hb", "dawa"])
def test_bands_are_where_the_error_is_known_and_nowhere_else(mechanism: str) -> None:
    events = placed(6, BINS)
    truth = counted(events)[:WINDOW, 0].sum(axis=0)
    # tests/dphist/windows/test_design.py shows that these errors hold with their confidence.
    error = window_error(mechanism, BUCKETS, Fraction(8, 5), 0.9)
    with released(window_strategy(mechanism, Fraction(2)), events) as world:
        found = world.json(f"window?key={CARRIERS[0]}&end={end_of(0)}&confidence=0.9")
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


def test_options_of_the_mechanism_are_used_told_and_fixed_for_the_streams_life() -> None:
    events = placed(7, BINS)
    for options, branching in (({}, 2), ({"branching": 3}, 3)):
        with released(window_strategy("h_bar", Fraction(2), options=options), events) as world:
            stderr = world.json(f"window?key={CARRIERS[0]}")["stderr"]
            assert world.json("")["windows"]["options"] == options
            made = release("h_bar", [0] * BUCKETS, Fraction(8, 5), noise=SeededNoise(0), branching=branching)
            exact = made.variance([[bucket, bucket + 1] for bucket in range(BUCKETS)])
            assert exact is not None
            assert np.allclose(stderr, np.sqrt(exact), rtol=0.15)
            if not options:
                continue
            for other, said in (
                ({"branching": 2}, "3 when the stream began and is 2"),
                ({}, "began and is not set"),
            ):
                with pytest.raises(OperatorError, match=rf"value\.options.* was .*{said} now; put it back"):
                    world.run_until(
                        world.now, strategies=[window_strategy("h_bar", Fraction(2), options=other)]
                    )


def test_window_is_released_once_with_its_last_bin_and_vouched_for() -> None:
    strategy = window_strategy("identity", Fraction(1))
    with released(strategy, placed(5, BINS)) as world:
        reader, rows = world.store.reader(), world.rows()

        def tiles(epoch: int, table: str, count: int, width: int, first: int = 0) -> np.ndarray:
            return world.run(reader.tile_rows(STREAM, epoch, table, first, count, width))

        told = [(row["bin"] - FIRST_BIN, row["windows"]) for row in rows if row["windows"]]
        assert [(bin, windows[0][0]) for bin, windows in told] == [(2, 0), (5, 1), (8, 0)]
        for (bin, [[index, digest]]), epoch in zip(told, (0, 0, 1), strict=True):
            held = tiles(epoch, WINDOWS, 1, strategy.width, index)
            assert hashlib.sha256(held.astype("<i8").tobytes()).hexdigest() == digest, bin
        with pytest.raises(ValueError, match="1 are visible"):
            tiles(1, WINDOWS, 2, strategy.width)
        assert rows[0]["published"] == tiles(0, PUBLISHED, 1, 1)[0].tolist()
        # The open window's exact counts are only in the counter's secret state.
        held_state = world.state().counter
        assert (
            WindowsState.from_bytes(held_state).cells.tolist() == counted(placed(5, BINS))[9].ravel().tolist()
        )
        with pytest.raises(ValueError, match="damaged"):
            WindowsState.from_bytes(held_state[1:])


async def test_slow_mechanism_holds_up_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow mechanism runs in a thread. Meanwhile the loop takes cuts and serves other streams."""
    one = ProductSource(tmp_path, window_strategy("identity", Fraction(1)))
    one.append_events(placed(5, 3))
    begun, may_end = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Released:
        begun.set()
        assert may_end.wait(PATIENCE_S), "the loop stood still"
        return make_release(*arguments)

    monkeypatch.setattr("stream_app.loops.closer.make_release", slow)

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

    one.close()


async def test_more_slow_mechanisms_than_threads_hold_up_no_row_and_no_letter() -> None:
    """Windows of many streams end at one instant. Rows and letters use asyncio's own threads."""
    may_end = threading.Event()
    slow = [asyncio.create_task(noise_ahead.in_thread(noise_ahead.OWN, may_end.wait, 30)) for _ in range(50)]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "written"), 10) == "written"
    assert not any(task.done() for task in slow)
    may_end.set()
    assert await asyncio.gather(*slow) == [True] * 50


def test_strategies_without_windows_have_the_text_that_they_had() -> None:
    plain = product_strategy()
    assert "window" not in json.loads(plain.to_json())
    strategy = window_strategy()
    assert Strategy.from_json(strategy.to_json()) == strategy
    assert json.loads(strategy.to_json())["window"]
