"""A replay whose truth is known: found keys are exact without noise, and their intervals hold the truth.

``python -m tests.stream_app.loops.test_found_truth 59780`` replays as many users over a real Redis, and tells
the result.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats

from dphist.discovery import KeyDiscovery
from stream_app.core.answers.sums import mean_over, sum_of
from stream_app.loops import finding_keys
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from tests.stream_app.found_keys import (
    AMOUNTS,
    APPROXIMATE,
    DISCOVER,
    Replayed,
    Visit,
    amount_of,
    replay,
    view_at,
    write_visits,
)

OF_USER, PAGES, BINS = 10, 20_000, 24
RARE = 1e-6


class Shown(NamedTuple):
    """A found key. Args: page; truth, its visits; value and interval, as released."""

    page: str
    truth: int
    value: float
    interval: tuple[float, float]


def drawn(users: int, seed: int) -> list[Visit]:
    """Draw the visits of users: ten of each, to pages by a law of Zipf, at any time of the day."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, PAGES + 1)
    pages = rng.choice(PAGES, users * OF_USER, p=weights / weights.sum()).tolist()
    hours = (rng.random(users * OF_USER) * BINS).tolist()
    numbered = enumerate(zip(hours, pages, strict=True))
    return [(hour, f"u{at // OF_USER}", f"/{page}") for at, (hour, page) in numbered]


async def replayed_with(
    directory: Path,
    visits: list[Visit],
    epsilon: float,
    *stores: Any,
    approximate: bool = False,
    **own: Any,
) -> Replayed:
    """Replay visits with epsilon, of which the names take half.

    Args: approximate, whether counts have a delta; stores and own, as of ``replay``.
    """
    write_visits(directory, visits)
    keys = {"discover": {"epsilon": epsilon / 2, "delta": 1e-9}}
    unit = {"user": "user", "max_events": OF_USER}
    privacy: dict[str, Any] = {"epsilon": epsilon, "not_private": epsilon > 20, "unit": unit}
    privacy |= {"delta": 2e-9} if approximate else {}
    return await replay(directory, *stores, keys=keys, privacy=privacy, **own)


async def shown(replayed: Replayed, visits: list[Visit]) -> list[Shown]:
    """Return the found keys, with their counts over the day beside the truth."""
    view, truth = await replayed.view(), Counter(page for _, _, page in visits)
    keys = view.declared.keys
    assert keys is not None
    if not keys.labels:
        return []
    counts = view.counts_of_keys(view.span)  # of all keys at once: one key takes time for each of them
    interval = counts.interval(0.95)
    columns = (np.ravel(one).tolist() for one in (counts.value, interval.lower, interval.upper))
    return [
        Shown(page, truth[page], value, (lower, upper))
        for page, value, lower, upper in zip(keys.labels, *columns, strict=True)
    ]


def holds(one: Shown) -> bool:
    return one.interval[0] <= one.truth <= one.interval[1]


@pytest.mark.parametrize("approximate", [False, True])
async def test_found_keys_of_a_replay_are_exact_without_noise(tmp_path: Path, approximate: bool) -> None:
    """Approximate counts have noise that is far below a half."""
    visits = drawn(600, seed=1)
    replayed = await replayed_with(tmp_path, visits, 1e9, approximate=approximate)
    found, view = await shown(replayed, visits), await replayed.view()
    assert len(found) > 50
    assert [round(one.value) for one in found] == [one.truth for one in found]
    others = len(visits) - sum(one.truth for one in found)
    assert round(float(view.count(view.span).value)) == len(visits)
    assert round(float(view.of_key("other").count(view.span).value)) == others


@pytest.mark.parametrize("privacy", [{}, APPROXIMATE], ids=["pure", "approximate"])
async def test_a_history_counts_a_key_in_all_epochs_of_both_streams(
    tmp_path: Path, privacy: dict[str, Any]
) -> None:
    """The earlier stream's epochs found other keys than its last one."""
    pages = [["/a", "/b"], ["/b"], ["/b", "/c"], ["/b", "/c"]]
    write_visits(tmp_path, [(hour + 0.5, "", page) for hour in range(BINS) for page in pages[hour // 6]])
    keys = {"discover": DISCOVER | {"epochs": 0}}
    replayed = await replay(tmp_path, time={"epoch": "6h"}, keys=keys, privacy=privacy)
    earlier, later = await view_at(replayed.reader, 12), await replayed.view()
    later.epochs = later.epochs[2:]
    view = later.following((earlier,))
    assert [view.of_key(key).count(view.of_key(key).span).value for key in ("/b", "/c")] == [24, 12]


async def test_no_other_stream_waits_for_decisions_and_releases_of_many_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = defaultdict[str, set[int]](set)

    def watch(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def noted(*given: Any) -> Any:
            threads[name].add(threading.get_ident())
            return real(*given)

        monkeypatch.setattr(owner, name, noted)

    watch(KeyDiscovery, "add")
    watch(KeyDiscovery, "decide")
    watch(finding_keys, "make_release")
    await replayed_with(tmp_path, drawn(9, seed=1), 1e9)
    assert threads.keys() == {"add", "decide", "make_release"}
    assert threading.get_ident() not in set[int]().union(*threads.values())


async def test_intervals_of_approximate_found_keys_hold_the_truth(tmp_path: Path) -> None:
    visits = drawn(3_000, seed=2)
    found = await shown(await replayed_with(tmp_path, visits, 4.0, approximate=True), visits)
    assert len(found) > 20
    inside = sum(map(holds, found))
    assert stats.binom.cdf(inside, len(found), 0.95) > RARE
    assert max(one.interval[1] - one.interval[0] for one in found) > 0


async def test_intervals_of_found_keys_hold_the_truth(tmp_path: Path) -> None:
    """Those of counts, of sums and of means."""
    visits, amounts = drawn(3_000, seed=2), Counter[str]()
    for hour, _, page in visits:
        amounts[page] += amount_of(hour)
    replayed = await replayed_with(tmp_path, visits, 4.0, sum=AMOUNTS)
    found, view, errors = await shown(replayed, visits), await replayed.view(), list[float]()
    inside = Counter(counts=sum(map(holds, found)))
    for page, truth, *_ in found:
        total, mean = sum_of(view, view.span, page), mean_over(view, view.span, page)
        interval = total.interval(0.95)
        inside["sums"] += bool(interval.lower <= amounts[page] <= interval.upper)
        inside["means"] += bool(mean.lower <= amounts[page] / truth <= mean.upper)
        errors += [float(total.value) - amounts[page]]
    assert len(found) > 20
    assert min(stats.binom.cdf(inside[of], len(found), 0.95) for of in ("counts", "sums", "means")) > RARE
    assert max(abs(one.value - one.truth) for one in found) > 0
    assert max(map(abs, errors)) > 0


async def _told(visits: list[Visit], epsilon: float) -> str:
    with TemporaryDirectory() as name, EmbeddedRedis(Path(name) / "redis") as server:
        store, reader = RedisStore(server.worker_url), RedisReader(server.api_url)
        began_s, worked_s = time.monotonic(), time.process_time()
        found = await shown(await replayed_with(Path(name), visits, epsilon, store, reader), visits)
        took_s, worked_s = time.monotonic() - began_s, time.process_time() - worked_s
        await store.close()
        await reader.close()
    exact, inside = sum(one.value == one.truth for one in found), sum(map(holds, found))
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"epsilon {epsilon:g}: {len(found):,} keys found, {exact:,} exact, {inside:,} inside their interval; "
        f"{took_s:.0f} s, of the processor {worked_s:.0f} s without Redis, {memory_mb:,.0f} MB"
    )


def main() -> None:
    """Tell what a replay finds without noise and with epsilon 1."""
    visits = drawn(int(sys.argv[1]), seed=3)
    print(
        f"{len(visits):,} visits, {OF_USER} of each user, to {len({page for _, _, page in visits}):,} pages"
    )
    for epsilon in (1e9, 1.0):
        print(asyncio.run(_told(visits, epsilon)), flush=True)


if __name__ == "__main__":
    main()
