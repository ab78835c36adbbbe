"""The file that carries released data from one store to another: lines of JSON (docs/exports.md).

It holds public facts only: the data that readers of the store may see, and the ledger.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stream_app.core.ledger import entry_from_json, entry_to_json
from stream_app.core.records import EpochRecord, History, LedgerEntry, WitnessRow
from stream_app.core.releases.release import RowLink, row_hash
from stream_app.core.releases.restored import WitnessedStream
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

    @property
    def last(self) -> RowLink:
        return RowLink.of(self.rows[-1].row)


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


def read_export(lines: Iterable[bytes]) -> Export:
    """Return the export that ``lines_of`` wrote.

    Raises: ValueError, one line, for a file that is incomplete or changed, or of a newer version.
    """
    found = list(_checked(lines))
    if not found or _HEADER not in found[0]:
        raise ValueError("it is no export of this service; write one with stream-app export")
    if found[0][_HEADER] not in range(1, VERSION + 1):
        raise ValueError(
            f"it has version {found[0][_HEADER]}, and this build knows versions up to {VERSION}; use the "
            "build that wrote it, or a newer one"
        )
    if "end" not in found[-1]:
        raise ValueError("it is cut off: its last line is missing; copy it again")
    streams: list[ExportedStream] = []
    ledger: list[LedgerEntry] = []
    rest = iter(found[1:-1])
    for fields in rest:
        if "ledger" in fields:
            ledger.append(entry_from_json(json.dumps(fields["ledger"])))
        else:
            streams.append(_stream(fields, rest))
    return Export(tuple(streams), tuple(ledger))


def _checked(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield each line's fields; check the digest of all lines before the last one."""
    digest = hashlib.sha256()
    for number, line in enumerate(lines):
        try:
            fields = json.loads(line)
        except ValueError:
            raise ValueError(f"line {number + 1} is no JSON: the file was changed or cut off") from None
        if not isinstance(fields, dict):
            raise ValueError("it is no export of this service; write one with stream-app export")
        if "end" in fields and fields["end"] != {"lines": number, "sha256": digest.hexdigest()}:
            raise ValueError("its lines are not those that were written: the file was changed; copy it again")
        digest.update(line.rstrip(b"\n") + b"\n")
        yield fields


def _stream(fields: dict[str, Any], rest: Iterator[dict[str, Any]]) -> ExportedStream:
    strategy = Strategy.from_json(fields["strategy"])
    rows = [next(rest) for _ in range(fields["rows"])]
    witnessed = [
        WitnessRow(json.loads(row["row"])["seq"], row["row"].encode(), b64decode(row.get("values", "")))
        for row in rows
    ]
    history = History(**fields["history"]) if "history" in fields else None
    epochs = tuple(EpochRecord(**epoch) for epoch in fields["epochs"])
    _check_chain(strategy, witnessed)
    return ExportedStream(strategy, epochs, tuple(witnessed), history)


def _check_chain(strategy: Strategy, rows: Sequence[WitnessRow]) -> None:
    try:
        witnessed = WitnessedStream.of(rows, [strategy])
        known = witnessed.strategies if witnessed.last in (None, strategy) else {}
    except ValueError:
        known = {}
    before: bytes | None = None
    seq = 0
    for row in rows:
        link = RowLink.of(row.row)
        follows = before is None or link.prev == row_hash(before)
        if not follows or link.seq <= seq or json.loads(row.row)["strategy"] not in known:
            raise ValueError(
                f"stream {strategy.stream}: row {link.seq} does not follow the row before it; export it again"
            )
        before, seq = row.row, link.seq
