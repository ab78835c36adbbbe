"""What benchmarks of counting share: how long it takes to decode a file and to count it in cells."""

from __future__ import annotations

import time
from pathlib import Path

from stream_app.core.counting.cells import Cells
from stream_app.sources.decode import TimeField
from stream_app.sources.lines import open_lines

BIN_US = 3_600_000_000


def seconds(file: Path, cells: Cells) -> float:
    """Return the processor seconds to decode a file of NDJSON and to count its records in cells.

    The rest of the work of a worker (cuts, the store) does not depend on the cells' fields, so a whole worker
    differs by less.
    """
    lines = open_lines(file, "ndjson", TimeField("at", "us"), list(cells.fields))
    position, size = 0, file.stat().st_size
    began = time.process_time()
    while (batch := lines.read(position, size)) is not None:
        places, _ = cells.assign(batch.columns, slice(0, len(batch.positions)))
        cells.added(batch.columns["at"] // BIN_US, places)
        position = batch.end
    spent = time.process_time() - began
    lines.close()
    return spent
