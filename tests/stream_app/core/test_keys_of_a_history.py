"""One history over streams whose lists of keys differ: a key goes on where both lists hold it."""

from __future__ import annotations

import asyncio
from functools import cache
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.asked_keys import AskedKeys
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.succession import continued, edge_in_words
from stream_app.core.counting.bounding import PerUser
from stream_app.core.kinds.tables import SeriesView, Span
from tests.models.memory import MemoryStore
from tests.stream_app.core.test_query import EXACT, read
from tests.stream_app.core.test_succession import joined
from tests.stream_app.published import FIRST_BIN
from tests.stream_app.published_axes import PublishedKeys

EDGES = [FIRST_BIN, FIRST_BIN + 5, FIRST_BIN + 9, FIRST_BIN + 14]
LISTS = {"a": ("FR", "DE", "IT"), "b": ("IT", "FR"), "c": ("FR", "ES", "DE")}
BINS = [range(*pair) for pair in pairwise(EDGES)]
COUNTS = {
    name: np.random.default_rng(5 + len(keys)).integers(0, 9, (len(bins), len(keys) + 1))
    for (name, keys), bins in zip(LISTS.items(), BINS, strict=True)
}
ASKED = (
    AskedKeys(("FR",)),  # on all lists
    AskedKeys(("DE",)),  # not on the second one
    AskedKeys(("ES",)),  # on the last one only
    AskedKeys(("other",)),  # never the same key
    AskedKeys(("DE", "FR")),
    AskedKeys(("ES",), without=True),  # FR, DE and other
)


@cache
def chain(epsilon: str) -> tuple[StreamView, ...]:
    """Return three streams, each with another list of keys, another epoch and another tree."""

    async def run() -> tuple[StreamView, ...]:
        store = MemoryStore()
        facts: list[dict[str, Any]] = [
            {"epoch_bins": 3},
            {"epoch_bins": 4, "branching": (2, 2), "successor_of": "a"},
            {"epoch_bins": 2, "total": True, "successor_of": "b"},
        ]
        for seed, ((name, keys), own) in enumerate(zip(LISTS.items(), facts, strict=True)):
            first = EDGES[seed]
            own |= {"epsilon": epsilon, "carriers": keys, "other": True, "first_bin": first, "seed": seed}
            await PublishedKeys(store, name, **own).fill(COUNTS[name])
        return tuple([await read(None, store, name) for name in LISTS])

    return asyncio.run(run())


def of_bin(asked: AskedKeys, bin: int) -> int | None:
    """Return the true count of some keys in a bin; None if a key was not counted then."""
    name = list(LISTS)[sum(bin >= edge for edge in EDGES[1:])]
    labels = [*LISTS[name], "other" if name == "c" else "other then"]
    wanted = [one for one in (*LISTS["c"], "other") if (one in asked.names) != asked.without]
    if not set(wanted) <= set(labels):
        return None
    row = COUNTS[name][bin - [EDGES[0], EDGES[1], EDGES[2]][list(LISTS).index(name)]]
    return int(sum(row[labels.index(one)] for one in wanted))


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.text)
def test_every_range_is_the_recount_of_the_bins_whose_list_holds_the_keys(asked: AskedKeys) -> None:
    view = joined(chain(EXACT)).of_key(asked)
    for start, stop in combinations(range(EDGES[0], EDGES[-1] + 1), 2):
        span, bins = Span(start, stop), [of_bin(asked, bin) for bin in range(start, stop)]
        gaps = view.unmeasured(span)
        uncounted = [bin for gap in gaps for bin in range(*gap)]
        assert uncounted == [start + place for place, one in enumerate(bins) if one is None]
        if len(uncounted) < len(bins):
            assert view.count(span).value == sum(one or 0 for one in bins)
        else:
            with pytest.raises(QueryError, match="another list of keys was counted in the bins from"):
                view.count(span)
    every = {bin: one for bin in range(EDGES[0], EDGES[-1]) if (one := of_bin(asked, bin)) is not None}
    span = Span(EDGES[0], EDGES[-1])
    points = view.series("bin", span)
    assert [one.start for one in points.spans] == list(every)
    assert points.values.tolist() == list(every.values())
    assert points.unmeasured == len(range(*span)) - len(every)
    assert view.running().value == sum(every.values())
    assert view.series("running", span).values.tolist() == np.cumsum(list(every.values())).tolist()
    [whole] = view.consistent(np.array([view.span.start]), np.array([view.span.stop])).tolist()
    assert whole == sum(every.values())


def test_the_total_begins_where_the_list_of_keys_does() -> None:
    view = joined(chain(EXACT))
    assert view.span == (EDGES[2], EDGES[3])
    assert view.running().value == COUNTS["c"].sum()
    assert view.unmeasured(Span(EDGES[0], EDGES[3])) == [(EDGES[0], EDGES[2])]
    assert view.count(Span(EDGES[1], EDGES[3])).value == COUNTS["c"].sum()
    with pytest.raises(QueryError, match="another list of keys") as refused:
        view.count(Span(EDGES[0], EDGES[1]))
    assert str(refused.value).endswith("a range that reaches beyond them, or for a")
    assert np.asarray(view.counts_of_keys(view.span).value).tolist() == COUNTS["c"].sum(axis=0).tolist()


def test_errors_are_those_of_the_streams_that_have_the_keys_together() -> None:
    parts = chain("1")
    view, has = joined(parts).of_key("DE"), [parts[0].of_key("DE"), parts[2].of_key("DE")]
    for start, stop in combinations(range(EDGES[0], EDGES[-1] + 1), 2):
        pieces = [(one, Span(max(start, one.span.start), min(stop, one.span.stop))) for one in has]
        alone = [one.count(piece) for one, piece in pieces if piece.start < piece.stop]
        if not alone:
            continue
        found = view.count(Span(start, stop))
        assert found.value == pytest.approx(sum(one.value for one in alone))
        assert found.variance == pytest.approx(sum(one.variance for one in alone))
        assert found.law.variance == pytest.approx(found.variance)
    views: tuple[SeriesView, ...] = ("unbiased", "first_published")
    for shown in views:
        points = view.series("bin", view.span, view=shown)
        alone_points = [one.series("bin", one.span, view=shown) for one in has]
        assert points.values == pytest.approx(np.concatenate([one.values for one in alone_points]))
        deviations = [one.laws.deviations() for one in alone_points]
        assert points.laws.deviations() == pytest.approx(np.concatenate(deviations))
    points, whole = view.series("running", view.span), [one.running() for one in has]
    assert points.values[-1] == pytest.approx(sum(one.value for one in whole))
    assert points.laws.deviations()[-1] ** 2 == pytest.approx(sum(one.variance for one in whole))


def test_a_key_that_left_the_list_is_refused_with_the_stream_that_has_it() -> None:
    view = joined(chain("1"))
    with pytest.raises(QueryError) as refused:
        view.of_key("IT")
    assert str(refused.value) == "key: 'IT' is not on the list of keys any more; ask for it in b"
    with pytest.raises(QueryError, match="'PL' is not on the public list; known are FR, ES, DE, other"):
        view.of_key("PL")


@pytest.mark.parametrize(
    "facts", [{"carriers": ("ES",)}, {"user": PerUser("user", 2)}, {"other": True, "carriers": ("ES",)}]
)
async def test_no_key_goes_on_without_a_common_key_or_under_a_cap(facts: dict[str, Any]) -> None:
    store = MemoryStore()
    user = {"user": facts["user"]} if "user" in facts else {}
    old = PublishedKeys(store, "a", "1", 3, other="other" in facts, carriers=("FR", "DE"), **user)
    own: dict[str, Any] = {"carriers": ("FR", "IT"), **facts}
    new = PublishedKeys(store, "b", "1", 3, FIRST_BIN + 3, successor_of="a", **own)
    await old.fill(np.ones((3, len(old.carriers) + old.other), np.int64))
    await new.fill(np.ones((1, len(new.carriers) + new.other), np.int64))
    views = {name: await read(None, store, name) for name in "ab"}
    assert continued(views["b"], views.get) == ()


def test_an_edge_says_which_keys_come_and_go() -> None:
    a, b, _ = chain("1")
    assert edge_in_words(a, b) == (
        "a ends, and b goes on: the list of keys changes (without DE); epoch 3 bins until then, 4 bins from "
        "then on. Keys of both lists have one history; the total over all keys begins there."
    )
