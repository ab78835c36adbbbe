"""Converts between records and the bytes in Redis. Epochs and ledger entries are readable JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import chain

import msgspec

from stream_app.core.epochs import FoundKeys
from stream_app.core.records import (
    Cut,
    EpochRecord,
    LateEvents,
    Origin,
    PartitionState,
    Reply,
    StreamState,
    Trimmed,
)
from stream_app.core.segments.history import HISTORY_HASH
from stream_app.core.segments.strategies import read_strategies
from stream_app.core.strategy import canonical_json
from stream_app.core.user_keys import UserKeys
from stream_app.ports import OperatorError
from stream_app.stored_format import check_format

_FOUND = msgspec.json.Decoder(FoundKeys)  # an epoch may have a line for each of its bins


def encode_epoch(record: EpochRecord) -> bytes:
    """Return the text of an epoch that is stored when it opens and never changes."""
    return canonical_json(record.plain())


def check_stream_format(stream: str, epochs: Mapping[bytes, bytes]) -> None:
    """Check that this build knows the stream's format, which is a field of its hash of epochs.

    Every reading of a stream is checked, because a newer build may use it while this one runs.
    Raises: OperatorError.
    """
    check_format(f"stream {stream}", epochs.get(b"format"))


def check_strategy(stream: str, state: Mapping[bytes, bytes], strategy: bytes | None) -> None:
    """Check that a stream's stored strategy hash, which its scripts compare, is that of the stored text.

    Otherwise each script would refuse every worker, and a worker would load the stream again and again.
    Args: strategy, the text, or None if it is missing. Raises: OperatorError, one line.
    """
    running = sha256(read_strategies(strategy or b"")[-1]).hexdigest()
    if state[b"strategy_hash"].decode() not in (running, HISTORY_HASH):
        raise OperatorError(
            f"stream {stream}: the store's strategy_hash is not that of the strategy whose text it holds; "
            "somebody changed the store by hand, or restored a part of it: restore it whole"
        )


def fields_of_epochs(numbers: Iterable[int]) -> list[bytes]:
    """Return the names of the fields about these epochs, and about the whole stream, in the hash of epochs.

    The hash grows with every epoch, so frequent callers ask for a few epochs only.
    """
    names = (b"%d", b"%d:last_bin", b"%d:end_reason", b"%d:found")
    own = [[name % number for name in names] for number in numbers]
    return [b"format", b"trimmed", b"halted", *chain.from_iterable(own)]


def present(names: Sequence[bytes], values: Sequence[bytes | None]) -> dict[bytes, bytes]:
    """Return the fields of a hash that exist. Args: values, of Redis, for these names."""
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def decode_epochs(fields: Mapping[bytes, bytes]) -> tuple[EpochRecord, ...]:
    return tuple(decode_epoch(fields, number) for number in sorted(int(n) for n in fields if n.isdigit()))


def decode_epoch(fields: Mapping[bytes, bytes], number: int) -> EpochRecord:
    """Return one epoch from the hash of epochs, with its end if it has ended."""
    found = decode_found(fields.get(b"%d:found" % number, b""))
    record = EpochRecord(**json.loads(fields[b"%d" % number]), found=found)
    last_bin = fields.get(b"%d:last_bin" % number)
    if last_bin is None:
        return record
    return replace(record, last_bin=int(last_bin), end_reason=fields[b"%d:end_reason" % number].decode())


def encode_found(found: Sequence[FoundKeys]) -> bytes:
    """Return the keys that an epoch has found: a line for each bin that named some."""
    return b"".join(canonical_json(one if one.thinned else one[:2]) + b"\n" for one in found)


def decode_found(lines: bytes) -> tuple[FoundKeys, ...]:
    """Return the keys that ``encode_found`` wrote, line by line."""
    return tuple(_FOUND.decode_lines(lines))


def decode_trimmed(fields: Mapping[bytes, bytes]) -> Trimmed:
    """Return which rows retention removed, from the hash of epochs."""
    return Trimmed(**json.loads(fields.get(b"trimmed", b"{}")))


def numbered(values: Iterable[bytes]) -> list[tuple[int, bytes]]:
    """Return the numbers and texts of a ledger's entries, oldest first; each value is 'number entry'."""
    return sorted((int(number), text) for number, text in (value.split(b" ", 1) for value in values))


def decode_state(
    state: Mapping[bytes, bytes],
    strategy: bytes,
    epochs: Mapping[bytes, bytes],
    partitions: Mapping[str, PartitionState],
) -> StreamState:
    """Return a stream's state from its hash, with the running epoch from the hash of epochs. SECRET."""
    *earlier, current = read_strategies(strategy)
    return StreamState(
        strategy=current,
        earlier=tuple(earlier),
        epoch=decode_epoch(epochs, int(state[b"epoch"])),
        seq=int(state[b"seq"]),
        head=state[b"head"].decode(),
        released_bin=int(state[b"released_bin"]),
        sealed_bin=int(state[b"sealed_bin"]),
        counter=state[b"counter"],
        partitions=partitions,
        noise=state.get(b"noise", b"").decode(),
        stopped=b"stopped" in state,
        until_bin=int(state[b"until_bin"]) if b"until_bin" in state else None,
        late_from=_decode_late_from(state),
        announced=state.get(b"change"),
        user_keys=UserKeys.of_text(state.get(b"user_keys", b"").decode()),
        trimmed=decode_trimmed(epochs),
        halted=b"halted" in epochs,
    )


def decode_partition(
    name: bytes,
    state: Mapping[bytes, bytes],
    positions: Mapping[bytes, bytes],
    base_bins: Mapping[bytes, bytes],
    cuts: Sequence[bytes],
) -> PartitionState:
    """Return a stream's state in one partition. SECRET."""
    taken = state.get(b"from:" + name)
    late_before = None if taken is None else LateEvents(*map(int, taken.split()))
    origins = tuple(Origin(*one) for one in json.loads(state.get(b"origins:" + name, b"[]")))
    place = int(positions[name]), int(base_bins[name])
    taken_cuts = tuple(Cut(*map(int, cut.split())) for cut in cuts)
    return PartitionState(*place, taken_cuts, late_before, origins)


def _decode_late_from(state: Mapping[bytes, bytes]) -> dict[str, int] | None:
    if b"hands_over" not in state:
        return None
    sign = b"over:"
    return {key[len(sign) :].decode(): int(at) for key, at in state.items() if key.startswith(sign)}


def decode_rows(entries: Sequence[tuple[bytes, dict[bytes, bytes]]]) -> list[tuple[int, bytes]]:
    """Return (seq, row) of each entry of the chain; an entry's id is ``seq-0``."""
    return [(int(id.split(b"-")[0]), fields[b"row"]) for id, fields in entries]


def decode_reply(reply: bytes | None) -> Reply:
    return Reply((reply or b"").decode())


def decode_replies(replies: bytes | None) -> list[Reply]:
    """Return the replies of a script that answers for several partitions."""
    return [Reply(word) for word in (replies or b"").decode().split()]


def decode_sealed_bin(stream: str, value: bytes | None) -> int:
    """Return the last sealed bin. Raises: LookupError if there is none, so the stream was never opened."""
    if value is None:
        raise LookupError(f"stream {stream!r} was never opened; open its first epoch")
    return int(value)
