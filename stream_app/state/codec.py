"""The text of epochs and ledger entries in Redis: JSON that a person can read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace

from stream_app.core.ledger import entry_from_json
from stream_app.core.records import EpochRecord, LedgerEntry
from stream_app.core.strategy import canonical_json


def encode_epoch(record: EpochRecord) -> bytes:
    """Return the text of an epoch that is stored when it opens and never changes."""
    return canonical_json(asdict(record))


def decode_epochs(fields: Mapping[bytes, bytes]) -> tuple[EpochRecord, ...]:
    """Return the epochs in the hash, ends included, in order."""
    return tuple(decode_epoch(fields, number) for number in sorted(int(n) for n in fields if n.isdigit()))


def decode_epoch(fields: Mapping[bytes, bytes], number: int) -> EpochRecord:
    """Return one epoch with its end from the hash of epochs."""
    record = EpochRecord(**json.loads(fields[b"%d" % number]))
    last_bin = fields.get(b"%d:last_bin" % number)
    if last_bin is None:
        return record
    return replace(record, last_bin=int(last_bin), end_reason=fields[b"%d:end_reason" % number].decode())


def decode_ledger(fields: Mapping[bytes, bytes]) -> tuple[LedgerEntry, ...]:
    """Return the entries of a ledger, oldest first; each value of the hash is 'number entry'."""
    numbered = (value.split(b" ", 1) for value in fields.values())
    return tuple(entry_from_json(text) for _, text in sorted((int(n), text) for n, text in numbered))
