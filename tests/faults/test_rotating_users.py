"""The key of users' hashes is rotated while workers count: no count differs from a run without a rotation.

The schedule is drawn: when the key changes, when the second worker gets the new file, when workers start.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast
from unittest.mock import AsyncMock

import pytest

from stream_app.core.ledger import ACCEPTED
from stream_app.core.records import Reply
from stream_app.core.strategy import Strategy
from stream_app.core.user_keys import UserKeys, mark_of_users
from stream_app.ports import OperatorError, Store
from stream_app.vault import key_ring
from stream_app.vault.key_ring import KeyRing, SharedKey
from stream_app.wiring import rotating_users
from stream_app.wiring.rotating_users import Held, UsersOfStreams
from tests.faults.test_rotation import Stopping, write_key
from tests.models.memory import time_of
from tests.models.memory_stream import MemoryStream
from tests.models.memory_user_keys import MemoryUserKeys
from tests.stream_app.declared import STREAM, design_of, strategy_of
from tests.stream_app.one_source import ByHand, OneSource

pytestmark = pytest.mark.slow

FIRST, LAST = 100, 129
MOST = 2
OLD = bytes(range(32))
SHORT = "short"  # the second stream: its cap windows are half as long


@dataclass
class Service:
    """Two workers over one log; each has a copy of the key file."""

    one: OneSource
    files: tuple[Path, Path]
    workers: list[ByHand] = field(default_factory=list)
    said: list[str] = field(default_factory=list)  # the lines with which workers ended

    async def start(self, number: int) -> None:
        """Start a worker, or start it again."""
        self.one.keys = SharedKey.read(self.files[number])
        self.workers[number : number + 1] = [self.one.ingest()]

    async def step(self, number: int) -> None:
        """Let a worker count; if it ends because its file is late, it is started again later."""
        try:
            await self.workers[number].step()
        except OperatorError as line:
            self.said.append(str(line))
            await self.start(number)

    async def finish(self, dies_after: int = 10**6) -> list[Held]:
        """Finish a rotation of the first worker's file. Args: dies_after, so many calls."""
        ring, names = KeyRing.read(self.files[0]), [strategy.stream for strategy in self.one.strategies]
        left, store = [dies_after], self.one.store
        stopping = cast(Store, Stopping(store, left))
        notes = Stopping(MemoryUserKeys(store), left)
        users = UsersOfStreams(stopping, notes, ring, names, partial(time_of, stopping))
        await users.check()

        async def streams() -> Sequence[str]:
            return [*names, "nobody"]

        return (await users.finish(self.files[0], streams))[1]

    def copy(self) -> None:
        """Copy the file to the second worker."""
        shutil.copy2(self.files[0], self.files[1].with_suffix(".new"))
        self.files[1].with_suffix(".new").replace(self.files[1])


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a key file with one key. Workers do not wait for records that are not there."""
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    write_key(tmp_path / "a.key", OLD)
    return tmp_path / "a.key"


@pytest.fixture
def service(file: Path) -> Iterator[Service]:
    """Yield a service with one stream, both of whose workers read the one key file."""
    with closing(OneSource(file.parent, strategies()[0])) as one:
        one.keys = SharedKey.read(file)
        yield Service(one, (file, file))


def strategies() -> list[Strategy]:
    return [strategy_of(max_events=MOST), strategy_of(design_of((3,)), max_events=MOST, stream=SHORT)]


Event = tuple[float, int, str]  # its time in bins, the bin in which it arrives, its user


def drawn(rng: random.Random) -> list[Event]:
    return [
        (bin + rng.choice([0, 0, 0, -1, -4, 1, 2, 7]) + rng.random(), bin, rng.choice(["ann", "bob", "eve"]))
        for bin in range(FIRST, LAST + 1)
        for _ in range(rng.randrange(5))
    ]


def counted(
    directory: Path, events: list[Event], rng: random.Random | None
) -> tuple[list[Counter[int]], Service]:
    """Count a log with two workers; return the exact counts of each stream. Args: rng, of rotations."""
    directory.mkdir()
    files = directory / "a.key", directory / "b.key"
    for file in files:
        write_key(file, OLD)
    with closing(OneSource(directory, *strategies())) as one:
        service = Service(one, files)
        return asyncio.run(_counted(service, events, rng)), service


async def _counted(service: Service, events: list[Event], rng: random.Random | None) -> list[Counter[int]]:
    one = service.one
    closers = [one.closer(strategy, accept=ACCEPTED) for strategy in one.strategies]
    for closer in closers:
        await closer.reconcile()
    for number in (0, 1):
        await service.start(number)
    for bin in range(FIRST, LAST + 1):
        if rng is not None and bin == FIRST + 8:
            await rotate(service)
        for time, arrival, user in events:
            if arrival == bin:
                one.append_of((time, user))
                if rng is not None:
                    await act(service, rng)
                    await service.step(rng.randrange(2))
        one.clock.set_bin(bin + 1)
        for _ in range(2):
            await service.step(0)
        for closer in closers:
            await closer.close_due()
    return [Counter(await one.released(strategy.stream)) for strategy in one.strategies]


async def act(service: Service, rng: random.Random) -> None:
    """Do a part of a rotation, now and then."""
    part = rng.randrange(8)
    if part == 0 and len(KeyRing.read(service.files[0]).keys) == 1:
        key_ring.begin(service.files[0])
    elif part in (1, 2):
        await service.finish()
    elif part == 6:
        with suppress(asyncio.CancelledError):
            await service.finish(rng.randrange(1, 12))
    elif part in (3, 4):
        service.copy()
    elif part == 5:
        await service.start(rng.randrange(2))


async def rotate(service: Service) -> None:
    """Rotate the key while the second worker's file is late."""
    if len(KeyRing.read(service.files[0]).keys) == 1:
        key_ring.begin(service.files[0])
    await service.finish()


def marks(service: Service) -> tuple[UserKeys, ...]:
    return tuple(service.one.store.streams[name].noted_keys for name in (STREAM, SHORT))


@pytest.mark.parametrize("seed", range(8))
def test_no_count_changes_while_keys_of_users_change(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert differs(seed, tmp_path, monkeypatch) == []


def differs(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Counter[int]]:
    """Return by how much the counts of a run with rotations differ from those of a run without."""
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    events = drawn(random.Random(seed))
    plain, _ = counted(tmp_path / f"{seed} plain", events, None)
    rotated, service = counted(tmp_path / f"{seed} rotated", events, random.Random(seed + 100))
    assert all(sum(one.values()) > 20 for one in plain)
    assert all(keys.marks for keys in marks(service))
    return [a - b + (b - a) for a, b in zip(plain, rotated, strict=True) if a != b]


def ring_chooses(keys: SharedKey, stream: str, mark: bytes = b"") -> bytes:
    """Hash with this worker's key, whichever the store notes."""
    return keys._now().noted_none


def one_window_early(keys: UserKeys, window: int) -> bytes:
    """Hash users of the last old window with the new key."""
    return keys.marks[bisect_right(keys.after, window)] if keys.marks else b""


@pytest.mark.parametrize("mutant", ["store compares nothing", "one window early", "within a window"])
def test_a_wrong_key_of_a_window_is_caught(
    mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(owner: object, name: str, by: object) -> None:
        monkeypatch.setattr(owner, name, by)

    if mutant == "store compares nothing":
        wrong(SharedKey, "user_key", ring_chooses)
        wrong(MemoryStream, "same_key", lambda *_: True)
        wrong(MemoryStream, "same_key_ahead", lambda *_: True)
    elif mutant == "one window early":
        wrong(UserKeys, "of", one_window_early)
    else:
        wrong(rotating_users, "_last_window", lambda *_: FIRST + 1)
        wrong(MemoryUserKeys, "counted", AsyncMock(return_value={}))
        wrong(MemoryUserKeys, "note", noted_anyhow)
    assert any(differs(seed, tmp_path, monkeypatch) for seed in range(4))


async def noted_anyhow(
    notes: MemoryUserKeys, stream: str, counted: object, before: UserKeys, noted: UserKeys
) -> Reply:
    """Note the keys, also if windows have begun."""
    notes.streams[stream].noted_keys = noted
    return Reply.DONE


async def test_after_a_restore_from_before_the_rotation_the_line_names_the_remedy(service: Service) -> None:
    """The copy lacks the notes. Until they are back, nobody counts; then caps hold as before."""
    one = service.one
    await one.closer().reconcile()
    await service.start(0)
    one.append_of((FIRST, "ann"))
    await service.step(0)
    backup = one.store.copy()
    await rotate(service)
    one.store.restore(backup)
    await service.start(0)
    one.append_of((FIRST, "ann"), (FIRST, "ann"))
    await service.step(0)
    assert len(service.said) == 1
    assert "run stream-app rotate-key finish;" in service.said[0]
    [held] = await service.finish()
    assert held.stream == STREAM
    for bin in range(FIRST, FIRST + 13):
        one.append_of((bin, "ann"))
        one.clock.set_bin(bin + 1)
        for _ in range(2):
            await service.step(0)
        await one.closer().close_due()
    assert await service.finish() == []
    assert len(KeyRing.read(service.files[0]).users) == 1
    assert +Counter(await one.released()) == Counter({100: 2, 106: 1, 107: 1, 112: 1})
    assert len(service.said) == 1


async def test_under_a_lost_key_later_windows_go_on_when_the_operator_says_so(
    service: Service, file: Path
) -> None:
    one, closer = service.one, service.one.closer()
    await closer.reconcile()
    await rotate(service)
    write_key(file, bytes(32))  # the file with all its keys is lost
    await service.start(0)
    one.append_of((FIRST, "ann"))
    await service.step(0)
    assert "if this key is lost, run stream-app rotate-key lost" in service.said[0]
    with pytest.raises(OperatorError, match="nothing was changed"):
        await service.finish()
    users = users_of(service, [STREAM])
    assert await users.give_up() != []
    assert await users.give_up() == []
    for bin in range(FIRST, FIRST + 8):
        one.append_of(*[(bin, "ann")] * 3)
        one.clock.set_bin(bin + 1)
        for _ in range(2):
            await service.step(0)
        await closer.close_due()
    assert len(service.said) == 1
    assert +Counter(await one.released()) == Counter({100: 2, 106: 2})


def users_of(service: Service, names: Sequence[str]) -> UsersOfStreams:
    """Return the keys of streams' users. Args: names, the streams of the configuration."""
    store, ring = service.one.store, KeyRing.read(service.files[0])
    return UsersOfStreams(store, MemoryUserKeys(store), ring, names, partial(time_of, store))


@pytest.mark.parametrize("anybody", [True, False])
async def test_a_key_that_left_its_file_too_early_is_given_up(anybody: bool, service: Service) -> None:
    """The file holds the newest key, but not the one of the windows that have begun."""
    one, file = service.one, service.files[0]
    await one.closer().reconcile()
    await service.start(0)
    one.append_of(*[(FIRST, "ann")] * anybody)
    await service.step(0)
    await rotate(service)
    ring = KeyRing.read(file)
    key_ring.keep(file, KeyRing(ring.keys, ring.users[-1:]))
    [said] = await users_of(service, [STREAM]).give_up()
    await service.start(0)
    one.append_of((FIRST + 1, "bob"))
    await service.step(0)
    keys = one.store.streams[STREAM].noted_keys
    if anybody:
        assert "have users under the lost key" in said
        assert len(service.said) == 1
        assert len(keys.marks) == 2
    else:
        assert "are hashed with the key of this file" in said
        assert service.said == []
        assert keys.since(FIRST - 1).marks == keys.marks[-1:]


@pytest.mark.parametrize("mine", [True, False])
async def test_a_stream_of_another_configuration_is_noted_if_its_noise_has_a_key_of_the_file(
    mine: bool, service: Service, file: Path
) -> None:
    """Nobody has counted in it yet: its window must not begin under the key that leaves the file."""
    one = service.one
    await one.closer().reconcile()
    key_ring.begin(file)
    one.store.noise_keys[STREAM] = KeyRing.read(file).marks[0] if mine else bytes(16)

    async def streams() -> Sequence[str]:
        return [STREAM]

    await users_of(service, []).finish(file, streams)
    keys = one.store.streams[STREAM].noted_keys
    assert bool(keys.marks) == mine
    if mine:
        assert keys.marks == tuple(map(mark_of_users, KeyRing.read(file).users))


async def test_a_file_that_cannot_be_replaced_is_refused_with_the_windows_that_need_its_old_key(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.one.closer().reconcile()
    await service.start(0)
    service.one.append_of((FIRST, "ann"))
    await service.step(0)
    key_ring.begin(service.files[0])
    monkeypatch.setattr(key_ring, "may_be_replaced", lambda file: False)
    with pytest.raises(
        OperatorError,
        match=rf"in line 2 any more.* take these lines out .* begun: {STREAM} until .*Z. When they",
    ):
        await service.finish()
