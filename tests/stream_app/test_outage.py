"""A loop outlasts what is unreachable, and ends when it is asked to."""

from __future__ import annotations

import asyncio
import logging

import pytest

from stream_app.outage import Outage


async def test_a_loop_ends_although_a_client_took_its_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that waits for its own task may take the caller's cancellation for that task's."""
    monkeypatch.setattr("stream_app.outage.RETRY_S", 0.0)
    attempts = 0

    async def work() -> None:
        nonlocal attempts
        attempts += 1
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            raise ConnectionError("topic alerts: the broker does not answer") from None

    loop = asyncio.ensure_future(Outage(logging.getLogger(), "alerts").outlast(work))
    await asyncio.sleep(0)
    loop.cancel()
    done, _ = await asyncio.wait([loop], timeout=5)
    assert done
    assert loop.cancelled()
    assert attempts == 1
