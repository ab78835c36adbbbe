"""The answers about counts: of a range, as a series, and node by node."""

from __future__ import annotations

from pydantic import Field

from stream_app.api.schemas.questions import View
from stream_app.api.schemas.released import EstimatedCount, OfPoints, OfRange, Released


class CountAnswer(OfRange, EstimatedCount):
    """Number of events, or users, from start to end: the best linear unbiased estimate from all nodes."""


class SeriesAnswer(OfPoints):
    """Running counts, counts per bin or over sliding windows, each point with its error.

    As JSON, CSV or an Arrow stream: by the parameter format, or else by the header Accept.
    """

    view: View
    value: list[float]
    stderr: list[float]
    nodes: list[int] = Field(
        description="number of noisy counts that each point is computed from; 0: all so far"
    )


class NodesAnswer(Released):
    """Released noisy values of consecutive nodes: anyone can recompute every answer from them."""

    epoch: int
    level: int
    first: int
    node_bins: int = Field(description="bins under one node")
    scale: float | None = Field(
        description="scale of the discrete Laplace noise of each value; null where it differs: see axes"
    )
    values: list[list[int]] = Field(description="one list of cells per node")
    nodes_released: int
