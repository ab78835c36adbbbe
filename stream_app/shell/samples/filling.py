"""Whether a sample of a log shows that an epoch may have more events than its numbers can hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dphist.product.columns import MOST_WEIGHT
from dphist.toeplitz.counter import MOST_EVENTS
from stream_app.config import StreamSettings
from stream_app.shell.samples.caps import matching
from stream_app.wiring.checks import Finding

MUCH = 0.1


def filling_findings(stream: StreamSettings, columns: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a warning if an epoch at the rate of a sample fills a tenth of what it holds.

    The warning says nothing else about the sample. A busier time than the sample's fills more.
    Args: columns of the sample, by field.
    """
    declared = stream.declared
    times_us = np.asarray(columns[declared.time.field])[matching(declared, columns)]
    if len(times_us) < 2 or (declared.amounts is None and declared.privacy.delta is None):
        return  # an epoch of other counts holds 2^44
    most, setting, holder, coarser = MOST_EVENTS, "time.epoch", "counts", ""
    if declared.amounts is not None:
        most, setting, holder = MOST_WEIGHT // declared.cells.weight, "sum.unit", "sum"
        coarser = "a coarser sum.unit, a narrower range or "
    span_us = max(int(np.ptp(times_us)), 1)
    if len(times_us) / span_us * declared.time.epoch_bins * declared.time.bin_us <= MUCH * most:
        return
    said = (
        f"at the rate of a sample of the events, an epoch fills more than {MUCH:.0%} of the {most:,} events "
        f"that its {holder} can hold, and the stream stops when it is full; take {coarser}a shorter "
        "time.epoch. Choosing them by the events has a cost: they are public and tell "
        "something about the events, and epsilon does not cover that"
    )
    yield Finding(f"streams.{stream.name}.{setting}", "warn", said, exact=True)
