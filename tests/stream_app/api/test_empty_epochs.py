"""An epoch ended before its first release: every address still answers, and says that the epoch ended."""

from __future__ import annotations

from typing import Any

import pytest

from dphist.tree.design import Release
from tests.models.memory import MemoryStore
from tests.stream_app.api.client import Api, api_at
from tests.stream_app.published import FIRST_BIN, Published

RELEASES: tuple[Release, ...] = ("causal", "anticipating")
KINDS = ("running", "bin")
VIEWS: tuple[dict[str, Any], ...] = (
    {},
    {"view": "first_published"},
    {"view": "consistent"},
    {"view": "consistent", "method": "isotonic"},
)
REASON = "its noise was lost"


async def ended_at_once(stream: Published, epoch: int, first_bin: int) -> None:
    """Open an epoch and end it before its first release."""
    await stream.open(epoch, first_bin)
    state = await stream.store.load(stream.name)
    assert state is not None
    await stream.store.end_epoch(stream.name, epoch, state.seq, REASON)


async def everything_answers(api: Api, start: str, counts: list[float]) -> None:
    """Request all releases from every address."""
    for kind in KINDS:
        for view in VIEWS:
            found = await api.json("series", kind=kind, **view)
            assert len(found["value"]) == len(counts), (kind, view)
    assert len((await api.json("series", kind="window", window=2))["value"]) > 0
    assert (await api.json("count"))["start"] == start
    [glance] = (await api.json("/v1/overview"))["streams"]
    assert len(glance["sparkline"]["value"]) == len(counts)
    assert (await api.json("/v1/streams"))["streams"][0]["running"] is not None
    await api.json("preview", epsilon=2)
    await api.json("/api/v1/query", query="private_counts_running")
    assert b"private_counts_running_stderr" in (await api.get("/metrics")).content


@pytest.mark.parametrize("release", RELEASES)
async def test_first_epoch_without_releases_is_shown_as_ended(release: Release) -> None:
    stream = Published(MemoryStore(), release=release)
    await ended_at_once(stream, 0, FIRST_BIN)
    async with api_at(stream) as api:
        for path in ("", "privacy", "marks", "/v1/overview", "/v1/streams", "/metrics"):
            assert (await api.get(path)).status_code == 200, path
        status, refused = await api.error("series")
        assert (status, "nothing is released yet" in refused["error"]) == (400, True)
        [epoch] = (await api.json(""))["epochs"]
        assert (epoch["bins_released"], epoch["end_reason"]) == (0, REASON)
        await stream.open(1, FIRST_BIN + 10)
        await api.refresh()
        [glance] = (await api.json("/v1/overview"))["streams"]
        assert glance["running"] is None
        await stream.close([5, 0, 7])
        await api.refresh()
        await everything_answers(api, "2013-01-01T10:00:00Z", [5, 0, 7])
        said = await api.json("")
        assert [one["end_reason"] for one in said["epochs"]] == [REASON, None]
        assert said["start"] == "2013-01-01T10:00:00Z"


@pytest.mark.parametrize("release", RELEASES)
async def test_middle_epoch_without_releases_changes_no_answer(release: Release) -> None:
    stream = Published(MemoryStore(), release=release, epoch_bins=4)
    await stream.open()
    await stream.close([5, 0, 7, 9])
    await ended_at_once(stream, 1, FIRST_BIN + 4)
    await stream.open(2, FIRST_BIN + 4)
    await stream.close([2])
    async with api_at(stream) as api:
        await everything_answers(api, "2013-01-01T00:00:00Z", [5, 0, 7, 9, 2])
        assert [one["bins_released"] for one in (await api.json(""))["epochs"]] == [4, 0, 1]
