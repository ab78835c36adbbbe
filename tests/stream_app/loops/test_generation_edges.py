"""Where a generation begins, and what a start does that cannot begin it: no other stream waits for it."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dphist import SeededNoise
from stream_app.config import SourceSettings, StreamSettings
from stream_app.config.plans import planned
from stream_app.core.budget import Total
from stream_app.core.counting.bounding import PerUser
from stream_app.core.counting.keys import KeyList
from stream_app.core.instants import format_instant
from stream_app.core.ledger import ACCEPTED
from stream_app.core.records import Reply
from stream_app.loops.clocks import LiveClock
from stream_app.loops.segments import until_begun_elsewhere
from stream_app.loops.stream import Stream
from stream_app.ports import OperatorError
from stream_app.ports.errors import OvertakenError
from stream_app.wiring.event_logs import check_file
from tests.stream_app.declared import BIN_US, FIRST_BIN, SOURCE, STREAM, changed_stream
from tests.stream_app.loops.test_generations import (
    CHANGED_AT,
    EDGE,
    Worker,
    drawn,
    plan_of,
    stream_of,
)
from tests.stream_app.one_source import OneSource, OneUserKey

SPENT = (
    "generation 2 cannot begin, so the settings so far hold: : streams.visits.privacy.total: with the first "
    "epoch of generation 2 the source costs epsilon 5, more than the total of epsilon 4 for the source; "
    "raise the total, or lower epsilon"
)
MINUTE_US, HOUR_US = 60_000_000, 3_600_000_000
NO_EDGE = (
    "generation 2 cannot begin, so the settings so far hold: streams.visits.time.bin: no bin begins where an "
    "epoch of the settings so far ends, for example at "
)
REMEDY = ", or could be cut short; choose bins that begin there"
MIDNIGHT_US = 1_795_478_400_000_000  # 2026-11-24T00:00:00Z


@pytest.mark.parametrize(
    ("minutes", "zone", "earlier"),
    [
        (1, None, 0),
        (10, None, 5),
        (15, None, 5),
        (60, None, 35),
        (1440, None, 635),
        (1440, "Europe/Paris", 695),
    ],
)
async def test_a_stream_that_began_at_any_time_of_day_can_have_longer_bins(
    one: OneSource, minutes: int, zone: str | None, earlier: int
) -> None:
    """All epochs of 30 days end at 10:35, because the first start was then. Args: earlier, in minutes."""
    begun = MIDNIGHT_US + 635 * MINUTE_US
    one.clock.now_us = begun + HOUR_US
    await Worker.start(one, stream_of(one, bin_us=5 * MINUTE_US, epoch_bins=30 * 288, first_us=begun))
    bins = {"bin_us": minutes * MINUTE_US, "timezone": zone, "epoch_bins": 30}
    for now_us, epochs in (one.clock.now_us, 1), (begun + (30 * 1440 - earlier) * MINUTE_US, 2):
        one.clock.now_us = now_us
        [following] = (await plan_of(one, stream_of(one, **bins, first_us=begun))).following
        assert (following.edge_us - begun) / MINUTE_US == epochs * 30 * 1440 - earlier


@pytest.mark.parametrize("seed", range(12))
async def test_the_edge_is_the_last_common_one_of_the_first_epoch_that_has_one(
    one: OneSource, seed: int
) -> None:
    """The oracle walks along all bins of all epochs."""
    chance = random.Random(f"edges {seed}")
    await Worker.start(one, stream_of(one))
    for _ in range(8):
        now_s = 10 * chance.randrange(101, 400) + chance.randrange(10)
        one.clock.now_us = now_s * 1_000_000
        bin_s = chance.choice((1, 3, 7, 10, 25, 40, 61, 3600, 7919))
        meant: int | None = None
        for begun in range(1000, 1000 + 60 * 10_000, 60):
            starts = range(begun + 60, begun, -10)
            ahead = (at for at in starts if at // 10 > (now_s + 5) // 10 and at % bin_s == 0)
            if (meant := next(ahead, None)) is not None:
                break
        assert meant is not None
        found = (await plan_of(one, stream_of(one, bin_us=bin_s * 1_000_000, epoch_bins=5))).following
        assert [following.edge_us for following in found] == [meant * 1_000_000]
        assert meant > now_s


@pytest.mark.parametrize("window", [2, 3, 4, 6])
async def test_an_epoch_is_cut_short_only_where_one_of_its_windows_ends(one: OneSource, window: int) -> None:
    """The oracle closes an epoch bin by bin. Windows count from the epoch's first bin, here 100, not 1970."""
    keys = KeyList(
        mode="window",
        window_us=window * BIN_US,
        mechanism="hb",
        share=Fraction(4, 5),
        field="key",
        names=("a",),
        other=True,
    )
    [running] = (await Worker.start(one, stream_of(one, keys=keys, epoch_bins=12))).plan.now.streams
    kind, held, ended = planned(running).kind, b"", []
    for bin in range(12):
        done = kind.close(held, np.zeros((1, 2), np.int64), SeededNoise(bin), None)
        held = done.state
        if kind.row_part(done, 0)["windows"]:
            ended.append(bin + 1)
    assert ended == [*range(window, 13, window)]
    one.clock.set_bin(CHANGED_AT)
    never = set()
    for bins in range(1, 40):
        meant = next(
            (
                end
                for begun in range(FIRST_BIN, FIRST_BIN + 12 * 40, 12)
                for end in (begun + bin for bin in reversed(ended))
                if end > CHANGED_AT + 0.5 and end % bins == 0
            ),
            None,
        )
        found = await plan_of(one, stream_of(one, bin_us=bins * BIN_US, epoch_bins=5))
        assert [edge.edge_us for edge in found.following] == ([meant * BIN_US] if meant else [])
        line = f"{STREAM}: {NO_EDGE}{format_instant((FIRST_BIN + 12) * BIN_US)}{REMEDY}"
        assert found.refused == ([] if meant else [line])
        never |= set() if meant else {bins}
    # New bins as long as 6 begin at 102 and 108, but windows of 3 bins end at 103, 106, 109, 112.
    assert (6 in never) == (window in (3, 6))


async def test_bins_that_never_begin_together_are_refused(one: OneSource) -> None:
    days = {"bin_us": 24 * HOUR_US, "epoch_bins": 5}
    await Worker.start(one, stream_of(one, **days, timezone="Europe/Paris"))
    found = await plan_of(one, stream_of(one, **days, timezone="Asia/Tokyo"))
    assert (found.following, found.refused) == (
        [],
        [f"{STREAM}: {NO_EDGE}1970-01-05T23:00:00Z{REMEDY}"],
    )


async def test_a_start_that_is_too_slow_for_its_instant_runs_the_old_settings_on(
    one: OneSource, caplog: pytest.LogCaptureFixture
) -> None:
    changed = stream_of(one, epoch_bins=4)
    worker = await Worker.start(one, stream_of(one))
    await worker.run(one, {}, CHANGED_AT)
    slow = await plan_of(one, changed)
    await worker.run(one, {}, EDGE + 1.5)
    settings = await slow.store_due(one.store)
    assert settings is not None
    assert [stream.name for stream in settings.streams] == [STREAM]
    assert settings.streams[0].until_us is None
    state = await one.state()
    assert state.until_bin is None
    [line] = caplog.messages
    assert line == (
        f"stream {STREAM}: generation 2 cannot begin at 1970-01-01T00:17:40Z, because bins from there on "
        "are counted already; the settings so far hold, and the worker chooses a later instant"
    )
    # The worker tries again after a minute, not at once.
    clock = LiveClock(one.store)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(slow.until_next(settings, clock), 0.01)
    one.clock.now_us = slow.now_us + 60_000_000
    await slow.until_next(settings, clock)
    later = await Worker.start(one, changed)
    [following] = later.plan.following
    assert following.edge_us == (EDGE + 6) * BIN_US
    assert [closer.name for closer in later.closers] == [STREAM, f"{STREAM}@2"]


async def test_a_worker_starts_again_where_another_one_has_stored_another_end(one: OneSource) -> None:
    """Its own end was lost with the store. Halted until a restart, the segment would count nothing."""
    changed = stream_of(one, epoch_bins=4)
    await (await Worker.start(one, stream_of(one))).run(one, {}, CHANGED_AT)
    settings = await (await plan_of(one, changed)).store_due(one.store.copy())
    assert settings is not None
    [before, following] = map(planned, settings.streams)
    both = [Stream(strategy=before), Stream(strategy=following)]
    closer = one.closer(before, sharing={"until_us": EDGE * BIN_US, "measuring": both})
    assert await one.store.end_at(STREAM, EDGE + 6, True) is Reply.DONE
    line = f"stream {STREAM}: another worker has stored that its generation 1 ends at 1970-01-01T00:18:40Z"
    with pytest.raises(OvertakenError, match=line):
        await closer.reconcile()
    worker = await Worker.start(one, changed)
    assert [closer.name for closer in worker.closers] == [STREAM, f"{STREAM}@2"]
    await worker.run(one, drawn(6), 117)
    assert max(await one.released()) == EDGE + 5


async def test_a_worker_starts_again_where_another_one_was_faster_with_other_settings(one: OneSource) -> None:
    """Halted until a restart, the segment would count nothing. A segment that it knew is refused, as ever."""
    await (await Worker.start(one, stream_of(one))).run(one, {}, CHANGED_AT)
    slow = await (await plan_of(one, stream_of(one, epoch_bins=3))).store_due(one.store)
    assert slow is not None
    [_, following] = map(planned, slow.streams)
    worker = await Worker.start(one, stream_of(one))  # its operator has put the settings back
    assert [closer.name for closer in worker.closers] == [STREAM, f"{STREAM}@2"]
    begun = f"stream {STREAM}: another worker has begun its generation 2 with time.epoch 1m instead of 30s"
    with pytest.raises(OvertakenError, match=begun):
        await one.closer(following, sharing={"begins": True}).agree()
    with pytest.raises(OperatorError, match=r"time\.epoch was") as refused:
        await one.closer(following).agree()
    assert not isinstance(refused.value, OvertakenError)
    again = await plan_of(one, stream_of(one, epoch_bins=3))
    assert [coming.segment.name for coming in again.following] == [f"{STREAM}@3"]


class NoUsersKey(OneUserKey):
    """Keys of a machine to which nobody has copied the key of users' hashes."""

    def user_key(self, stream: str, mark: bytes = b"") -> bytes:
        """Refuse."""
        raise OperatorError(f"stream {stream}: its users are hashed with a key that is not here")


@pytest.mark.parametrize("refused", ["source", "users' key", "file", "end of another stream"])
async def test_a_refused_start_stores_nothing_of_a_generation(one: OneSource, refused: str) -> None:
    """The operator edits two things, and takes both back when the start refuses one of them."""
    users, keys = {"user": PerUser("user", 1)}, one.keys
    before, after = stream_of(one, **users), stream_of(one, epoch_bins=4, **users)
    other = replace(before, name="other", accept=ACCEPTED)
    wanted = [after, other]
    await (await Worker.start(one, before, other)).run(one, {}, CHANGED_AT)
    match refused:
        case "source":
            wanted = [changed_stream(after, source={"name": "file:other.ndjson"}), other]
        case "users' key":
            one.keys = NoUsersKey(one.directory / "noise_keys")
        case "file":
            begun = replace(before, source=SourceSettings(one.directory / "other.ndjson", "earliest"))
            check_file(begun, one.directory / "state")
        case _:
            wanted = [after, replace(other, until_us=int(CHANGED_AT - 1) * BIN_US)]
    with pytest.raises(OperatorError):
        await Worker.start(one, *wanted)
    state = await one.state()
    assert state.until_bin is None
    one.keys = keys
    worker = await Worker.start(one, before, other)
    assert [closer.name for closer in worker.closers] == [STREAM, "other"]
    assert worker.plan.lines() == []


async def test_a_worker_soon_knows_a_segment_that_another_worker_began(
    one: OneSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then nobody cuts its partitions, so the segment's bins wait."""
    waited_s = list[float]()

    async def sleep(seconds: float) -> None:
        waited_s.append(seconds)

    await (await Worker.start(one, stream_of(one))).run(one, {}, CHANGED_AT)
    running = (await plan_of(one, stream_of(one))).now
    await Worker.start(one, stream_of(one, epoch_bins=4))
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "sleep", sleep)
        assert await until_begun_elsewhere(running, one.store) == {STREAM}
    assert sum(waited_s) <= 5


async def test_a_stream_whose_end_left_the_configuration_is_named(one: OneSource) -> None:
    ends = replace(stream_of(one), until_us=EDGE * BIN_US)
    await (await Worker.start(one, ends)).run(one, {}, EDGE + 2)
    assert (await plan_of(one, ends)).abandoned == []
    [line] = (await plan_of(one, stream_of(one))).abandoned
    end = format_instant(EDGE * BIN_US)
    assert line.startswith(f"{STREAM}: it ends at {end}, and this configuration does not say how it goes on;")


TOTAL = Total(Fraction(4), None, "source")
ONE_USER: dict[str, Any] = {"user": PerUser("user", 1), "epsilon": 1, "private": True}


def limited(one: OneSource, epoch_bins: int) -> StreamSettings:
    """Return a stream whose source has a total of four epochs."""
    return replace(stream_of(one, epoch_bins=epoch_bins, **ONE_USER), total=TOTAL, accept=ACCEPTED)


async def use_up(one: OneSource, epochs: int) -> None:
    """Let another stream of the source open so many epochs."""
    [first, *_] = await one.store.ledger(SOURCE)
    for epoch in range(epochs):
        spent = replace(first, stream="other", epoch=epoch, strategy_hash="h")
        assert await one.store.reserve(spent) is Reply.DONE


async def test_a_total_that_is_used_up_before_the_lead_leaves_the_old_settings(
    one: OneSource, caplog: pytest.LogCaptureFixture
) -> None:
    await (await Worker.start(one, limited(one, 60))).run(one, {}, CHANGED_AT)
    assert len((await Worker.start(one, limited(one, 50))).plan.following) == 1
    await use_up(one, 3)
    one.clock.set_bin(130)  # 300 seconds before the edge, at bin 160
    caplog.clear()
    worker = await Worker.start(one, limited(one, 50))
    assert caplog.messages == [f"stream {STREAM}: {SPENT}"]
    assert [closer.name for closer in worker.closers] == [STREAM]
    state = await one.state()
    assert state.until_bin is None
    next_one = worker.plan.until_next(worker.plan.now, LiveClock(one.store))
    with pytest.raises(TimeoutError):  # the worker does not start its loops again for it
        await asyncio.wait_for(next_one, 0.01)


async def test_a_total_that_is_used_up_after_the_end_is_stored_ends_this_stream_only(
    one: OneSource, caplog: pytest.LogCaptureFixture
) -> None:
    other = replace(stream_of(one, **ONE_USER), name="beside", accept=ACCEPTED)
    await (await Worker.start(one, limited(one, 6), other)).run(one, {}, CHANGED_AT)
    due = await plan_of(one, limited(one, 4), other)
    assert await due.store_due(one.store) is not None  # and the worker dies
    await use_up(one, 3)
    worker = await Worker.start(one, limited(one, 4), other)
    assert [closer.name for closer in worker.closers] == [STREAM, "beside"]
    [line] = worker.plan.refused
    assert line.startswith(
        f"{STREAM}: generation 2 cannot begin, so the stream ends at 1970-01-01T00:17:40Z: "
    )
    # Later, and alone, the worker has nothing to do, and says so.
    await worker.run(one, {}, EDGE + 2)
    worker = await Worker.start(one, limited(one, 4), other)
    assert [closer.name for closer in worker.closers] == ["beside"]
    with pytest.raises(OperatorError, match="raise the total"):
        await Worker.start(one, limited(one, 4))
