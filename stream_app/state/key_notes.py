"""What a store notes of the keys that encrypt its noise and hash its users, while they are rotated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stream_app.core.records import Reply
from stream_app.core.segments.history import HISTORY_HASH
from stream_app.core.user_keys import UserKeys
from stream_app.state import codec
from stream_app.state.connection import batch, script, transaction
from stream_app.state.keys import NOISE_KEY, STREAM_NAMES, StreamKeys
from stream_app.state.redis_store import RedisStore
from stream_app.state.round_trips import Argument
from stream_app.stored_format import USER_KEYS


class StoredPages:
    """The encrypted pages of all streams of a store. Args: store, of a user with the worker's rights.

    Raises (every method): OSError if Redis does not answer or refuses; a call may be repeated.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._redis = store.connection

    async def streams(self) -> list[str]:
        [names] = await batch(self._redis, [("SMEMBERS", STREAM_NAMES)])
        return sorted(name.decode() for name in names)

    async def note_key(self, stream: str, mark: bytes) -> None:
        """Note the key that encrypts a stream's noise from now on: pages under another key are refused."""
        await batch(self._redis, [("HSET", StreamKeys(stream).noise, NOISE_KEY, mark)])

    async def pages(self, stream: str, nonce: str) -> Sequence[int]:
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


class StoredUserKeys:
    """The notes of all streams of a store. Args: store, of a user with the worker's rights.

    Raises (every method): OSError if Redis does not answer or refuses; a call may be repeated.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._redis = store.connection

    async def counted(self, stream: str) -> Mapping[int, bytes] | None:
        """Return the marks of the open cap windows with users; None if nobody counts the stream. SECRET."""
        keys = StreamKeys(stream)
        counts, windows = await transaction(
            self._redis, [("HGET", keys.state, "strategy_hash"), ("ZRANGE", keys.open_windows, 0, -1)]
        )
        if counts is None or counts.decode() == HISTORY_HASH:
            return None
        marks = await batch(self._redis, [("HGET", keys.users(int(one)), "key mark") for one in windows])
        return {int(window): mark or b"" for window, mark in zip(windows, marks, strict=True)}

    async def note(
        self, stream: str, counted: Mapping[int, bytes], before: UserKeys, noted: UserKeys
    ) -> Reply:
        """Note the keys from now on. Args: counted, as read; before, the note until now.

        Returns: CONFLICT if a cap window has begun to count users meanwhile, or other keys are noted.
        """
        await self._store.need_format(USER_KEYS)
        keys = StreamKeys(stream)
        windows = " ".join(map(str, sorted(counted)))
        reply = await script("note_user_keys")(
            self._redis,
            [keys.state, keys.epochs, keys.open_windows],
            [before.text(), windows, noted.text(), USER_KEYS],
        )
        await self._store.confirm(stream)
        return codec.decode_reply(reply)
