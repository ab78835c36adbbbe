"""Which key hashes the users of each stream's cap windows, as the store notes it while the key is rotated."""

from __future__ import annotations

from collections.abc import Mapping

from stream_app.core.records import Reply
from stream_app.core.segments.history import HISTORY_HASH
from stream_app.core.user_keys import UserKeys
from stream_app.state import codec
from stream_app.state.connection import batch, script, transaction
from stream_app.state.keys import StreamKeys
from stream_app.state.redis_store import RedisStore
from stream_app.stored_format import USER_KEYS


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
