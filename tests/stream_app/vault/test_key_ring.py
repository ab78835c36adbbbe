"""The file of shared keys: what it may hold, how a rotation changes it, and when a worker reads it again."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path

import pytest

from stream_app.core.user_keys import mark_of_users
from stream_app.ports import OperatorError
from stream_app.vault import key_ring
from stream_app.vault.cipher import derived_chain_key, derived_user_key, mark_of
from stream_app.vault.key_ring import KeyRing, SharedKey

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
