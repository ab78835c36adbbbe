"""The part of ``rotate-key`` about users' hashes: the store notes which cap windows have which key.

    begin:   a new key after the old one in the file       (workers go on with the old one)
    finish:  the store notes for each stream the last window of the old key     (script; see below)
             the old key leaves the file once the streams have released these windows

The last window of the old key is the last one that has users, or in which a record may count that has arrived
by now. So no user has hashes under both keys in a window. A worker whose file lacks the new key ends with one
line at the first record of a later window.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from stream_app.core.instants import format_instant
from stream_app.core.records import Reply, StreamState
from stream_app.core.segments.history import read_strategy
from stream_app.core.strategy import Strategy
from stream_app.core.user_keys import UserKeys, mark_of_users
from stream_app.ports import OperatorError, Store
from stream_app.vault import key_ring
from stream_app.vault.key_ring import KeyRing


@dataclass(frozen=True, slots=True)
class Held:
    """A stream that still needs keys of users' hashes. Args: marks, of these keys; until, a time, as text."""

    stream: str
    marks: tuple[bytes, ...]
    until: str


class Notes(Protocol):
    """The notes of a store about the keys of users' hashes (``StoredUserKeys``)."""

    async def counted(self, stream: str) -> Mapping[int, bytes] | None:
        """Return the mark of the key of each open cap window; None for a stream that counts no users."""

    async def note(
        self, stream: str, counted: Mapping[int, bytes], before: UserKeys, noted: UserKeys
    ) -> Reply:
        """Note a stream's keys, unless they or its windows have changed since they were read."""


@dataclass(frozen=True, slots=True)
class UsersOfStreams:
    """The users of the streams of a store.

    Args: noted, the notes of the store; ring, keys of the file; configured, the names of streams that must
        use them; now_us, which returns the store's time if it is right: the last window follows from it.
    """

    store: Store
    noted: Notes
    ring: KeyRing
    configured: Sequence[str]
    now_us: Callable[[], Awaitable[int]]

    async def check(self) -> None:
        """Raises: OperatorError if a configured stream needs keys of users' hashes that the file lacks."""
        for name in self.configured:
            if (found := await self._found(name)) is None:
                continue
            state, keys, _ = found
            lacks = [mark for mark in keys.since(state.released_bin).marks if mark not in self._marks]
            if lacks:
                raise OperatorError(
                    f"stream {name}: its users are hashed with a key that secrets.key_file does not hold; "
                    "copy the file of a worker that runs, or if this key is lost, run stream-app rotate-key "
                    "lost; nothing was changed"
                )

    async def finish(
        self, file: Path, streams: Callable[[], Awaitable[Sequence[str]]]
    ) -> tuple[int, list[Held]]:
        """Note the newest key for windows that have not begun; take keys that nothing needs out of a file.

        The caller has checked that nothing needs another key of noise than the first.
        Args: streams, returns the names of all streams of the store.
        Returns: how many keys left the file, and the streams that need older keys of users.
        Raises: OperatorError, which also names these streams, if the file cannot be replaced.
        """
        held, taken = await self._note_newest(await streams()), 0
        ring = KeyRing(self.ring.keys[:1], self.ring.users)
        if key_ring.may_be_replaced(file):
            # From here on streams that note nothing use the newest key. Some may have begun before:
            taken = key_ring.keep(file, ring)
            held = await replace(self, ring=ring)._note_newest(await streams())
        needed = {mark for one in held for mark in one.marks}
        older = tuple(key for key in ring.users[:-1] if mark_of_users(key) in needed)
        try:
            return taken + key_ring.keep(file, KeyRing(ring.keys, (*older, ring.users[-1]))), held
        except OperatorError as refusal:
            raise OperatorError(f"{refusal}{held_in_words(held)}") from None

    async def _note_newest(self, streams: Sequence[str]) -> list[Held]:
        held = []
        for name in (*self.configured, *sorted(set(streams) - set(self.configured))):
            while (found := await self._found(name)) is not None:
                state, keys, counted = found
                if name not in self.configured and not await self._uses_ring(name, keys):
                    break  # the stream of another service
                if len(self.ring.users) > 1 and keys.marks[-1:] != self._marks[-1:]:
                    until_now = keys.since(state.released_bin) if keys.marks else self._noted_none
                    last_old = max([_last_window(state, await self.now_us()), *counted, *keys.after])
                    keys = until_now.then(self._marks[-1], last_old)
                if keys != state.user_keys and len(self.ring.users) > 1:
                    reply = await self.noted.note(name, counted, state.user_keys, keys)
                    if reply is Reply.CONFLICT:
                        continue  # a window has begun meanwhile
                needed = keys.since(state.released_bin).marks
                if len(needed) > 1:
                    held.append(Held(name, needed, _end_of(state, keys.after[-1])))
                break
        return held

    async def give_up(self) -> list[str]:
        """Note this file's key for windows without users where the noted key is lost; return a report."""
        said = []
        for name in self.configured:
            while (found := await self._found(name)) is not None:
                state, keys, counted = found
                if set(keys.since(state.released_bin).marks) <= set(self._marks):
                    break
                mark = keys.marks[-1] if keys.marks[-1] in self._marks else self._of_unnoted
                last = max([state.released_bin, *(one for one in counted if counted[one] != mark)])
                noted = keys.then(mark, last)
                if noted != keys:
                    if await self.noted.note(name, counted, state.user_keys, noted) is Reply.CONFLICT:
                        continue
                    said.append(
                        f"{name}: users of cap windows after {_end_of(state, last)} are hashed with the key "
                        "of this file"
                    )
                if lost := [one for one in counted if counted[one] and counted[one] not in self._marks]:
                    said.append(
                        f"{name}: cap windows until {_end_of(state, max(lost))} have users under the lost "
                        "key; at the next event of such a window the worker ends, and then only a stream "
                        "with another name can go on"
                    )
                break
        return said

    async def _found(self, name: str) -> tuple[StreamState, UserKeys, Mapping[int, bytes]] | None:
        """Return state, keys and marks of open windows; None if a stream hashes neither users nor keys."""
        state = await self.store.load(name)
        if state is None or state.has_ended or read_strategy(state.strategy)[1] is not None:
            return None
        declared = Strategy.from_json(state.strategy).declared
        if declared.capped is None and not declared.finds_keys:
            return None
        if (counted := await self.noted.counted(name)) is None:
            return None
        return state, state.user_keys.counted_under(counted), counted

    async def _uses_ring(self, name: str, keys: UserKeys) -> bool:
        """Return whether a stream of another configuration uses this file, for its users or its noise."""
        if set(keys.marks) & set(self._marks):
            return True
        return await self.store.noise_key(name) in self.ring.marks

    @property
    def _marks(self) -> tuple[bytes, ...]:
        return tuple(map(mark_of_users, self.ring.users))

    @property
    def _noted_none(self) -> UserKeys:
        """The keys of a stream that notes none."""
        return UserKeys((self._of_unnoted,))

    @property
    def _of_unnoted(self) -> bytes:
        return mark_of_users(self.ring.noted_none)


def held_in_words(held: Sequence[Held]) -> str:
    """Return the sentences about streams that still need the old key of users' hashes; empty if none does."""
    if not held:
        return ""
    until = ", ".join(f"{one.stream} until {one.until}" for one in held)
    return (
        f". The old key of users' hashes stays in the file for cap windows that have begun: {until}. "
        "When they are released, run stream-app rotate-key finish again"
    )


def _last_window(state: StreamState, now_us: int) -> int:
    """Return the last cap window in which a record that has arrived by now may count.

    Args: now_us, for a live stream. The progress of a replay follows from its cuts.
    """
    time = Strategy.from_json(state.strategy).declared.time
    if state.stopped:
        return _window_of(state, state.released_bin)
    latest = [state.sealed_bin, *(partition.last_cut_bin for partition in state.partitions.values())]
    if Strategy.from_json(state.strategy).declared.last_bin is None:
        latest.append(int(time.binning.bin_of(np.array([now_us]))[0]))
    return _window_of(state, max(latest) + time.max_ahead_bins + 2)


def _window_of(state: StreamState, bin: int) -> int:
    strategy = Strategy.from_json(state.strategy)
    windows = strategy.declared.cap_windows(state.epoch, strategy.time.horizon)
    return int(windows.of(np.array([bin]))[0])


def _end_of(state: StreamState, bin: int) -> str:
    """Return when a bin ends, as people read it."""
    return format_instant(Strategy.from_json(state.strategy).declared.time.binning.end_us(bin))
