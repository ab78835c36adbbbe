"""The ledgers of sources and the epochs of streams as this process last read them.

Both grow with every epoch, and readers ask for them several times a second: only what is new is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from stream_app.core.ledger import entry_from_json
from stream_app.core.records import EpochRecord, LedgerEntry, Trimmed
from stream_app.core.segments.strategies import source_of
from stream_app.state import codec
from stream_app.state.connection import batch, transaction
from stream_app.state.keys import STREAM_NAMES, StreamKeys, ledger_key
from stream_app.state.round_trips import Command, RoundTrips
from stream_app.together import SharedAnswer


async def sources(redis: RoundTrips) -> dict[str, str]:
    """Return the names of the sources of all streams, as ``Store.sources`` says."""
    [members] = await batch(redis, [("SMEMBERS", STREAM_NAMES)])
    names = sorted(member.decode() for member in members)
    texts = await batch(redis, [("GET", StreamKeys(name).strategy) for name in names]) if names else []
    return {name: source_of(text) for name, text in zip(names, texts, strict=True) if text is not None}


class _Seen(NamedTuple):
    """A ledger as last read.

    Args: connections, made before it was read; place, text, of the last entry; newest, the last epoch of
        each stream.
    """

    connections: int
    place: str
    text: bytes
    newest: dict[str, int]
    entries: tuple[LedgerEntry, ...]


class SeenLedgers:
    """Reads ledgers, each for all tasks that ask at the same time.

    Guarantee: an answer has every entry that was reserved before the call. A server that restarts, or another
        one in its place, may have lost entries: after each new connection the whole ledger is read again.
    """

    def __init__(self, redis: RoundTrips) -> None:
        self._redis = redis
        self._asked: dict[str, SharedAnswer[tuple[LedgerEntry, ...]]] = {}  # by source
        self._seen: dict[str, _Seen] = {}

    async def read(self, source: str) -> tuple[LedgerEntry, ...]:
        """Return every entry of a source, oldest first: the same tuple while there are no new ones."""
        if source not in self._asked:
            self._asked[source] = SharedAnswer(partial(self._read, source))
        return await self._asked[source]()

    async def _read(self, source: str) -> tuple[LedgerEntry, ...]:
        seen = self._seen.pop(source, None)
        # The question may itself have made a new connection, so their number is compared after the reply.
        if (
            seen is None
            or not await self._goes_on(source, seen)
            or seen.connections != self._redis.connections
        ):
            await self._read_all(source)
        return self._seen[source].entries if source in self._seen else ()

    async def _goes_on(self, source: str, seen: _Seen) -> bool:
        """Read the new entries; return whether they continue the seen ones."""
        key, known = ledger_key(source), len(seen.entries)
        length, text = await batch(self._redis, [("HLEN", key), ("HGET", key, seen.place)])
        new: list[tuple[int, bytes]] = []
        if length != known:
            # Streams open one epoch after the other.
            names = [seen.place, *(f"{stream}:{last + 1}" for stream, last in seen.newest.items())]
            length, (text, *texts) = await transaction(self._redis, [("HLEN", key), ("HMGET", key, *names)])
            new = codec.numbered(text for text in texts if text is not None)
        if text != seen.text or [number for number, _ in new] != list(range(known, length)):
            return False
        self._take(source, seen, new)
        return True

    async def _read_all(self, source: str) -> None:
        self._seen.pop(source, None)
        connections = self._redis.connections
        [fields] = await batch(self._redis, [("HGETALL", ledger_key(source))])
        nothing = _Seen(connections, "", b"", {}, ())
        if fields:
            self._take(source, nothing, codec.numbered(fields.values()))

    def _take(self, source: str, seen: _Seen, new: Sequence[tuple[int, bytes]]) -> None:
        """Remember a ledger that goes on with new entries."""
        if new:
            number, text = new[-1]
            added = [entry_from_json(text) for _, text in new]
            newest = dict(seen.newest)
            for entry in added:
                newest[entry.stream] = max(entry.epoch, newest.get(entry.stream, entry.epoch))
            place = f"{added[-1].stream}:{added[-1].epoch}"
            seen = _Seen(seen.connections, place, b"%d %b" % (number, text), newest, (*seen.entries, *added))
        self._seen[source] = seen


@dataclass(frozen=True, slots=True)
class Epochs:
    """A stream's entry in the hash of epochs; the same object while nothing changes.

    Args: all, its epochs, in order; trimmed, the rows that retention removed; halted, whether a fault has
        stopped it.
    """

    all: tuple[EpochRecord, ...]
    trimmed: Trimmed
    halted: bool


class SeenEpochs:
    """Reads the epochs of streams: all of them at first and after a change, otherwise a few fields.

    An opening adds the next number or another field. Only the last epoch ends, unless another one opens.
    Retention changes ``trimmed`` or removes fields. Rows that are put back add the fields of their epochs in
    order; each step of one epoch moves its end. Meanwhile only epochs without rows are between it and the
    last one: another worker, with a shorter witness, had opened them.
    """

    def __init__(self, redis: RoundTrips) -> None:
        self._redis = redis
        # By stream: the number of fields, the fields that show a change and their values, and the epochs.
        self._seen: dict[str, tuple[int, list[bytes], list[bytes | None], Epochs]] = {}

    async def read(self, stream: str, commands: Sequence[Command]) -> tuple[Epochs, list[Any]]:
        """Return a stream's epochs and the replies to commands about it, all read in one step.

        Raises: OSError; OperatorError for a stream that only a newer build knows.
        """
        key = StreamKeys(stream).epochs
        if stream in self._seen:
            length, names, values, epochs = self._seen[stream]
            asked: list[Command] = [("HLEN", key), ("HMGET", key, *names), *commands]
            now_length, now_values, *replies = await transaction(self._redis, asked)
            if (now_length, now_values) == (length, values):
                return epochs, replies
        fields, *replies = await transaction(self._redis, [("HGETALL", key), *commands])
        codec.check_stream_format(stream, fields)
        epochs = Epochs(
            codec.decode_epochs(fields),
            codec.decode_trimmed(fields),
            b"halted" in fields,
        )
        self._seen.pop(stream, None)
        if epochs.all:
            last = epochs.all[-1].epoch
            with_rows = (one.epoch for one in reversed(epochs.all[:-1]) if one.final_bin >= one.first_bin)
            first = next(with_rows, epochs.all[0].epoch)
            names = codec.fields_of_epochs([*range(first, last), last, last + 1])
            self._seen[stream] = len(fields), names, [fields.get(name) for name in names], epochs
        return epochs, replies
