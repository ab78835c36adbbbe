"""Many keys: read together they are as each key alone, and the list of them comes in parts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast, get_args

import numpy as np
import pytest

from dphist.laws.interval import half_widths
from dphist.laws.law import LawTable
from dphist.product.columns import column_sum
from dphist.tree.estimate import Estimate
from stream_app.api.answers import keys
from stream_app.api.answers.keys import containing, looked_up
from stream_app.api.answers.ranges import reach as reach_of
from stream_app.api.prometheus.metrics import Quantity, Statistic
from stream_app.api.prometheus.promql import parse_selector
from stream_app.api.prometheus.samples import selected, values_of
from stream_app.api.schemas import KeyListQuery, KeysQuery
from stream_app.core.answers.asked_keys import MOST_NAMES, AskedKeys, KeyNameError
from stream_app.core.answers.query import StreamView
from stream_app.core.counting.keys import KeyField, KeyList
from stream_app.core.kinds.axes import CausalAxesEpoch, PublishedAxesEpoch
from stream_app.core.kinds.epoch import AxesEpoch
from stream_app.core.kinds.tables import Span
from tests.models.memory import MemoryStore
from tests.stream_app.api.client import asking
from tests.stream_app.published_axes import PublishedAxes
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
    order = [LABELS.index(one.key) for one in found.keys]
    falling = [float(totals[place].value) for place in order]  # two equal ones may differ in a last digit
    assert falling == pytest.approx(sorted(falling, reverse=True))
    assert sorted(order) == list(range(len(LABELS)))
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


KEYS = 100_000
MOST_S = 0.1  # of a processor: other readers wait meanwhile


def test_search_finds_what_a_loop_over_all_names_finds() -> None:
    rng = np.random.default_rng(5)
    letters = np.array(list("aAbBİß\n/"))
    names = tuple(dict.fromkeys("".join(rng.choice(letters, rng.integers(1, 6))) for _ in range(300)))
    for sought in ("", "a", "ab", "\u0307", "\n", "b\na", "ss", "zz", *(name.lower() for name in names[:20])):
        for after in (0, 1, 150, len(names) - 1, len(names), len(names) + 5):
            expected = [at for at in range(after, len(names)) if sought in names[at].lower()]
            assert list(containing(names, sought, after)) == expected, (sought, after)


def seconds(call: Callable[..., Any], *arguments: Any) -> float:
    """Return the processor time that a call takes, of three the least."""
    taken = []
    for _ in range(3):
        begun = time.process_time()
        call(*arguments)
        taken.append(time.process_time() - begun)
    return min(taken)


def test_no_search_takes_long_because_of_what_is_sought() -> None:
    names = tuple(f"Shop-{number:06}" for number in range(KEYS))
    for sought in ("zz", "\n", "0\nshop"):
        assert seconds(lambda text: list(containing(names, text, 0)), sought) < MOST_S, sought


def test_a_thousand_patterns_are_looked_up_without_listing_their_keys() -> None:
    fields = tuple(KeyField(name, tuple(map(str, range(317))), False) for name in ("page", "country"))
    keys, every = KeyList(fields=fields), ["*/*"] * MOST_NAMES
    unknown = [f"*/{number}" for number in range(1_000, 1_000 + MOST_NAMES)]
    view = SimpleNamespace(name="visits", declared=SimpleNamespace(finds_keys=False))
    look_up = partial(looked_up, cast(StreamView, view), keys)
    for names, missing in ((every, []), (unknown, unknown)):
        assert seconds(look_up, KeyListQuery(key=names)) < MOST_S
        assert look_up(KeyListQuery(key=names)).unknown == missing

    def ask() -> None:
        with pytest.raises(KeyNameError, match="is named twice"):
            AskedKeys(tuple(every)).places(keys)

    assert seconds(ask) < MOST_S


async def test_a_hundred_thousand_keys_come_in_parts_and_not_with_the_description() -> None:
    store = MemoryStore()
    keys = tuple(f"Shop-{number:06}" for number in range(KEYS - 1))
    stream = PublishedAxes(store, epsilon="2", epoch_bins=4, carriers=keys, buckets=2)
    await stream.open()
    async with asking(store) as (_, client):

        async def listed(**query: Any) -> dict[str, Any]:
            answer = await client.get("/v1/streams/delays/keys/list", params=query)
            assert answer.status_code == 200, answer.text
            assert len(answer.content) < 40_000
            return dict(json.loads(answer.content))

        described = await client.get("/v1/streams/delays")
        assert len(described.content) < 10_000
        assert described.json()["axes"]["keys"] == KEYS
        found: list[str] = []
        after: int | None = 0
        for _ in range(10):
            answer = await listed(contains="SHOP-00", after=after, limit=1_000)
            found, after = [*found, *answer["keys"]], answer["next"]
        assert after is None
        assert found == list(keys[:10_000])
        answer = await listed(contains="p-099998", limit=5)
        assert (answer["keys"], answer["next"], answer["listed"]) == (["Shop-099998"], None, KEYS)
        names = ["Shop-000007", "other", "Shop-7"]
        answer = await listed(key=names)
        assert (answer["keys"], answer["unknown"]) == (names[:2], names[2:])
        refused = await client.get("/v1/streams/delays/keys/list", params={"key": "other", "after": 3})
        assert refused.json()["error"].startswith("key: looks names up, so it stands alone")
