"""Keys that are read together have the same values and errors as each key alone, and are read once only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

import numpy as np
import pytest

from dphist.laws.interval import half_widths
from dphist.laws.law import LawTable
from dphist.product.columns import column_sum
from dphist.tree.estimate import Estimate
from stream_app.api.answers import keys
from stream_app.api.answers.ranges import reach as reach_of
from stream_app.api.prometheus.metrics import Quantity, Statistic
from stream_app.api.prometheus.promql import parse_selector
from stream_app.api.prometheus.samples import selected, values_of
from stream_app.api.schemas import KeysQuery
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds.axes import CausalAxesEpoch, PublishedAxesEpoch
from stream_app.core.kinds.epoch import AxesEpoch
from stream_app.core.kinds.tables import Span
from tests.world.counted import counted
from tests.world.features import FEATURES

BINS = 8  # the second epoch is open
LABELS = ["FR", "DE", "other"]
FORMS = [
    *(("keys", release) for release in ("causal", "anticipating")),
    *(("keys-and-values-and-total", release) for release in ("causal", "anticipating")),
]


@pytest.fixture(scope="module", params=FORMS, ids=" ".join)
def view(request: pytest.FixtureRequest) -> StreamView:
    """Return the view of a stream with noise."""
    name, release = request.param
    with counted(FEATURES[name], release, BINS, epsilon="1") as (world, _):
        return world.view()


def same(view: StreamView) -> Any:
    """Return how to compare values: sums over columns are rounded, all other values must be equal."""
    product = view.strategy.kind.axes
    assert product is not None
    plain = product.values.buckets == 1 and not product.keys.gain
    return (lambda value: value) if plain else (lambda value: pytest.approx(value, rel=1e-12, abs=1e-9))


def estimate(view: StreamView, key: str, quantity: Quantity, bin: int) -> Estimate:
    """Return one key's answer for a quantity and a bin."""
    own = view.of_key(key)
    return own.running(stop=bin + 1) if quantity == "running" else own.count(Span(bin, bin + 1))


def test_counts_of_all_keys_equal_counts_of_each_key(view: StreamView) -> None:
    first, stop = view.span
    assert len(view.epochs) == 2
    for span in (Span(first, stop), Span(first + 2, first + 5), Span(first + 4, stop), Span(stop - 1, stop)):
        found = view.counts_of_keys(span)
        for value, key in zip(np.asarray(found.value).tolist(), LABELS, strict=True):
            alone = view.of_key(key).count(span)
            assert value == same(view)(alone.value)
            assert (found.law, found.variance, found.rounding) == (alone.law, alone.variance, alone.rounding)


@pytest.mark.parametrize("quantity", get_args(Quantity))
def test_every_series_part_equals_that_of_its_key_alone(view: StreamView, quantity: Quantity) -> None:
    bins = list(range(view.span.start, view.span.stop))
    unmeasured = [view.span.start - 1, view.span.stop]
    for part in get_args(Statistic):
        name = f"private_counts_key_{quantity}" + ("" if part == "value" else f"_{part}")
        wanted = list(selected(view, [parse_selector(name)]))
        assert [one.labels["key"] for one in wanted] == LABELS
        for one, found in zip(wanted, values_of(view, wanted, [*bins, *unmeasured]), strict=True):
            alone = [estimate(view, one.labels["key"], quantity, bin) for bin in bins]
            values = np.array([each.value for each in alone])
            reach = half_widths(LawTable.of([each.law for each in alone]), 0.95)[0]
            reach += np.array([each.rounding for each in alone])
            expected: dict[Statistic, Iterable[float]] = {
                "value": values,
                "lower": values - reach,
                "upper": values + reach,
                "stderr": [each.stderr for each in alone],
            }
            assert found == pytest.approx(dict(zip(bins, expected[part], strict=True)), rel=1e-12, abs=1e-9)


def test_series_read_together_equal_series_read_alone(view: StreamView) -> None:
    """Series are read together in reverse order, so the total comes between the keys."""
    wanted = list(selected(view, []))[::-1]
    bins = [view.span.start + 3, view.span.stop - 1]
    alone = [values_of(view, [one], bins)[0] for one in wanted]
    assert len(wanted) == 8 * (1 + len(LABELS))
    for together, each in zip(values_of(view, wanted, bins), alone, strict=True):
        assert together == pytest.approx(each, rel=1e-12, abs=1e-9)
    assert len({tuple(values.values()) for values in alone}) > len(wanted) // 2  # else the test shows nothing


def test_keys_panel_equals_each_keys_own_columns(view: StreamView) -> None:
    found = keys.keys(view, KeysQuery(step=2))
    first = view.span.start
    slices = [view.cells(Span(first + bin, first + bin + 2)) for bin in range(0, BINS, 2)]
    whole = view.cells(view.span)
    totals = [column_sum(whole.design, place).of_range(whole) for place in range(len(LABELS))]
    order = sorted(range(len(LABELS)), key=lambda place: -float(totals[place].value))
    assert [one.key for one in found.keys] == [LABELS[place] for place in order]
    for one, place in zip(found.keys, order, strict=True):
        alone = [column_sum(each.design, place).of_range(each) for each in slices]
        reach = reach_of(alone, 0.95)
        values = np.array([each.value for each in alone])
        for column, expected in (
            (one.counts, values),
            (one.lower, values - reach),
            (one.upper, values + reach),
        ):
            assert column == same(view)(expected.tolist())
        interval = totals[place].interval(0.95)
        assert one.value == same(view)(totals[place].value)
        assert one.interval == same(view)((interval.lower, interval.upper))
        assert one.stderr == totals[place].stderr


def test_bin_of_many_keys_is_read_only_once(view: StreamView, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Span] = []
    for kind in (CausalAxesEpoch, PublishedAxesEpoch):

        def counted(self: AxesEpoch, part: Span, own: Any = kind.range) -> Any:
            read.append(part)
            return own(self, part)

        monkeypatch.setattr(kind, "range", counted)
    bins = [view.span.start, view.span.stop - 1]
    wanted = list(selected(view, [parse_selector('{__name__=~"private_counts_key_bin.*"}')]))
    values_of(view, wanted, bins)
    assert len(read) == len(bins)
    read.clear()
    keys.keys(view, KeysQuery(step=4))
    assert len(read) <= 2 + 3  # both epochs for the order; the second of two slices lies in both


def test_key_matchers_select_keys(view: StreamView) -> None:
    """A series without a key matches like a series whose key is the empty text."""

    def keys_of(text: str) -> list[str | None]:
        return [one.labels.get("key") for one in selected(view, [parse_selector(text)])]

    assert keys_of('{__name__=~"private_counts_bin|private_counts_key_bin", key!="DE"}') == [
        None,
        "FR",
        "other",
    ]
    assert keys_of('{__name__=~"private_counts_bin|private_counts_key_bin", key=""}') == [None]
    assert keys_of('private_counts_key_bin{key=~"FR|DE", stream="elsewhere"}') == []
