"""Whether a sample of a log shows that an epoch may have more events than its sum can hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dphist.product.columns import MOST_WEIGHT
from stream_app.config import StreamSettings
from stream_app.shell.samples.caps import matching
from stream_app.wiring.checks import Finding

MUCH = 0.1


def filling_findings(stream: StreamSettings, columns: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a warning if an epoch at the rate of a sample fills a tenth of its sum.

    The warning says nothing else about the sample. A busier time than the sample's fills more.
    Args: columns of the sample, by field.
    """
    declared = stream.declared
    times_us = np.asarray(columns[declared.time.field])[matching(declared, columns)]
    if declared.amounts is None or len(times_us) < 2:
        return
    most = MOST_WEIGHT // declared.cells.weight
    span_us = max(int(np.ptp(times_us)), 1)
    if len(times_us) / span_us * declared.time.epoch_bins * declared.time.bin_us <= MUCH * most:
        return
    said = (
        f"at the rate of a sample of the events, an epoch fills more than {MUCH:.0%} of the {most:,} events "
        "that its sum can hold, and the stream stops when it is full; take a coarser sum.unit, a narrower "
        "range or a shorter time.epoch. Choosing them by the events has a cost: they are public and tell "
        "something about the events, and epsilon does not cover that"
    )
    yield Finding(f"streams.{stream.name}.sum.unit", "warn", said, exact=True)
