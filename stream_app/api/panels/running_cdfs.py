"""Running distributions: cumulative counts of a value from one start to many ends.

The counts never fall, neither from bucket to bucket nor from end to end.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from dphist.consistency.trellis import rising_cdfs
from dphist.product.answers import Histogram
from stream_app.api.distribution import buckets_of
from stream_app.api.panels.answers import slices_of
from stream_app.api.panels.schemas import SlicesQuery
from stream_app.api.ranges import edge, instants_s, released
from stream_app.api.schemas import Released
from stream_app.core.kinds.tables import Span
from stream_app.core.query import StreamView

_NOTE = (
    "Whole counts that fall neither over the value nor over time; they are biased, and stderr is that of the "
    "unbiased ones. /cdf has those of one end, with a band."
)


class CdfsAnswer(Released):
    """Cumulative counts of a value from one start to each end: ``counts[end][bucket]``."""

    key: str | None
    start: str
    end: list[float] = Field(description="seconds since 1970")
    upto: list[float] = Field(description="end of each bucket; what is beyond the range counts in the last")
    counts: list[list[int]] = Field(description="the nearest whole ones, made to rise over time too; biased")
    stderr: list[list[float]] = Field(description="of the unbiased counts")
    note: str


def running_cdfs(view: StreamView, query: SlicesQuery) -> CdfsAnswer:
    """Return the distributions from the start of a range to the end of each of its slices.

    Raises: QueryError.
    Cost: O(columns) for each end.
    """
    place, buckets = view.place_of(query.key), buckets_of(view)
    slices = slices_of(view, query)
    start, ends = slices[0].start, [one.stop for one in slices]
    found = [Histogram.of(view.cells(Span(start, end)), place) for end in ends]
    return CdfsAnswer(
        **released(view),
        key=query.key,
        start=edge(view, start),
        end=instants_s(view, ends),
        upto=buckets.edges[1:].tolist(),
        counts=rising_cdfs(np.array([one.estimated() for one in found])).tolist(),
        stderr=[one.cumulative_stderr.tolist() for one in found],
        note=_NOTE,
    )
