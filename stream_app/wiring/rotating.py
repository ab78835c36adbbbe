"""``stream-app rotate-key``: replaces the key of ``secrets.key_file`` while workers run.

    begin:   a new key before the old one in the file      (workers read both, and encrypt as before)
             the same for the key of users' hashes         (``rotating_users.py``)
    finish:  the store notes the new key of each stream    (no page under the old key is stored any more)
             noise of epochs that have not opened is deleted       (its worker draws again)
             each page of the running epoch is encrypted again     (the same noise, by compare-and-set)
             the store's files are rewritten without the old pages
             the store notes from which cap window on users have new hashes
             the old key leaves the file

Each step may be repeated, so a command that was killed is run again. The old key stays until all of this is
done for every stream. A worker whose file lacks the new key ends with one line; its epochs go on.

    lost:    the store notes the first key of the file for each stream whose noted key the file lacks

Noise under a lost key cannot be read, so its worker then ends the running epoch, and the next one begins.

    move:    the keys of state.dir go into a new file, for a worker that had no ``secrets.key_file``

It is a rotation from the keys of epochs in ``state.dir`` to the key of the file, while no worker runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stream_app.config import Settings
from stream_app.core.records import Reply, StreamState
from stream_app.ports import OperatorError
from stream_app.state.key_notes import StoredPages, StoredUserKeys
from stream_app.state.redis_store import RedisStore
from stream_app.vault import key_ring
from stream_app.vault.cipher import decrypt_page, derived_chain_key, encrypt_page, later_chain_key
from stream_app.vault.key_files import KeyFiles
from stream_app.vault.key_ring import KeyRing
from stream_app.wiring.known_segments import of_all_segments
from stream_app.wiring.rotating_users import Held, UsersOfStreams, held_in_words
from stream_app.wiring.storage import no_worker, time_to_store, writing


def begin(settings: Settings) -> str:
    """Put a new key into the key file; return the next step. Raises: OperatorError if there are two."""
    file = _file(settings)
    key_ring.begin(file)
    return (
        f"{file}: holds new keys and the old ones. Copy it to every machine with a worker; when all workers "
        "read it, run stream-app rotate-key finish"
    )


async def finish(settings: Settings) -> str:
    """Encrypt all stored noise with the first key of the file, and take the others out; return a report.

    Raises: OperatorError, and the file keeps its keys, if stored noise cannot be read with them.
    """
    file = _file(settings)
    async with writing(settings) as store:
        now_us = partial(time_to_store, settings, store)
        await now_us()  # before anything is changed
        pages, taken_out, held = await finish_in(
            store, StoredPages(store), file, await _names(settings, store), now_us
        )
    said = f"{file}: one key encrypts all stored noise; {pages} pages were encrypted again"
    if taken_out:
        said = (
            f"{file}: {pages} pages were encrypted again, and {taken_out} old key(s) taken out. Copy it to "
            "every machine with a worker, and delete old copies"
        )
    return said + held_in_words(held)


async def move(settings: Settings) -> str:
    """Move the keys of ``state.dir`` into the key file; return a report.

    No epoch ends, and users' hashes stay the same. Workers must not run, because they read the old keys.
    Raises: OperatorError if a worker runs, there is nothing to move, or stored noise cannot be read.
    """
    file, held = _file(settings), KeyFiles(settings.state_dir / "noise_keys")
    with no_worker(settings.state_dir):
        if not held.holds_keys:
            raise OperatorError(
                f"state.dir: {settings.state_dir} holds no keys to move; start the worker with "
                "secrets.key_file as it is"
            )
        async with writing(settings) as store:
            pages = await move_in(store, StoredPages(store), file, await _names(settings, store), held)
    return (
        f"{file}: holds the key of users' hashes and a new key, with which {pages} pages of noise were "
        f"encrypted again; their keys in {settings.state_dir} are destroyed. Keep a copy of this file apart, "
        "and start the worker with it"
    )


async def move_in(
    store: RedisStore, pages: StoredPages, file: Path, configured: Sequence[str], held: KeyFiles
) -> int:
    """Do the step in an open store; return how many pages changed. It may be repeated after any crash."""
    key_ring.create(file, held.user_key("") if held.users_file.exists() else None)
    ring = KeyRing.read(file)
    streams = [_Rotated(store, pages, ring, name, held) for name in configured]
    for stream in streams:
        await stream.check()
    changed = sum([await stream.encrypt_again() for stream in streams])
    for stream in streams:
        await held.forget(stream.name)
    await held.forget_users()
    return changed


async def give_up(settings: Settings) -> str:
    """Give up noise under keys that the file lacks, of all configured streams; return a report."""
    file = _file(settings)
    async with writing(settings) as store:
        configured = await _names(settings, store)
        streams = await give_up_in(store, StoredPages(store), file, configured)
        now_us = partial(time_to_store, settings, store)
        users = UsersOfStreams(store, StoredUserKeys(store), KeyRing.read(file), configured, now_us)
        said = await users.give_up()
    if streams:
        names = ", ".join(streams)
        said.insert(0, f"{names}: noise under a lost key is given up; workers end the epochs that need it")
    return "\n".join(said) or f"{file}: holds the keys of all streams; nothing was given up"


async def give_up_in(
    store: RedisStore, pages: StoredPages, file: Path, configured: Sequence[str]
) -> list[str]:
    """Note the first key of a file for each stream whose noted key the file lacks; return these streams.

    No noise is drawn again for an epoch that is open: a worker that cannot read its noise ends it.
    """
    ring, lost = KeyRing.read(file), []
    for name in configured:
        if (noted := await store.noise_key(name)) and noted not in ring.marks:
            await pages.note_key(name, ring.marks[0])
            lost.append(name)
    return lost


async def finish_in(
    store: RedisStore,
    pages: StoredPages,
    file: Path,
    configured: Sequence[str],
    now_us: Callable[[], Awaitable[int]],
) -> tuple[int, int, list[Held]]:
    """Do the step in an open store. Args: now_us, returns the store's time.

    Returns: how many pages changed, how many keys left the file, and the streams that need older keys of
        users' hashes than the newest. Raises: as ``finish``.
    """
    ring = KeyRing.read(file)
    users = UsersOfStreams(store, StoredUserKeys(store), ring, configured, now_us)
    await users.check()
    changed = await _encrypt_again(store, pages, ring, configured)
    return changed, *await users.finish(file, pages.streams)


async def _encrypt_again(
    store: RedisStore, pages: StoredPages, ring: KeyRing, configured: Sequence[str]
) -> int:
    """Make the first key of a ring the only one that stored noise needs; return how many pages changed.

    Streams of other configurations are left alone if their noise has none of these keys.
    Raises: OperatorError, before anything changes, if a configured stream's noise cannot be read.
    """
    streams = [_Rotated(store, pages, ring, name) for name in configured]
    for stream in streams:
        await stream.check()
    for name in set(await pages.streams()) - set(configured):
        other = _Rotated(store, pages, ring, name)
        if await other.uses_ring():
            streams.append(other)
    changed = 0
    for stream in streams:
        changed += await stream.encrypt_again()
    await pages.forget()
    return changed


@dataclass(frozen=True, slots=True)
class _Rotated:
    """The stored noise of one stream. Args: held, more keys, which are about to be replaced."""

    store: RedisStore
    pages: StoredPages
    ring: KeyRing
    name: str
    held: KeyFiles | None = None

    async def check(self) -> None:
        """Raises: OperatorError if the keys of the file do not read the running epoch's noise."""
        noted = await self.store.noise_key(self.name)
        if noted and noted not in self.ring.marks:
            raise OperatorError(
                f"stream {self.name}: its noise is encrypted with a key that secrets.key_file does not hold; "
                "copy the file of a worker that runs, or if this key is lost, run stream-app rotate-key "
                "lost; nothing was changed"
            )
        if (state := await self.store.load(self.name)) is not None:
            for page in await self.pages.pages(self.name, state.noise):
                await self._read(state, page)

    async def uses_ring(self) -> bool:
        """Return whether a stream's noise is encrypted with keys of this file."""
        if noted := await self.store.noise_key(self.name):
            return noted in self.ring.marks
        state = await self.store.load(self.name)
        if state is None or not await self.pages.pages(self.name, state.noise):
            return False
        try:
            await self.check()
        except OperatorError:
            return False
        return True

    async def encrypt_again(self) -> int:
        """Encrypt the noise with the first key; return how many pages changed."""
        await self.pages.note_key(self.name, self.ring.marks[0])
        # From here on no page under another key is stored. So these are the last ones under an old key:
        await self.store.discard_noise(self.name, [])
        changed, state = 0, await self.store.load(self.name)
        if state is None:
            return 0
        for page in await self.pages.pages(self.name, state.noise):
            changed += await self._encrypt_again(state, page)
        await self.store.confirm(self.name)
        return changed

    async def _encrypt_again(self, state: StreamState, page: int) -> bool:
        """Encrypt a page with the first key; return False if it was, or is spent by now."""
        while (read := await self._read(state, page)) is not None:
            before, key, content = read
            if key == self.ring.keys[0]:
                return False
            place = self.name, state.epoch.epoch, state.noise, page
            after = encrypt_page(_chain_key(self.ring.keys[0], *place), *place, content)
            if await self.pages.replace(self.name, state.noise, page, before, after) is Reply.DONE:
                return True
        return False

    async def _read(self, state: StreamState, page: int) -> tuple[bytes, bytes, bytes] | None:
        """Return a page as stored, the key that opens it, and its content; None without it. SECRET."""
        if (data := await self.store.read_noise(self.name, state.noise, page)) is None:
            return None
        place = self.name, state.epoch.epoch, state.noise, page
        for key in self.ring.keys:
            try:
                return data, key, decrypt_page(_chain_key(key, *place), *place, data)
            except ValueError:
                continue
        chains = await self.held.chains(*place[:3]) if self.held is not None else ()
        for first, chain in chains:
            with suppress(ValueError):
                if first <= page:
                    return data, b"", decrypt_page(later_chain_key(chain, page - first), *place, data)
        raise OperatorError(
            f"stream {self.name}: page {page} of its noise can be read with no key of secrets.key_file; put "
            "the missing key into the file, or wait until its epoch has ended; the old key stays"
        )


def _chain_key(key: bytes, stream: str, epoch: int, nonce: str, page: int) -> bytes:
    return later_chain_key(derived_chain_key(key, stream, epoch, nonce), page)


async def _names(settings: Settings, store: RedisStore) -> list[str]:
    return [stream.name for stream in (await of_all_segments(settings, store)).streams]


def _file(settings: Settings) -> Path:
    if settings.noise_key_file is None:
        raise OperatorError(
            "secrets.key_file: it is missing, so each epoch's noise has its own key in state.dir, which is "
            "destroyed as the noise is used; to rotate the key of users' hashes, too, write secrets.key_file "
            "with a file that does not exist, stop the worker, and run stream-app rotate-key move"
        )
    return settings.noise_key_file
