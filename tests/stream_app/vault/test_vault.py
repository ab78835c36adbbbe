"""Encrypted pages can be read in their own place only, and never again once their key is spent."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from stream_app.ports import OperatorError
from stream_app.vault.cipher import decrypt_page, encrypt_page, later_chain_key, new_chain_key
from stream_app.vault.key_files import KeyFiles
from stream_app.vault.key_ring import SharedKey, others_may_read

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
