"""The epochs of streams as a reader last read them, and the few fields that show whether they have changed.

The hash of epochs grows with every epoch, and readers ask for each stream several times a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stream_app.core.records import EpochRecord, Trimmed
from stream_app.state import codec
from stream_app.state.connection import transaction
from stream_app.state.keys import StreamKeys
from stream_app.state.round_trips import Command, RoundTrips


@dataclass(frozen=True, slots=True)
class Epochs:
    """A stream's entry in the hash of epochs; the same object while nothing changes.

    Args: all, its epochs, in order; trimmed, the rows that retention removed; halted, whether a fault has
        stopped it.
    """

    all: tuple[EpochRecord, ...]
    trimmed: Trimmed | None
    halted: bool


class SeenEpochs:
    """Reads the epochs of streams: all of them at first and after a change, otherwise a few fields.

    An opening adds the next number or another field. Only the last epoch ends, unless another one opens.
    Retention changes ``trimmed`` or removes fields. Rows that are put back add the fields of their epochs in
    order; each step of one epoch moves its end, and it is the epoch before the last one meanwhile.
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
            now, told, *replies = await transaction(self._redis, asked)
            if (now, told) == (length, values):
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
            before = [epoch.epoch for epoch in epochs.all[-2:-1]]
            names = codec.fields_of_epochs([*before, last, last + 1])
            self._seen[stream] = len(fields), names, [fields.get(name) for name in names], epochs
        return epochs, replies
