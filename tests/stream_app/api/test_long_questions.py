"""The process for long questions: its copies of views, what it computes, and whom a slow question delays."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dphist.noise import SeededNoise
from stream_app.api.admission.long_questions import Apart, grown, growth
from stream_app.api.answers.preview import replanned
from stream_app.api.replica import StreamReplica
from stream_app.api.sse import follow
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.visible import visible_epochs
from stream_app.core.costs import Cost
from stream_app.core.kinds.kind import Kind
from stream_app.core.ledger import statement
from stream_app.core.promise import Statement
from stream_app.core.records import PublicState
from tests.contracts.kinds import BINS, KINDS
from tests.contracts.test_kinds import every_kind, registered, strategy_of, two_epochs
from tests.patience import PATIENCE_S
from tests.stream_app.api.client import SHARED, Api, api_over, released, with_api
from tests.stream_app.api.test_followers import events_of, take
from tests.stream_app.api.test_panels import api_over_axes

pytestmark = pytest.mark.slow

SERVICE = """
import asyncio, os, sys
from stream_app.api.admission.long_questions import Apart
async def run():
    print(await Apart().of(os.getpid), flush=True)
    await asyncio.sleep(60)
if __name__ == "__main__":
    asyncio.run(run())
"""


def is_there(pid: int) -> bool:
    """Return whether a process is running."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().split()[2] != "Z"


def gone(pid: int) -> bool:
    """Wait until a process has ended; fail if it takes too long."""
    return _until(lambda: not is_there(pid))


def _until(true: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + PATIENCE_S
    while not true() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return true()


async def test_process_apart_computes_until_it_is_closed() -> None:
    apart = Apart()
    first = await apart.of(os.getpid)
    assert first not in (os.getpid(), None)
    for number in (signal.SIGINT, signal.SIGHUP):  # sent to all processes of a service
        os.kill(first, number)
    assert await apart.of(os.getpid) == first
    with pytest.raises(ZeroDivisionError):
        await apart.of(divmod, 1, 0)
    loaded = await apart.of(eval, "list(__import__('sys').modules)")
    answers = (f"answers.{module}" for module in ("counts", "streams", "sums", "values", "windows"))
    modules = ("overview", "prometheus.metrics", *answers)
    assert {f"stream_app.api.{module}" for module in modules} <= set(loaded)
    process = apart.begun()
    os.kill(first, signal.SIGKILL)
    assert _until(lambda: process.has_ended)  # a question before that fails and says to ask again
    second = await apart.of(os.getpid)
    assert second != first
    apart.close()
    assert gone(second)


async def test_answer_is_computed_once_even_if_all_readers_leave(tmp_path: Path) -> None:
    apart, answers, key = Apart(), dict[tuple[object, ...], None](), (str(tmp_path / "made"),)
    for _ in range(3):  # they are cancelled before the other process has begun
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(apart.fill(answers, os.mkdir, key), 0.001)
    await apart.fill(answers, os.mkdir, key)  # making it twice would raise an error
    assert answers == {key: None}
    with pytest.raises(FileExistsError):
        await apart.of(os.mkdir, *key)
    apart.close()


def test_process_apart_ends_when_the_service_is_killed() -> None:
    command = [sys.executable, "-c", SERVICE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        pid = int(service.stdout.readline())
        assert is_there(pid)
        service.kill()
        service.wait()
        assert gone(pid)


SEQS = (0, 1, 5, 5, BINS, BINS + 1, 2 * BINS - 1, 2 * BINS)

__all__ = ["registered"]


def grow(view: StreamView, whole: StreamView, state: PublicState) -> None:
    """Bring a view to a state. The rows come from another view, which has all of them."""
    epochs = {epoch.record.epoch: epoch for epoch in whole.epochs}
    wanted = view.missing(state)
    view.extend(
        state, [(w, epochs[w.epoch].rows(w.table)[w.first : w.first + w.rows].copy()) for w in wanted]
    )


def sent(copy: StreamView | None, view: StreamView, known: PublicState | None) -> StreamView:
    """Return the copy after it has received its missing rows as bytes, as from another process."""
    return grown(copy, pickle.loads(pickle.dumps(growth(view, known))))


def same(copy: StreamView, view: StreamView) -> bool:
    """Return whether a copy holds exactly the rows of the view."""
    tables = view.strategy.kind.tables
    pairs = list(zip(copy.epochs, view.epochs, strict=True))
    return copy.shown == view.shown and all(
        np.array_equal(one.rows(table), other.rows(table)) for one, other in pairs for table in tables
    )


@every_kind
@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("asked_at", [SEQS, SEQS[3:], SEQS[-1:], SEQS[::3]], ids=str)
def test_copy_equals_its_view_after_each_growth(kind: Kind, asked_at: tuple[int, ...]) -> None:
    strategy = strategy_of(kind)
    whole = two_epochs(kind, SeededNoise(3), strategy)
    view, copy, known = StreamView(strategy.to_json()), None, None
    for seq in SEQS:
        grow(view, whole, PublicState(strategy.to_json(), visible_epochs(whole.shown.epochs, seq), seq))
        if seq in asked_at:
            copy = sent(copy, view, known)
            known = view.shown
            assert same(copy, view)


@every_kind
@pytest.mark.usefixtures("registered")
def test_growth_holds_only_what_the_copy_lacks(kind: Kind) -> None:
    whole = two_epochs(kind, SeededNoise(3), strategy_of(kind))
    assert growth(whole, whole.shown).blocks == ()
    before = replace(whole.shown, visible_seq=2 * BINS - 1)
    rows = {missing.table: len(values) for missing, values in growth(whole, before).blocks}
    assert rows == {
        table: grown_by
        for table in kind.tables
        if (grown_by := kind.rows_after(table, BINS) - kind.rows_after(table, BINS - 1))
    }


def test_copy_has_the_current_privacy_statement() -> None:
    kind = KINDS["tree anticipating"]
    view = two_epochs(kind, SeededNoise(3), strategy_of(kind))
    view.statement = statement("file:a", ())
    copy = sent(None, view, None)
    assert copy.private == view.private is True
    bare = Statement("file:a", "event", "add-remove", Cost(Fraction(100)), False, ())
    view.statement = bare
    copy = sent(copy, view, view.shown)
    assert (copy.statement, copy.private) == (bare, False)


def test_copy_learns_the_early_end_of_an_epoch() -> None:
    kind = KINDS["tree anticipating"]
    whole = two_epochs(kind, SeededNoise(3), strategy_of(kind))
    view = StreamView(whole.shown.strategy)
    first, _ = whole.shown.epochs
    grow(view, whole, PublicState(whole.shown.strategy, (first,), 3))
    copy = sent(None, view, None)
    known = view.shown
    ended = replace(first, last_bin=first.first_bin + 2, end_reason="store_lost")
    grow(view, whole, PublicState(whole.shown.strategy, (ended,), 3))
    assert same(sent(copy, view, known), view)


def slow(view: StreamView, until: Path) -> int:
    """Return a view's seq once a file exists. Tests use this function as a slow question."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not until.exists() and time.monotonic() < deadline_s:
        time.sleep(0.005)
    return view.visible_seq


@asynccontextmanager
async def slowly_asked(replica: StreamReplica, until: Path) -> AsyncIterator[asyncio.Task[int]]:
    """Keep a slow question about a stream under way while the block runs."""
    assert replica.view is not None
    async with replica.asked_apart:
        answer = asyncio.create_task(SHARED.of_view(replica.view, slow, until))
        try:
            await asyncio.sleep(0)
            yield answer
        finally:
            await asyncio.to_thread(until.touch)
            await answer


@asynccontextmanager
async def stopped() -> AsyncIterator[int]:
    """Stop the process for long questions, as if its questions never ended; yield its id."""
    pid = await SHARED.of(os.getpid)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


async def under_way(asked: asyncio.Task[Any]) -> None:
    """Wait until a question is with the process for long questions, or answered without it."""
    while not (asked.done() or SHARED.begun().asked):  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def test_slow_answer_delays_no_follower_other_stream_or_overview(tmp_path: Path) -> None:
    async with api_over([5] * 12) as api:
        other = await released([1] * 3, api.store, name="other")
        await api.refresh()
        replicas = api.app.state.replicas
        glances = api.app.state.glances.follow(lambda _stream: True)
        first = [await anext(glances) for _ in range(2)]
        assert first[1].count(b"event: stream") == 2
        async with slowly_asked(api.replica, tmp_path / "answered") as answer:
            for bins in range(1, 4):
                await api.stream.close([7])
                await other.close([2])
                await api.refresh()
                rows = events_of(await take(follow(api.replica, 11 + bins), 1))
                assert [seq for seq, _ in rows] == [12 + bins]
                rows = events_of(await take(follow(replicas.by_name["other"], 2 + bins), 1))
                assert [seq for seq, _ in rows] == [3 + bins]
            async with asyncio.timeout(PATIENCE_S):
                assert (await api.json("count"))["seq"] == 15
                changed = await anext(glances)
                query = 'private_counts_running{stream="other"}'
                found = await api.json("/api/v1/query", query=query, time=(other.first_bin + 6) * 3600)
                series = await api.json("/v1/streams/other/series")
                overview = await api.json("/v1/overview")
            told = json.loads(changed.partition(b"data: ")[2].partition(b"\n")[0])
            assert (told["stream"], told["seq"]) == ("other", 6)
            assert len(found["data"]["result"]) == 1
            assert len(series["value"]) == 6
            assert {one["stream"]: one["seq"] for one in overview["streams"]} == {
                "departures": 12,
                "other": 6,
            }
            assert not answer.done()
        assert await answer == 12  # the seq at which it was asked
        assert len((await api.json("series"))["value"]) == 15


LONG: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/streams/delays/series", {"key": "UA"}),
    ("/v1/streams/delays/cdf", {}),
    ("/v1/streams/delays/quantile", {"q": 0.5}),
    ("/v1/streams/delays/keys", {}),
    ("/v1/streams/delays/heat", {}),
    ("/v1/streams/delays/quantiles", {"q": 0.5}),
    ("/v1/streams/delays/cdfs", {}),
    ("/v1/streams/delays/preview", {"epsilon": 0.3}),
    (
        "/api/v1/query_range",
        {"query": '{stream="delays"}', "start": 1_357_016_400, "end": 1_357_059_600, "step": 3600},
    ),
    ("/v1/overview", {}),
    ("/metrics", {}),
)


async def test_long_questions_are_computed_in_the_process_apart() -> None:
    """While the process for long questions is stopped, long questions wait, but every count is answered."""

    async with api_over_axes() as (api, _cells):
        assert api.replica.view is not None
        bins = api.replica.view.visible_seq
        async with stopped():
            asked = {path: asyncio.create_task(api.get(path, **query)) for path, query in LONG}
            for _ in range(20):
                assert (await api.json("/v1/streams/delays/count"))["seq"] == bins
                await asyncio.sleep(0.005)
            assert [path for path, one in asked.items() if one.done()] == []
        answers = {path: await one for path, one in asked.items()}
        assert {path: one.status_code for path, one in answers.items()} == dict.fromkeys(asked, 200)


@with_api([5] * 12)
async def test_answer_and_etag_agree_if_the_stream_grows_meanwhile(api: Api) -> None:
    await api.get("series")  # the other process already has a copy
    for step in range(3):
        async with stopped():
            asked = asyncio.create_task(api.get("series", step=2))
            await under_way(asked)
            await api.stream.close([7])
            await api.refresh()
        then, now = await asked, await api.get("series", step=2)
        for answer, seq in ((then, 12 + step), (now, 13 + step)):
            assert (answer.json()["seq"], answer.headers["etag"]) == (seq, f'"0:{seq}"')


@with_api([5] * 12)
async def test_killed_process_apart_refuses_open_questions_in_one_line(api: Api) -> None:
    async with stopped() as pid:
        asked = asyncio.create_task(api.error("series"))
        await under_way(asked)
        os.kill(pid, signal.SIGKILL)
        assert await asked == (503, {"error": "the computing process has ended; ask again"})
    assert len((await api.json("series"))["value"]) == 12


async def test_preview_plans_before_it_locks_the_stream() -> None:
    async with api_over([5] * 12) as api:
        async with api.app.state.making_turns.of("another reader"):
            asked = [asyncio.create_task(api.json("preview", epsilon=0.01 * n)) for n in (1, 2)]
            async with asyncio.timeout(PATIENCE_S):
                assert len((await api.json("series"))["value"]) == 12
                await api.stream.close([7])
                await api.refresh()
                assert len((await api.json("series"))["value"]) == 13
            assert not any(one.done() for one in asked)
        for one in asked:
            assert len((await one)["value"]) == 13


TINY = ("1e-300", "5e-324", "1e-100", "0.0099", "0", "-1", "nan", "inf", "1e400", "9" * 400)


@with_api([5] * 12)
async def test_preview_at_an_impossible_epsilon_is_refused(api: Api) -> None:
    await refused(api)


async def test_preview_at_an_impossible_epsilon_is_refused_over_keys() -> None:
    async with api_over_axes() as (api, _cells):
        await refused(api)


async def refused(api: Api) -> None:
    """Ask for previews at impossible epsilons, over HTTP and from the planner; return the refusals."""
    async with asyncio.timeout(PATIENCE_S):
        for epsilon in TINY:
            status, body = await api.error("preview", epsilon=epsilon)
            assert (status, body["parameter"]) == (422, "epsilon")
        assert api.replica.view is not None
        for number in (1e-300, 5e-324, 1e-15):
            with pytest.raises(QueryError, match="has no plan here"):
                await asyncio.to_thread(replanned, api.replica.view.strategy, number)
        assert len((await api.json("preview", epsilon=0.01, step=4))["value"]) > 0
        await api.refresh()
