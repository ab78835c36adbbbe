"""A copy of a store is loaded by the server that wrote it: Redis and Valkey name their files differently."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from redis import Redis

from stream_app.state.loaded_copy import loaded_copy
from tests.contracts.servers import server_paths
from tests.patience import eventually

pytestmark = pytest.mark.redis


@pytest.mark.parametrize("name", server_paths())
def test_a_copy_of_each_server_is_loaded(name: str, tmp_path: Path) -> None:
    server, address = server_paths()[name], tmp_path / "s.sock"
    words = [str(server), "--port", "0", "--unixsocket", str(address), "--dir", str(tmp_path), "--save", ""]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(words, stdout=log) as writing:
        try:
            eventually(address.exists, "the server answers")
            with Redis(unix_socket_path=str(address)) as client:
                client.set("a", "1")
                client.save()
        finally:
            writing.kill()
    copied = tmp_path / "dump.rdb"
    if name == "valkey":
        assert copied.read_bytes().startswith(b"VALKEY")
    with loaded_copy([copied], server) as url, Redis.from_url(url) as client:
        assert client.get("a") == b"1"
