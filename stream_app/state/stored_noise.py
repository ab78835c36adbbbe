"""The noise that a store keeps for streams' epochs, while the key that encrypts it changes."""

from __future__ import annotations

from collections.abc import Sequence

from stream_app.core.records import Reply
from stream_app.state import codec
from stream_app.state.connection import batch, script
from stream_app.state.keys import NOISE_KEY, STREAM_NAMES, StreamKeys
from stream_app.state.redis_store import RedisStore
from stream_app.state.round_trips import Argument


class StoredPages:
    """The encrypted pages of all streams of a store. Args: store, of a user with the worker's rights.

    Raises (every method): OSError if Redis does not answer or refuses; a call may be repeated.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._redis = store.connection

    async def streams(self) -> list[str]:
        """Return the names of all streams of the store."""
        [names] = await batch(self._redis, [("SMEMBERS", STREAM_NAMES)])
        return sorted(name.decode() for name in names)

    async def note_key(self, stream: str, mark: bytes) -> None:
        """Note the key that encrypts a stream's noise from now on: pages under another key are refused."""
        await batch(self._redis, [("HSET", StreamKeys(stream).noise, NOISE_KEY, mark)])

    async def pages(self, stream: str, nonce: str) -> Sequence[int]:
        """Return the numbers of the stored pages of a stream's noise."""
        [fields] = await batch(self._redis, [("HKEYS", StreamKeys(stream).noise)])
        places = [field.decode().rpartition(":") for field in fields]
        return sorted(int(page) for own, _, page in places if own and own == nonce)

    async def replace(self, stream: str, nonce: str, page: int, before: bytes, after: bytes) -> Reply:
        """Replace a page by the same page under another key, unless it is not as it was read."""
        given: list[Argument] = [f"{nonce}:{page}", before, after]
        return codec.decode_reply(
            await script("replace_noise")(self._redis, [StreamKeys(stream).noise], given)
        )

    async def forget(self) -> None:
        """Make deleted and replaced pages leave the files of the store."""
        await self._store.forget()
