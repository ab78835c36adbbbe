"""The file that holds released data outside the store: lines of JSON (docs/exports.md).

It holds public facts only: the data that readers of the store may see, and the ledger.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from stream_app.core.ledger import entry_to_json
from stream_app.core.records import EpochRecord, History, LedgerEntry, WitnessRow
from stream_app.core.strategy import Strategy, canonical_json

VERSION = 2  # of a file with a stream whose settings changed; other files have version 1, as before
_HEADER = "private_counts_export"


@dataclass(frozen=True, slots=True)
class ExportedStream:
    """One stream: its strategy, its epochs, all its visible rows with their values, and its history."""

    strategy: Strategy
    epochs: tuple[EpochRecord, ...]
    rows: tuple[WitnessRow, ...]
    history: History | None = None


@dataclass(frozen=True, slots=True)
class Export:
    """Streams, and every measurement of their sources."""

    streams: tuple[ExportedStream, ...]
    ledger: tuple[LedgerEntry, ...]


def lines_of(export: Export) -> Iterator[bytes]:
    """Yield the lines of an export, without line ends."""
    digest, number = hashlib.sha256(), 0
    for line in _lines(export):
        digest.update(line + b"\n")
        number += 1
        yield line
    yield canonical_json({"end": {"lines": number, "sha256": digest.hexdigest()}})


def _lines(export: Export) -> Iterator[bytes]:
    names = [one.strategy.stream for one in export.streams]
    several = any(epoch.changed_from for stream in export.streams for epoch in stream.epochs)
    yield canonical_json({_HEADER: VERSION if several else 1, "streams": names})
    for stream in export.streams:
        facts = {
            "stream": stream.strategy.stream,
            "strategy": stream.strategy.to_json().decode(),
            "epochs": [epoch.plain() for epoch in stream.epochs],
            "rows": len(stream.rows),
        }
        history = {"history": asdict(stream.history)} if stream.history else {}
        yield canonical_json(facts | history)
        for row in stream.rows:
            values = {"values": b64encode(row.values).decode()} if row.values else {}
            yield canonical_json({"row": row.row.decode()} | values)
    for entry in export.ledger:
        yield canonical_json({"ledger": json.loads(entry_to_json(entry))})
