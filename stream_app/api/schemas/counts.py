"""The answers about counts: of a range, as a series, and node by node."""

from __future__ import annotations

from pydantic import Field

from stream_app.api.schemas.questions import View
from stream_app.api.schemas.released import EstimatedCount, OfPoints, OfRange, Released


class CountAnswer(OfRange, EstimatedCount):
    """Events, or users, in the bins from start to end."""


class SeriesAnswer(OfPoints):
    """Counts as a series."""

    view: View
    value: list[float]
    stderr: list[float]
    nodes: list[int] = Field(
        description="number of noisy counts that each point is computed from; 0: all so far"
    )


class NodesAnswer(Released):
    """Released noisy values of consecutive nodes, exactly as stored."""

    epoch: int
    level: int
    first: int
    node_bins: int = Field(description="bins under one node")
    scale: float | None = Field(
        description="scale of the discrete Laplace noise of each value; null where it differs: see axes"
    )
    values: list[list[int]] = Field(description="one list of cells per node")
    nodes_released: int
