"""What benchmarks of counting share: how long it takes to decode a file and to count it in cells.

Two sets of cells read one file in turns. Seconds are processor time.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stream_app.core.counting.cells import Cells
from stream_app.sources.decode import TimeField
from stream_app.sources.lines import open_lines

RESULTS = Path(__file__).parent / "results"
RECORDS, ROUNDS = 300_000, 9
BIN_US = 3_600_000_000


def compare(name: str, records: Iterable[Mapping[str, Any]], cells: Mapping[str, Cells]) -> None:
    """Measure two sets of cells; print and keep their rates, and the ratio of the second to the first.

    Args: name, of the file of results; records, ``RECORDS`` of them; cells, by what they are called.
    """
    with TemporaryDirectory() as directory:
        file = Path(directory) / "events.ndjson"
        with file.open("w") as lines:
            lines.writelines(json.dumps(record) + "\n" for record in records)
        spent = [[seconds(file, each) for each in cells.values()] for _ in range(ROUNDS)]
    medians = map(statistics.median, zip(*spent, strict=True))
    found = {
        **{
            f"{called}_events_per_s": round(RECORDS / each)
            for called, each in zip(cells, medians, strict=True)
        },
        "ratio": round(statistics.median(first / second for first, second in spent), 3),
        "machine": platform.platform(),
    }
    print(json.dumps(found, indent=2))
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")


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
