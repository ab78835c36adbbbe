"""The grey box: it finds the exact loss of the service, and each way to lose more that is built in here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dphist.arrays import Int64Array
from dphist.certified import root_ceiling
from dphist.noise import GaussianSource, NoiseSource, Scale
from dphist.toeplitz import ToeplitzCounter
from dphist.toeplitz.calibration import gaussian_delta
from dphist.tree.decoder import draw_epoch_noise
from dphist.tree.design import TreeDesign
from dphist.users import NumbersOfUsers
from stream_app.audit.neighbours import GreyBox, PairLoss
from stream_app.audit.rehearsal import Rehearsal
from stream_app.config import load_text
from stream_app.core import strategy
from stream_app.core.counting.bounding import Bounds
from stream_app.core.kinds import tree
from stream_app.core.kinds.approximate_discovering import DiscoveringToeplitz
from stream_app.core.records import Reply
from stream_app.state.redis_store import RedisStore

pytestmark = pytest.mark.redis

FIRST_US = 1_704_067_200_000_000
STREAM = """
redis: {url: "embedded:state/redis"}
streams:
  s:
    source: {file: events.ndjson}
    time: {field: at, format: iso8601, bin: 1h, grace: 5m, epoch: 30d}
    privacy: {epsilon: 1%s}
    %s
"""


def grey_box(privacy: str = "", more: str = "", bins: int = 14) -> GreyBox:
    settings = load_text(STREAM % (privacy, more), Path("app.yaml"), {})
    return GreyBox(Rehearsal.of(settings, settings.streams[0], bins, FIRST_US), seed=1)


def first_pair(box: GreyBox) -> PairLoss:
    return next(box.losses())


def forget_strategies() -> None:
    strategy._parsed.cache_clear()
    strategy._kind.cache_clear()


@pytest.fixture(autouse=True)
def read_again() -> Iterator[None]:
    """Strategies are cached by their text, which does not say that a test has changed the code."""
    forget_strategies()
    yield
    forget_strategies()


@pytest.mark.parametrize(
    ("privacy", "more"),
    [
        ("", ""),
        ("", "tree: {release: causal}"),
        ("", "keys: {field: k, list: [x, y], other: false}\n    tree: {release: causal}"),
        (", neighbours: substitute", "value: {field: v, min: 0, max: 9, buckets: 4}"),
        ("", "sum: {field: amount, min: -1, max: 500, unit: 0.01}"),
    ],
)
def test_event_costs_what_is_stated_and_shows_nothing_else(privacy: str, more: str) -> None:
    box = grey_box(privacy, more)
    pair = first_pair(box)
    assert pair.same_bytes
    assert pair.mu_squared == 0
    assert pair.loss <= box.rehearsal.strategy.epsilon == 1
    # The statement is not loose either: an event costs it, except for shares that were rounded down. A moved
    # event costs less if old and new value have common nodes.
    assert pair.loss > Fraction(1, 2) if "substitute" in privacy else pair.loss > Fraction(999, 1000)


@pytest.mark.parametrize(
    ("caps", "more"),
    [
        ("max_events: 2}", ""),
        ("max_keys: 2, max_per_key: 1}", ""),
        ("max_events: 2}, propose_caps: 0.2", ""),
        ("max_events: 2}, propose_caps: 0.2", "\n    tree: {release: causal}"),
    ],
)
def test_user_costs_what_is_stated_however_the_events_lie(caps: str, more: str) -> None:
    box = grey_box(f", unit: {{user: u, {caps}", f"keys: {{field: a.k, list: [x, y], other: true}}{more}")
    pairs = list(box.losses())
    assert len(pairs) == 5
    assert all(pair.same_bytes and 0 < pair.loss <= 1 for pair in pairs)
    assert max(pair.loss for pair in pairs) > Fraction(999, 1000)


@pytest.mark.parametrize(
    "caps",
    ["max_events: 2, per: 1d}", "max_events: 1, per: 1h}", "max_events: 1, per: 1h}, propose_caps: 0.1"],
)
def test_day_or_hour_of_a_user_costs_what_is_stated(caps: str) -> None:
    pairs = list(grey_box(f", unit: {{user: u, {caps}", "late: drop").losses())
    assert len(pairs) == 4
    assert all(pair.same_bytes and 0 < pair.loss <= 1 for pair in pairs)
    assert max(pair.loss for pair in pairs) > Fraction(999, 1000)


FINDS = "keys: {field: k, list: [x], discover: {epsilon: 0.5, delta: 1e-3%s}}\n    tree: {release: causal}"


@pytest.mark.parametrize("more", ["", "\n    sum: {field: amount, min: 0, max: 10, unit: 1}"])
def test_names_cost_a_user_what_is_stated_also_one_who_brings_new_keys(more: str) -> None:
    box = grey_box(", unit: {user: u, max_events: 6}", FINDS % ", per_user: 2" + more, bins=6)
    pairs = list(box.losses())
    names = [pair.names for pair in pairs if pair.names is not None]
    assert len(pairs) == len(names) == 6
    assert all(pair.same_bytes and pair.loss <= Fraction(1, 2) for pair in pairs)
    assert max(one.loss for one in names) == pytest.approx(0.5, abs=1e-6)
    assert max(one.keys for one in names) == 2
    new = [one for one in names if one.delta]
    assert len(new) == 1
    assert 1e-4 < new[0].delta <= 1e-3


@pytest.mark.parametrize("caps", ["max_events: 6", "max_keys: 3, max_per_key: 2"])
def test_approximate_counts_beside_names_cost_a_user_what_is_stated(caps: str) -> None:
    keys = "keys: {field: k, list: [x], discover: {epsilon: 0.5, delta: 5e-4}}"
    box = grey_box(f", delta: 1e-3, unit: {{user: u, {caps}}}", keys, bins=6)
    kind = box.rehearsal.strategy.kind
    assert isinstance(kind, DiscoveringToeplitz)
    stated = sum((design.mu**2 for design, _ in kind.mechanisms), Fraction(0))
    pairs = list(box.losses())
    assert all(pair.same_bytes and not pair.loss and 0 < pair.mu_squared <= stated for pair in pairs)
    assert max(pair.mu_squared for pair in pairs) > Fraction(1, 9) * stated
    assert max(one.names.loss for one in pairs if one.names) == pytest.approx(0.5, abs=1e-6)
    assert gaussian_delta(root_ceiling(stated), kind.toeplitz.epsilon) <= Fraction(1, 2000)


def test_names_cost_an_event_what_is_stated() -> None:
    box = grey_box("", FINDS % "", bins=6)
    names = [pair.names for pair in box.losses() if pair.names is not None]
    assert max(one.loss for one in names) == pytest.approx(0.5, abs=1e-6)
    assert max(one.delta for one in names) <= 1e-3


def test_a_key_too_many_of_a_user_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = RedisStore.tally

    async def more(
        store: RedisStore, stream: str, given: str, bounds: Bounds, up_to: int, slots: Any
    ) -> Reply:
        return await tally(store, stream, given, bounds, up_to, replace(slots, per_user=slots.per_user + 1))

    monkeypatch.setattr(RedisStore, "tally", more)
    names = first_pair(grey_box(", unit: {user: u, max_events: 6}", FINDS % "", bins=6)).names
    assert names is not None
    assert names.loss > 0.9


class Half:
    """Noise of half the scale."""

    private = True

    def __init__(self, noise: NoiseSource) -> None:
        self.noise = noise

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        return self.noise.discrete_laplace(Fraction(scale) / 2, shape)

    def select(self, scores: Any, scale: Scale) -> int:
        raise AssertionError("nothing here selects")


@pytest.mark.parametrize(
    ("more", "least"),
    # A user's events in two keys cost less than in one.
    [("", Fraction(999, 1000)), ("keys: {field: k, list: [x, y], other: true}", Fraction(7, 10))],
)
def test_approximate_stream_costs_what_is_stated(more: str, least: Fraction) -> None:
    box = grey_box(", delta: 1e-6, unit: {user: u, max_events: 2}", more)
    mu = box.rehearsal.strategy.kind.mu
    pairs = list(islice(box.losses(), 2))
    assert mu is not None
    assert all(pair.same_bytes and pair.loss == 0 for pair in pairs)
    # One log has all events of the user in the first bin, which costs most; roundings cost the rest.
    assert (least * mu) ** 2 < max(pair.mu_squared for pair in pairs) <= mu**2


def test_rounding_that_looks_at_the_count_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class EvenForEven(ToeplitzCounter):
        def close(self, counts: Any, noise: GaussianSource) -> Int64Array:
            released = super().close(counts, noise)
            step = 1 << self.design.output_bits
            return np.asarray(released + (np.asarray(counts, np.int64) % 2) * (released % step), np.int64)

    monkeypatch.setattr("stream_app.core.kinds.toeplitz.ToeplitzCounter", EvenForEven)
    pairs = grey_box(", delta: 1e-6").losses()
    assert any(not pair.same_bytes for pair in pairs)


def drawn_at_half(design: TreeDesign, noise: NoiseSource, width: int = 1) -> Any:
    return draw_epoch_noise(design, Half(noise), width)


def one_number_for_all_leaves(design: TreeDesign, noise: NoiseSource, width: int = 1) -> Any:
    *upper, leaves = draw_epoch_noise(design, noise, width)
    return (*upper, np.repeat(leaves[:1], len(leaves), axis=0))


def test_half_the_noise_drawn_ahead_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.core.kinds.tree.draw_epoch_noise", drawn_at_half)
    # The stated scales say which numbers hide a node, and these were never drawn.
    assert not first_pair(grey_box()).same_bytes


def test_half_the_noise_of_released_nodes_costs_twice_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    class Halved(tree.CausalTree):
        def close(self, held: bytes, counts: Any, noise: NoiseSource, ahead: Any) -> Any:
            return super().close(held, counts, Half(noise), ahead)

    monkeypatch.setattr("stream_app.core.kinds.CausalTree", Halved)
    pair = first_pair(grey_box(more="tree: {release: causal}"))
    assert pair.same_bytes
    assert pair.loss > Fraction(19, 10)


def test_noise_used_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.core.kinds.tree.draw_epoch_noise", one_number_for_all_leaves)
    assert any(not pair.same_bytes for pair in grey_box().losses())


def test_value_that_depends_on_the_exact_count_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class OddIfCountIsOdd(tree.CausalTree):
        def close(self, held: bytes, counts: Any, noise: NoiseSource, ahead: Any) -> Any:
            closed = super().close(held, counts, noise, ahead)
            leaves = closed.blocks[-1].values
            leaves += (leaves + counts) % 2
            return closed

    monkeypatch.setattr("stream_app.core.kinds.CausalTree", OddIfCountIsOdd)
    pairs = grey_box(more="tree: {release: causal}").losses()
    assert any(not pair.same_bytes for pair in pairs)


def test_cap_that_is_not_kept_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = RedisStore.tally

    async def twice_as_many(
        self: RedisStore, stream: str, strategy_hash: str, bounds: Bounds, *others: Any
    ) -> Reply:
        twice = replace(bounds.caps, max_events=2 * bounds.caps.l1)
        return await tally(self, stream, strategy_hash, replace(bounds, caps=twice), *others)

    monkeypatch.setattr(RedisStore, "tally", twice_as_many)
    assert first_pair(grey_box(", unit: {user: u, max_events: 2}")).loss > 1


@pytest.mark.parametrize("release", ["causal", "anticipating"])
def test_half_the_noise_of_a_histogram_of_users_is_noticed(
    release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NumbersOfUsers, "scale", property(lambda users: 1 / (2 * users.epsilon)))
    box = grey_box(", unit: {user: u, max_events: 2}, propose_caps: 0.3", f"tree: {{release: {release}}}")
    assert max(pair.loss for pair in box.losses()) > Fraction(5, 4)


def test_noise_that_data_asks_for_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class MoreForCrowds(tree.CausalTree):
        def close(self, held: bytes, counts: Any, noise: NoiseSource, ahead: Any) -> Any:
            if counts.sum() % 2:
                noise.discrete_laplace(self.design.scales[-1], 1)
            return super().close(held, counts, noise, ahead)

    monkeypatch.setattr("stream_app.core.kinds.CausalTree", MoreForCrowds)
    assert any(not pair.same_bytes for pair in grey_box(more="tree: {release: causal}").losses())
