"""A schema registry for tests: real HTTP on loopback, with the two routes that the service uses."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro

from stream_app.sources.decode import Decoded
from stream_app.sources.topic_records import TopicDecoder


class Registry:
    """A schema registry's state: the registered schemas by path, and the requested paths."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.url = ""
        self.delay_s = 0.0  # seconds before each answer
        self.hanging: set[str] = set()  # paths that get no answer while they are in this set
        self.missing: dict[str, Any] = {"error_code": 40403}  # the answer to any other path

    def register(self, schema_id: int, schema: Any, **more: Any) -> None:
        """Register a schema under an id."""
        self.answers[f"/schemas/ids/{schema_id}"] = {"schema": json.dumps(schema)} | more


@contextmanager
def serving(
    registry: Registry, port: int = 0, certificate: tuple[Path, Path] | None = None
) -> Iterator[Registry]:
    """Serve a registry during the block. Args: certificate and its key, to serve HTTPS instead of HTTP."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            time.sleep(registry.delay_s)
            while self.path in registry.hanging:
                time.sleep(0.05)
            answer = registry.answers.get(self.path)
            body = json.dumps(registry.missing if answer is None else answer).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def handle(self) -> None:
            with suppress(ssl.SSLError, ConnectionError):  # a client without trust in the certificate leaves
                super().handle()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*certificate)
        # The handshake is made in the request's thread, so that a failed handshake does not end the server.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    scheme = "http" if certificate is None else "https"
    registry.url = f"{scheme}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def record(schema_id: int, schema: Any, value: Any) -> bytes:
    """Return a record in Confluent's wire format."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, value)
    return b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()


def decoded(decoder: TopicDecoder, values: Sequence[bytes]) -> Decoded:
    """Return decoded records, once all their schemas are fetched."""
    assert list(asyncio.run(decoder.prepare([values]))) == [len(values)]
    return decoder.decode(values, [])


def refusals(found: Decoded) -> list[tuple[int, str]]:
    """Return the refused records and why."""
    return [(index, str(reason)) for index, reason in found.refused]
