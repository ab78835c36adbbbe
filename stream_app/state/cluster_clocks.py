"""Compares the clocks of a cluster's nodes: one closes the bins, and each node checks that cuts are taken."""

from __future__ import annotations

import asyncio

from stream_app.ports import ClockDoubt
from stream_app.state.connection import batch, unknown_outcome
from stream_app.state.round_trips import RoundTrips

MOST_APART_US = 1_000_000


async def check_clocks(redis: RoundTrips, now_us: int) -> None:
    """Compare the clocks of all primaries with the one that closes bins; one server has one clock.

    Args: now_us, the time that closes bins.
    Raises: ClockDoubt if they differ too much; OSError if a node does not answer.
    """
    with unknown_outcome():
        servers = await redis.primaries()
    if len(servers) == 1:
        return
    told = await asyncio.gather(*(batch(one, [("TIME",)]) for one in servers))
    for server, [(seconds, microseconds)] in zip(servers, told, strict=True):
        apart_us = int(seconds) * 1_000_000 + int(microseconds) - now_us
        if abs(apart_us) > MOST_APART_US:
            raise ClockDoubt(
                f"clocks: the clock of {server.place} is {abs(apart_us) / 1e6:.1f} s "
                f"{'ahead of' if apart_us > 0 else 'behind'} the one that closes bins in this cluster; "
                "nothing is closed until they agree, set the wrong one"
            )
