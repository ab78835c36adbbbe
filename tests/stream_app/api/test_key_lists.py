"""The list of keys comes in parts: every part, any search, any case, and what 100,000 keys cost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from stream_app.api.answers.keys import _containing, _looked_up
from stream_app.api.schemas import KeyListQuery
from stream_app.core.answers.asked_keys import MOST_NAMES, AskedKeys, KeyNameError
from stream_app.core.answers.query import StreamView
from stream_app.core.counting.keys import KeyField, KeyList
from tests.models.memory import MemoryStore
from tests.stream_app.api.client import asking
from tests.stream_app.published_axes import PublishedAxes

KEYS = 100_000
MOST_S = 0.1  # of a processor: other readers wait meanwhile


def test_search_finds_what_a_loop_over_all_names_finds() -> None:
    rng = np.random.default_rng(5)
    letters = np.array(list("aAbBİß\n/"))
    names = tuple(dict.fromkeys("".join(rng.choice(letters, rng.integers(1, 6))) for _ in range(300)))
    for sought in ("", "a", "ab", "\u0307", "\n", "b\na", "ss", "zz", *(name.lower() for name in names[:20])):
        for after in (0, 1, 150, len(names) - 1, len(names), len(names) + 5):
            expected = [at for at in range(after, len(names)) if sought in names[at].lower()]
            assert list(_containing(names, sought, after)) == expected, (sought, after)


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
        assert seconds(lambda text: list(_containing(names, text, 0)), sought) < MOST_S, sought


def test_a_thousand_patterns_are_looked_up_without_listing_their_keys() -> None:
    fields = tuple(KeyField(name, tuple(map(str, range(317))), False) for name in ("page", "country"))
    keys, every = KeyList(fields=fields), ["*/*"] * MOST_NAMES
    unknown = [f"*/{number}" for number in range(1_000, 1_000 + MOST_NAMES)]
    view = SimpleNamespace(name="visits", declared=SimpleNamespace(finds_keys=False))
    look_up = partial(_looked_up, cast(StreamView, view), keys)
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
