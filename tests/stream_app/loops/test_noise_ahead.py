"""Noise drawn before its epoch is never used twice, wherever a worker stops and whatever is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dphist.arrays import Int64Array
from dphist.noise import Scale, SystemNoise
from dphist.product.published import draw_errors
from dphist.tree.decoder import decode_noise
from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape
from stream_app.config.plans import can_draw_ahead
from stream_app.core.kinds import kind_of
from stream_app.core.kinds import pages as noise_pages
from stream_app.core.kinds.pages import PageGeometry, part_of_page, read_page
from stream_app.core.records import StreamState
from stream_app.core.strategy import Strategy
from stream_app.loops.closer import NOISE_LOST
from stream_app.vault.key_files import KeyFiles
from tests.oracles import KeyedNoise
from tests.stream_app.declared import BIN_US, FIRST_BIN, STREAM, design_of, strategy_of
from tests.stream_app.one_source import OneSource
from tests.stream_app.product_stream import product_strategy

# Noise so wide that two drawings never agree by chance.
DESIGN = replace(design_of((2, 2), Fraction(1, 10**6)), release="anticipating")
ANTICIPATING = strategy_of(DESIGN)


class Remembering:
    """The system's noise. It remembers each drawing of an epoch's noise."""

    private = True

    def __init__(self) -> None:
        self.drawn: list[Int64Array] = []

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        self.drawn.append(SystemNoise().discrete_laplace(scale, shape))
        return self.drawn[-1]

    def select(self, scores: Any, scale: Scale) -> int:
        raise AssertionError("nothing here selects")

    def errors(self) -> list[list[int]]:
        """Return, for each complete drawing, the errors of the running counts."""
        pairs = zip(self.drawn[::2], self.drawn[1::2], strict=False)
        return [decode_noise(DESIGN, pair)[:, 0].tolist() for pair in pairs]


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneSource]:
    """Yield a service with one anticipating stream: four bins per epoch, two per page, no events."""
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    monkeypatch.setattr(noise_pages, "BINS_PER_PAGE", 2)
    with closing(OneSource(tmp_path, ANTICIPATING)) as one:
        yield one


class Stopping:
    """A store or keys whose worker dies at the n-th call, before or after the call takes effect."""

    def __init__(self, inner: Any, left: list[int], after_effect: bool) -> None:
        self._inner, self._left, self._after_effect = inner, left, after_effect

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> Any:
            self._left[0] -= 1
            if self._left[0] == 0 and not self._after_effect:
                raise asyncio.CancelledError
            reply = await getattr(self._inner, name)(*arguments)
            if self._left[0] == 0:
                raise asyncio.CancelledError
            return reply

        return call


async def close_until(
    one: OneSource, bin: int, noise: Remembering, store: Any = None, keys: Any = None
) -> None:
    """Start a worker and close every bin before ``bin``."""
    own = one.keys
    one.keys = keys or own
    closer = one.closer(store=store, noise=noise)
    one.keys = own
    await closer.reconcile()
    for now in range(one.clock.now_us // BIN_US, bin + 1):
        one.clock.set_bin(now)
        ingest = one.ingest()
        await ingest.step()
        await ingest.step()
        await closer.close_due()


async def rows_of(one: OneSource) -> list[dict[str, Any]]:
    return [json.loads(row) for _, row in await one.store.rows(STREAM, 0, 1000)]


def epochs_of(one: OneSource) -> list[Any]:
    return one.store._streams[STREAM].epochs


async def state_of(one: OneSource) -> StreamState:
    state = await one.store.load(STREAM)
    assert state is not None
    return state


def each_epoch_has_one_drawing(rows: list[dict[str, Any]], noise: Remembering) -> None:
    """Check that each epoch publishes the errors of its own drawing. There are no events."""
    used: dict[int, set[int]] = {}
    for row in rows:
        bin = row["bin"] - next(r["bin"] for r in rows if r["epoch"] == row["epoch"])
        could_be = {
            number for number, errors in enumerate(noise.errors()) if errors[bin] == row["published"][0]
        }
        used[row["epoch"]] = used.get(row["epoch"], could_be) & could_be
    assert all(len(drawings) == 1 for drawings in used.values()), used
    assert len(set.union(*used.values())) == len(used)


@pytest.mark.slow
@pytest.mark.parametrize("after_effect", [False, True])
def test_a_worker_stopped_at_any_call_uses_no_noise_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_effect: bool
) -> None:
    """Calls from the first opening into the next epoch: each bin is released once, no epoch ends early."""
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    monkeypatch.setattr(noise_pages, "BINS_PER_PAGE", 2)
    stop, ended_alone = 0, False
    while not ended_alone:
        stop += 1
        directory = tmp_path / str(stop)
        directory.mkdir()
        with closing(OneSource(directory, ANTICIPATING)) as one:
            noise, left = Remembering(), [stop]

            async def run(one: OneSource = one, noise: Remembering = noise, left: list[int] = left) -> None:
                store, keys = (Stopping(inner, left, after_effect) for inner in (one.store, one.keys))
                try:
                    await close_until(one, 106, noise, store, keys)
                except asyncio.CancelledError:
                    seen = await one.store.rows(STREAM, 0, 1000)
                    await close_until(one, 106, noise)
                    assert (await one.store.rows(STREAM, 0, 1000))[: len(seen)] == seen
                rows = await rows_of(one)
                assert [row["bin"] for row in rows] == list(range(FIRST_BIN, 106))
                assert [(e.epoch, e.first_bin) for e in epochs_of(one)] == [(0, 100), (1, 104)]
                each_epoch_has_one_drawing(rows, noise)
                # Nothing is left of noise that was drawn but with which no epoch began.
                nonces = {nonce for nonce, _ in one.store._noise[STREAM]}
                assert nonces == {(await state_of(one)).noise}

            asyncio.run(run())
            ended_alone = left[0] > 0
    assert stop > 50


async def keys_gone(one: OneSource) -> None:
    assert isinstance(one.keys, KeyFiles)
    one.keys._file(STREAM, 0, (await state_of(one)).noise).unlink()


async def page_gone(one: OneSource) -> None:
    one.store._noise[STREAM].clear()


async def page_damaged(one: OneSource) -> None:
    pages = one.store._noise[STREAM]
    pages.update({key: data[:-1] + bytes([data[-1] ^ 1]) for key, data in pages.items()})


async def pages_swapped(one: OneSource) -> None:
    pages, nonce = one.store._noise[STREAM], (await state_of(one)).noise
    pages[nonce, 0], pages[nonce, 1] = pages[nonce, 1], pages.get((nonce, 0), b"")


@pytest.mark.parametrize("last_bin", [99, 100, 101, 102])
@pytest.mark.parametrize("loss", [keys_gone, page_gone, page_damaged, pages_swapped])
def test_lost_noise_ends_the_epoch_and_is_never_drawn_again(
    one: OneSource, loss: Callable[[OneSource], Awaitable[None]], last_bin: int
) -> None:
    async def lose() -> None:
        noise = Remembering()
        await close_until(one, last_bin + 1, noise)
        await loss(one)
        await close_until(one, 106, noise)
        first, second = epochs_of(one)[:2]
        assert (first.last_bin, first.end_reason) == (last_bin, NOISE_LOST)
        assert second.first_bin == first.last_bin + 1
        assert (await one.reserved())[:2] == [("visits", 0, 100), ("visits", 1, second.first_bin)]
        rows = await rows_of(one)
        assert [row["bin"] for row in rows] == list(range(100, 106))
        each_epoch_has_one_drawing(rows, noise)

    asyncio.run(lose())


def test_spent_pages_are_gone_from_store_and_keys(one: OneSource) -> None:
    async def spend() -> None:
        await close_until(one, 102, Remembering())
        state = await state_of(one)
        own = {page for nonce, page in one.store._noise[STREAM] if nonce == state.noise}
        [(first, _)] = await one.keys.chains(STREAM, 0, state.noise)
        assert own == {1}
        assert first == 1

    asyncio.run(spend())


def test_pages_together_are_the_whole_drawing() -> None:
    strategy = Strategy(STREAM, ANTICIPATING.declared, kind_of(DESIGN, width=3))
    noise, geometry = Remembering(), strategy.kind.page_geometry()
    pages = [read_page(geometry, number, data) for number, data in enumerate(strategy.kind.draw_pages(noise))]
    assert len(pages) == geometry.pages == 1
    assert np.array_equal(pages[0].errors, decode_noise(DESIGN, noise.drawn))
    assert all(np.array_equal(a, b) for a, b in zip(pages[0].nodes, noise.drawn, strict=True))
    part = part_of_page(geometry, pages[0], range(1, 3))
    assert np.array_equal(part.errors, pages[0].errors[1:3])
    assert [values.tolist() for values in part.nodes] == [
        noise.drawn[0][0:1].tolist(),
        noise.drawn[1][1:3].tolist(),
    ]
    with pytest.raises(ValueError, match="damaged"):
        read_page(geometry, 0, bytes(8))


@pytest.mark.parametrize(
    ("error", "bytes_a_number"), [(2**31 - 1, 4), (-(2**31), 4), (2**31, 8), (-(2**40), 8)]
)
def test_a_page_is_as_narrow_as_its_largest_number_allows(error: int, bytes_a_number: int) -> None:
    geometry = PageGeometry(2, 1, ())
    page = noise_pages._packed(np.array([[7], [error]]))
    assert len(page) == 2 * bytes_a_number
    assert read_page(geometry, 0, page).errors.tolist() == [[7], [error]]


def test_pages_over_several_axes_hold_the_errors_of_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_pages, "BINS_PER_PAGE", 4)
    strategy = product_strategy(Fraction(1, 10**6), total=True, release="anticipating")
    assert strategy.kind.product is not None
    geometry = strategy.kind.page_geometry()
    pages = [
        read_page(geometry, number, data)
        for number, data in enumerate(strategy.kind.draw_pages(KeyedNoise(2, draws=20_000)))
    ]
    assert [(page.first_bin, len(page.errors), page.nodes) for page in pages] == [(0, 4, ()), (4, 2, ())]
    errors = draw_errors(strategy.kind.product, KeyedNoise(2, draws=20_000))
    assert np.array_equal(np.vstack([page.errors for page in pages]), errors)
    assert np.array_equal(part_of_page(geometry, pages[1], range(5, 6)).errors, errors[5:6])


def test_a_stream_too_wide_to_draw_ahead_is_known() -> None:
    assert can_draw_ahead(ANTICIPATING.kind)
    # At most three numbers per cell and bin, and a page holds at least one bin.
    assert can_draw_ahead(kind_of(DESIGN, 2**20 // 24))
    assert not can_draw_ahead(kind_of(DESIGN, 2**20 // 24 + 1))
    long = TreeDesign(TreeShape((10**7,)), 10**7, Fraction(1), (Fraction(1),), release="anticipating")
    assert can_draw_ahead(kind_of(long))
    assert not can_draw_ahead(kind_of(long, 2))
