"""Dead letters of records that were set aside and then refused, because they are dated too far ahead.

The store keeps the positions of these records until their letters are written. So no cut waits for letters,
and a crash loses none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from itertools import islice

from stream_app.core.incoming import Reason, Refusal
from stream_app.loops.loaded_streams import LoadedStreams
from stream_app.outage import Outage
from stream_app.ports import DeadLetters, Store
from stream_app.together import each_to_its_end

MOST_LETTERS = 1_000  # of a stream and partition, in one round trip and in one write
MOST_PLACES = 64  # streams and partitions that are asked about in one round trip

log = logging.getLogger(__name__)


class RefusedAhead:
    """Writes a dead letter for each known record that a cut refused."""

    def __init__(self, store: Store, dead_letters: DeadLetters, views: LoadedStreams) -> None:
        self._store = store
        self._dead_letters = dead_letters
        self._views = views
        self._expected: dict[tuple[str, str], None] = {}  # streams and partitions, the oldest first
        self._more = asyncio.Event()

    def expect(self, place: tuple[str, str]) -> None:
        """Request letters for a stream and partition in which a cut may have refused records."""
        self._expected[place] = None
        self._more.set()

    async def run(self) -> None:
        """Write letters as they are expected, until cancelled; cancelling is safe at any await."""
        outage = Outage(log, "dead letters")
        while True:
            await self._more.wait()
            await outage.outlast(self.write, self._views.doubt)
            outage.over()

    async def write(self) -> None:
        """Write the letters that are expected now. Raises: OSError; a further call repeats what it left."""
        while self._expected:
            places = list(islice(self._expected, MOST_PLACES))
            for place in places:
                del self._expected[place]  # a cut that is stored meanwhile expects letters anew
            try:
                await self._write(places)
            except BaseException:
                for place in places:
                    self.expect(place)
                raise
        self._more.clear()

    async def _write(self, places: Sequence[tuple[str, str]]) -> None:
        """Write letters of these streams and partitions: one write for all streams that refused alike."""
        store = self._store
        found = await each_to_its_end(*(store.refused_ahead(*place, MOST_LETTERS) for place in places))
        alike = dict[tuple[str, tuple[int, ...]], list[str]]()
        for (stream, partition), refused in zip(places, found, strict=True):
            if refused:
                alike.setdefault((partition, tuple(refused)), []).append(stream)
        for (partition, positions), streams in alike.items():
            letters = [Refusal(partition, position, Reason.FUTURE, b"") for position in positions]
            try:
                await self._dead_letters.write(letters, tuple(streams))
            except RuntimeError as failure:  # no thread could start: the store keeps the positions
                raise OSError(f"{type(failure).__name__} while dead letters were written") from None
            await each_to_its_end(*(store.forget_refused(stream, partition, positions) for stream in streams))
            if len(positions) == MOST_LETTERS:
                for stream in streams:  # there may be more
                    self.expect((stream, partition))
