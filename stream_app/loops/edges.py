"""Where a stream's next generation may begin: at an end of an epoch that is an edge of the new bins, too."""

from __future__ import annotations

from stream_app.core.declaration import Declaration
from stream_app.core.instants import format_instant
from stream_app.core.records import StreamState
from stream_app.core.strategy import Strategy

_LATEST_US = 5_000_000  # a beginning that is nearer could pass before it is stored


def soonest_end(running: Strategy, state: StreamState | None, now_us: int) -> int:
    """Return where an epoch ends that is not too near. The clock alone decides it."""
    time, horizon = running.declared.time, running.time.horizon
    if state is None:
        begun = running.declared.first_bin(now_us)
        ends = begun + running.declared.epoch_bins(begun, None, horizon)
    else:
        ends = state.epoch.first_bin + state.epoch.bins
    [soonest] = time.binning.bin_of([now_us + _LATEST_US]).tolist()
    ends += horizon * max(0, -((ends - soonest - 1) // horizon))
    return time.binning.start_us(ends)


def common_edge(running: Strategy, wanted: Declaration, soonest_us: int, epochs: int) -> int | None:
    """Return the first end of an epoch at which a bin of the wanted settings begins; None: they never meet.

    Args: soonest_us, the first end that counts; epochs, how many are looked at.
    """
    old, new = running.declared.time.binning, wanted.time.binning
    [ends] = old.bin_of([soonest_us]).tolist()
    for number in range(epochs):
        edge_us = old.start_us(ends + running.time.horizon * number)
        [begins] = new.bin_of([edge_us]).tolist()
        if new.start_us(begins) == edge_us:
            return edge_us
    return None


def never_meet(stream: str, soonest_us: int) -> str:
    """Return why a generation has no instant to begin."""
    return (
        f"streams.{stream}.time.bin: no bin begins where an epoch of the settings so far ends, for "
        f"example at {format_instant(soonest_us)}; choose bins that begin there, or first a time.epoch that "
        "ends where one of these bins begins"
    )
