"""Sums and means of every key equal a recount, and what /sum and /mean answer for each key alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models.memory import MemoryStore
from tests.stream_app.api.client import EXACT, Api, api_at, api_over
from tests.stream_app.published_axes import PublishedSums, sales_of

HOURS = 24
EDGES = {"start": "2013-01-01T05:00:00Z", "end": "2013-01-01T23:00:00Z"}


async def sold(epsilon: str) -> tuple[PublishedSums, np.ndarray]:
    """Return a stream with sales, and the cents of each bin and key."""
    stream = PublishedSums(MemoryStore(), epsilon=epsilon, epoch_bins=HOURS)
    cells, cents = sales_of(stream, HOURS)
    await stream.open()
    await stream.close_cells(cells)
    return stream, cents


async def test_sums_without_noise_are_the_recount_over_the_range_and_in_every_slice() -> None:
    stream, cents = await sold(EXACT)
    async with api_at(stream) as api:
        found = await api.json("sum/keys", step=6, aligned=True, **EDGES)
        order = np.argsort(-cents[5:23].sum(axis=0))
        assert [one["key"] for one in found["keys"]] == [[*stream.carriers, "other"][i] for i in order]
        assert [one["value"] for one in found["keys"]] == pytest.approx(cents[5:23].sum(axis=0)[order] / 100)
        slices = np.array([cents[a:b].sum(axis=0) for a, b in ((5, 6), (6, 12), (12, 18), (18, 23))]) / 100
        assert np.allclose([one["counts"] for one in found["keys"]], slices[:, order].T)
        assert found["meaning"].startswith("The sum of amount, each clamped to 0 to 500")
        assert found["amounts"]["unit"] == 0.01


async def test_every_key_has_the_answer_of_its_own_question() -> None:
    async def of_sums(api: Api) -> None:
        for one in (await api.json("sum/keys", confidence=0.9, **EDGES))["keys"]:
            alone = await api.json("sum", key=one["key"], confidence=0.9, **EDGES)
            assert one["value"] == pytest.approx(alone["value"])
            assert one["stderr"] == pytest.approx(alone["stderr"])
            assert one["interval"] == pytest.approx(alone["interval"])

    async def of_means(api: Api) -> None:
        answer = await api.json("mean/keys", confidence=0.9, **EDGES)
        counts = {one["key"]: one["value"] for one in (await api.json("keys", **EDGES))["keys"]}
        assert [one["key"] for one in answer["keys"]] == sorted(counts, key=lambda key: -counts[key])
        for one in answer["keys"]:
            alone = await api.json("mean", key=one["key"], confidence=0.9, **EDGES)
            assert (one["value"], one["interval"]) == (alone["value"], alone["interval"])

    stream, _ = await sold("1")
    async with api_at(stream) as api:
        await of_sums(api)
        await of_means(api)


async def test_fewer_keys_are_listed_and_the_note_says_how_many_are_not() -> None:
    stream, _ = await sold("1")
    async with api_at(stream) as api:
        for path, what in (("sum/keys", "sums"), ("mean/keys", "counts")):
            found = await api.json(path, limit=2)
            assert (len(found["keys"]), found["keys_available"]) == (2, 5)
            assert found["note"].startswith(f"3 keys with smaller {what} are not shown.")
            assert [one["key"] for one in (await api.json(path, key=["DE", "IT"]))["keys"]] == [
                "DE",
                "IT",
            ]


async def test_a_stream_without_a_sum_says_so() -> None:
    async with api_over([1, 2]) as api:
        for path in ("sum/keys", "mean/keys"):
            status, body = await api.error(path)
            assert status == 400
            assert "this stream has no sum" in body["error"]
