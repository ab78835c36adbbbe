"""A listener with one spool, on a real port, in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from pathlib import Path

from deploy.ports import free_port
from stream_app.config import Settings, load_text
from stream_app.spool import parts
from stream_app.wiring.receiving import run_ingest
from tests.patience import PATIENCE_S, eventually

CONFIGURATION = """
state: {{dir: ./state}}
ingest: {{port: {port}, limits: {{slow: {slow}, connections_per_address: 20}} {more}}}
streams:
  clicks:
    source: {{http: clicks}}
    time: {{field: at, format: ms, bin: 1s, grace: 1s, epoch: 1h}}
    privacy: {{epsilon: 1.0}}
"""
HEAD = "POST /v1/ingest/clicks HTTP/1.1\r\nHost: localhost\r\n"


class Running:
    """A listener in a thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        assert settings.ingest is not None
        self.port = settings.ingest.port
        self.loop = asyncio.new_event_loop()
        self.work = self.loop.create_task(run_ingest(settings))
        self.thread = threading.Thread(target=self.serve)

    def serve(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self.loop.run_until_complete(self.work)

    def __enter__(self) -> Running:
        self.thread.start()
        eventually(self.listens, "the listener listens")
        return self

    def listens(self) -> bool:
        with contextlib.suppress(OSError):
            self.connection().close()
            return True
        return False

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.work.cancel)
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        self.loop.close()

    def connection(self) -> socket.socket:
        """Return a new connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def exchange(self, *parts: bytes) -> bytes:
        """Send bytes, and return all of the answers until the connection ends."""
        with self.connection() as connection:
            for part in parts:
                connection.sendall(part)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def send(self, body: bytes, *headers: str) -> tuple[int, str]:
        """Send one request; return the status and the answer's text."""
        more = "".join(f"{header}\r\n" for header in (*headers, f"Content-Length: {len(body)}"))
        answer = self.exchange(f"{HEAD}Connection: close\r\n{more}\r\n".encode(), body)
        return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2].decode()

    def stored(self) -> bytes:
        """Return all records."""
        return b"".join(one.records.read_bytes() for one in parts(self.settings.spools["clicks"]))


def settings_of(folder: Path, more: str = "", slow: str = "60s") -> Settings:
    """Return the settings of a listener on a free port. Args: slow, the time for a request to arrive."""
    text = CONFIGURATION.format(port=free_port(), more=more, slow=slow)
    return load_text(text, folder / "app.yaml", {})
