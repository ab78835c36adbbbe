"""Stored noise and its keys: pages are read in their own place only, and never once their key is spent."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path

import pytest

from stream_app.core.user_keys import mark_of_users
from stream_app.ports import OperatorError
from stream_app.vault import key_ring
from stream_app.vault.cipher import (
    decrypt_page,
    derived_chain_key,
    derived_user_key,
    encrypt_page,
    later_chain_key,
    mark_of,
    new_chain_key,
)
from stream_app.vault.key_files import KeyFiles
from stream_app.vault.key_ring import KeyRing, SharedKey, others_may_read

PLACE = ("visits", 3, "a" * 32, 5)


def test_a_page_is_read_in_its_own_place_only() -> None:
    key, content = new_chain_key(), bytes(range(200))
    data = encrypt_page(key, *PLACE, content)
    assert content not in data
    assert decrypt_page(key, *PLACE, data) == content
    elsewhere = [("other", *PLACE[1:]), ("visits", 4, *PLACE[2:]), (*PLACE[:2], "b" * 32, 5), (*PLACE[:3], 6)]
    for place in elsewhere:
        with pytest.raises(ValueError, match="damaged"):
            decrypt_page(key, *place, data)
    for other in (later_chain_key(key, 1), new_chain_key()):
        with pytest.raises(ValueError, match="damaged"):
            decrypt_page(other, *PLACE, data)


def test_no_damaged_bit_goes_unnoticed() -> None:
    key = new_chain_key()
    data = encrypt_page(key, *PLACE, b"noise")
    damaged = [data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :] for i in range(len(data))]
    for wrong in (*damaged, data[:-1], data[:5], b""):
        with pytest.raises(ValueError, match="damaged"):
            decrypt_page(key, *PLACE, wrong)


def test_keys_lead_forward_step_by_step() -> None:
    key = new_chain_key()
    assert later_chain_key(key, 0) == key
    assert later_chain_key(later_chain_key(key, 2), 3) == later_chain_key(key, 5)
    assert len({later_chain_key(key, step) for step in range(20)}) == 20


async def test_key_files_outlive_a_worker_and_forget_what_is_spent(tmp_path: Path) -> None:
    keys = KeyFiles(tmp_path / "keys")
    key = await keys.create("visits", 0, "n")
    again = KeyFiles(tmp_path / "keys")
    assert await again.chains("visits", 0, "n") == [(0, key)]
    assert await again.chains("visits", 0, "other") == []
    assert await again.chains("clicks", 0, "n") == []

    [file] = (tmp_path / "keys" / "visits").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    with file.open("rb") as held:  # the same blocks on the disk as before
        await again.spend("visits", 0, "n", 3)
        assert held.read().strip(b"\0") == b""
    assert await keys.chains("visits", 0, "n") == [(3, later_chain_key(key, 3))]
    await keys.spend("visits", 0, "n", 2)  # a repeated call that arrives late
    assert await keys.chains("visits", 0, "n") == [(3, later_chain_key(key, 3))]
    assert key.hex() not in "".join(path.read_text() for path in _key_files(tmp_path))


async def test_key_files_of_earlier_drawings_are_destroyed(tmp_path: Path) -> None:
    keys = KeyFiles(tmp_path)
    for epoch, nonce in ((0, "a"), (1, "b"), (1, "lost"), (2, "c")):
        await keys.create("visits", epoch, nonce)
    await keys.create("clicks", 0, "d")
    file = tmp_path / "visits" / "0-a.key"
    with file.open("rb") as held:
        await keys.discard("visits", 1, "b")
        assert held.read().strip(b"\0") == b""
    # Keys of the next epoch stay, because its noise may be being drawn. Another stream's keys stay too.
    kept = {path.relative_to(tmp_path).as_posix() for path in _key_files(tmp_path)}
    assert kept == {"visits/1-b.key", "visits/2-c.key", "clicks/0-d.key"}


@pytest.mark.parametrize("content", [b"", b"{}", b'{"page": 0}', b'{"page": 0, "key": "zz"}', b"\x00\xff"])
async def test_a_damaged_key_file_is_no_key(tmp_path: Path, content: bytes) -> None:
    keys = KeyFiles(tmp_path)
    await keys.create("visits", 0, "n")
    (tmp_path / "visits" / "0-n.key").write_bytes(content)
    assert await keys.chains("visits", 0, "n") == []


async def test_workers_with_one_secret_derive_one_chain_an_epoch(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.touch(0o600)
    file.write_bytes(base64.b64encode(bytes(range(32))) + b"\n")
    one, other = SharedKey.read(file), SharedKey.read(file)
    key = await one.create("visits", 3, "n")
    assert await other.chains("visits", 3, "n") == [(0, key)]
    others = [await other.create(*place) for place in (("visits", 4, "n"), ("visits", 3, "m"), ("v", 3, "n"))]
    assert len({key, *others}) == 4
    await one.spend("visits", 3, "n", 7)
    await one.discard("visits", 9, "m")
    assert await one.chains("visits", 3, "n") == [(0, key)]


def test_a_secret_that_others_may_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    with pytest.raises(OperatorError, match=r"^secrets\.key_file: .*cannot be read"):
        SharedKey.read(file)
    file.write_bytes(base64.b64encode(bytes(32)))
    file.chmod(0o640)
    with pytest.raises(OperatorError, match="chmod 600"):
        SharedKey.read(file)
    file.chmod(0o600)
    for content in (b"", b"short", base64.b64encode(bytes(31)), json.dumps("x" * 60).encode()):
        file.write_bytes(content)
        with pytest.raises(OperatorError, match="32 bytes in base64"):
            SharedKey.read(file)


@pytest.mark.parametrize(
    ("mode", "owner", "group", "user", "refused"),
    [
        (0o600, 1000, 1000, 1000, False),
        (0o640, 1000, 1000, 1000, True),  # a file of one's own needs no group
        (0o440, 0, 10001, 10001, False),  # as Kubernetes mounts a Secret
        (0o444, 0, 10001, 10001, True),
        (0o460, 0, 10001, 10001, True),
        (0o440, 0, 10002, 10001, True),  # another group's
        (0o440, 0, 0, 0, True),  # root needs no group
    ],
)
def test_who_may_read_a_secret_beside_the_service(
    mode: int, owner: int, group: int, user: int, refused: bool
) -> None:
    status = os.stat_result((0o100000 | mode, 0, 0, 1, owner, group, 44, 0, 0, 0))
    assert others_may_read(status, user, user) is refused


def _key_files(directory: Path) -> list[Path]:
    return list(directory.rglob("*.key"))


OLD, NEW, USERS = bytes(range(32)), bytes(range(1, 33)), bytes(range(2, 34))


def text_of(*keys: bytes, users: bytes | None = None) -> bytes:
    lines = [base64.b64encode(key) for key in keys]
    lines += [] if users is None else [b"users " + base64.b64encode(users)]
    return b"\n".join(lines) + b"\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "noise.key"
    file.touch(0o600)
    file.write_bytes(text_of(OLD))
    return file


def test_keys_are_derived_as_by_the_builds_before() -> None:
    """Otherwise the stored noise of a running epoch could not be read after an upgrade."""
    assert (
        derived_chain_key(OLD, "visits", 3, "n").hex()
        == "f01de21a025fd59334a8e7a55557ae2b41a678698eda66dc76699d2ae5fdb393"
    )
    assert derived_user_key(OLD).hex() == "a709a94bd2c919fbb0458e90d0c99e113381afb0d65d161cce4c9bb81bcac6b7"


def test_a_rotation_keeps_old_keys_of_users_until_told_and_destroys_the_old_file(file: Path) -> None:
    before = file.open("rb")
    with before:
        key_ring.begin(file)
        assert before.read().strip(b"\0") == b""
    ring = KeyRing.read(file)
    assert ring.keys[1:] == (OLD,)
    assert (ring.users[:-1], file.stat().st_mode & 0o777) == ((derived_user_key(OLD),), 0o600)
    assert ring.noted_none == derived_user_key(OLD)  # until all workers have the new key
    with pytest.raises(
        OperatorError, match=r"holds 2 keys, so a rotation has begun already; .* rotate-key finish$"
    ):
        key_ring.begin(file)
    finished = KeyRing(ring.keys[:1], ring.users)
    assert key_ring.keep(file, finished) == 1
    assert KeyRing.read(file) == finished
    assert finished.noted_none == ring.users[-1]
    assert key_ring.keep(file, finished) == 0
    key_ring.begin(file)  # a leak does not wait for the end of a cap window
    ring = KeyRing.read(file)
    assert ring.users[:2] == finished.users
    assert ring.noted_none == finished.users[-1]
    assert key_ring.keep(file, KeyRing(ring.keys[:1], ring.users[-1:])) == 3
    assert base64.b64encode(derived_user_key(OLD)) not in file.read_bytes()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (text_of(NEW, OLD), "holds several keys and no line users"),
        (text_of(OLD, OLD, users=USERS), "holds a key twice"),
        (text_of(users=USERS), "holds no 32 bytes in base64"),
        (text_of(OLD, users=USERS[:9]), "holds no 32 bytes in base64"),
        (text_of(OLD, users=USERS) + text_of(users=USERS), "holds a key twice"),
        (text_of(OLD) + b"someone " + base64.b64encode(USERS), "holds no 32 bytes in base64"),
    ],
)
def test_a_file_that_is_no_ring_is_refused(file: Path, content: bytes, said: str) -> None:
    file.write_bytes(content)
    with pytest.raises(OperatorError, match=said):
        KeyRing.read(file)


def test_the_file_of_another_user_is_left_alone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the new file would be this user's, and workers could not read it."""
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(OperatorError, match=f"belongs to user {owner}; run rotate-key as that user"):
        key_ring.begin(file)
    assert file.read_bytes() == text_of(OLD)


def test_a_rotation_through_a_symbolic_link_changes_the_file_for_all_who_share_it(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    key_ring.begin(link)
    assert link.is_symlink()
    assert KeyRing.read(file) == KeyRing.read(link)
    ring = KeyRing.read(file)
    assert key_ring.keep(link, KeyRing(ring.keys[:1], ring.users)) == 1
    assert KeyRing.read(file) == KeyRing.read(link)


def test_a_file_with_two_names_is_left_alone(file: Path) -> None:
    """A rotation replaces one name and overwrites the old file, which the other name would keep."""
    os.link(file, file.with_name("other"))
    with pytest.raises(OperatorError, match=r"has 2 names \(hard links\)"):
        key_ring.begin(file)
    assert file.read_bytes() == text_of(OLD)


async def test_a_worker_reads_the_file_again_when_it_changes(file: Path) -> None:
    keys = SharedKey.read(file)
    old, users = await keys.chains("visits", 3, "n"), keys.user_key("visits")
    assert await keys.mark("visits", b"") == mark_of(OLD)
    key_ring.begin(file)
    new = await keys.chains("visits", 3, "n")
    assert (new[1:], keys.user_key("visits")) == (old, users)
    [_, later] = KeyRing.read(file).users
    for key in (users, later):
        assert keys.user_key("visits", mark_of_users(key)) == key
    with pytest.raises(OperatorError, match=r"^stream visits: its users .* that .*noise\.key does not hold"):
        keys.user_key("visits", mark_of_users(NEW))
    first = KeyRing.read(file).keys[0]
    # The store says which key encrypts; only a stream without noise takes the first.
    assert await keys.mark("visits", mark_of(OLD)) == mark_of(OLD)
    assert await keys.create("visits", 3, "n", mark_of(OLD)) == old[0][1]
    assert await keys.create("visits", 3, "n", mark_of(first)) == new[0][1]
    with pytest.raises(OperatorError, match=r"^stream visits: .* that .*noise\.key does not hold"):
        await keys.mark("visits", mark_of(NEW))
    await asyncio.to_thread(file.write_bytes, b"nothing")  # cannot be used: the keys from before stay
    assert await keys.chains("visits", 3, "n") == new
    await asyncio.to_thread(file.unlink)
    assert await keys.chains("visits", 3, "n") == new


def test_a_file_that_cannot_be_replaced_is_named_with_the_lines_to_take_out(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_ring.begin(file)
    ring, before = KeyRing.read(file), file.read_bytes()
    monkeypatch.setattr(key_ring, "may_be_replaced", lambda file: False)
    with pytest.raises(
        OperatorError, match=r"needs the key\(s\) in line 2 and 3 any more.* take these lines out"
    ):
        key_ring.keep(file, KeyRing(ring.keys[:1], ring.users[-1:]))
    assert file.read_bytes() == before
