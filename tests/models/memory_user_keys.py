"""Notes about the keys of users' hashes, in memory; ``StoredUserKeys`` keeps them in Redis."""

from __future__ import annotations

from collections.abc import Mapping

from stream_app.core.records import Reply
from stream_app.core.user_keys import UserKeys
from tests.models.memory import MemoryStore


class MemoryUserKeys:
    """The notes of all streams of a store in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self.streams = store.streams

    async def counted(self, stream: str) -> Mapping[int, bytes] | None:
        """Return the mark of each open cap window that has users; None if nobody counts the stream."""
        state = self.streams.get(stream)
        return None if state is None or state.history is not None else dict(state.user_keys)

    async def note(
        self, stream: str, counted: Mapping[int, bytes], before: UserKeys, noted: UserKeys
    ) -> Reply:
        """Note the keys from now on, unless a window has begun to count users meanwhile."""
        state = self.streams.get(stream)
        if state is None:
            return Reply.CONFLICT
        if state.noted_keys == noted:
            return Reply.ALREADY
        if state.noted_keys != before or state.user_keys.keys() != counted.keys():
            return Reply.CONFLICT
        state.noted_keys = noted
        return Reply.DONE
