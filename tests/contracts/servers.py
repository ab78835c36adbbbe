"""The real servers for tests of stores: the bundled Redis, Valkey, and the system's Redis if there is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from stream_app.state.embedded import EmbeddedRedis, find_server
from tests.services import valkey_server


class ServerUrls(Protocol):
    """A running server: the URL of each of its users."""

    @property
    def worker_url(self) -> str: ...

    @property
    def api_url(self) -> str: ...

    @property
    def alerts_url(self) -> str: ...


def server_paths() -> dict[str, Path]:
    """Return the different executables on this machine, by name."""
    bundled = find_server()
    paths = {"bundled": bundled}
    if (valkey := valkey_server()) is not None:
        paths["valkey"] = valkey
    for directory in ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"):
        found = shutil.which("redis-server", path=directory)
        if found is not None and Path(found).resolve() != bundled.resolve():
            paths["system"] = Path(found)
    return paths


@contextmanager
def running(path: Path) -> Iterator[EmbeddedRedis]:
    """Run a server in a separate directory."""
    with TemporaryDirectory(prefix="redis-") as directory, EmbeddedRedis(Path(directory), path) as server:
        yield server
