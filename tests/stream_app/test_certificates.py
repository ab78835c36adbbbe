"""A listener's certificate is replaced while it serves: new connections get it, open ones go on."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
from pathlib import Path

import pytest

from stream_app import listening
from tests.certificates import write_certificates
from tests.patience import eventually_async


def test_new_connections_get_the_new_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "LOOK_EVERY_S", 0.01)
    asyncio.run(replaced(tmp_path, caplog))


async def replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_certificates(tmp_path, "old", "new", "other")
    files = tmp_path / "server.pem", tmp_path / "server.key"

    def put(certificate: str, key: str) -> None:
        for source, target in ((f"{certificate}.pem", files[0]), (f"{key}.key", files[1])):
            shutil.copy(tmp_path / source, tmp_path / "next")
            (tmp_path / "next").replace(target)

    put("old", "old")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    trusting = ssl.create_default_context(cafile=tmp_path / "ca.pem")

    async def shown() -> str:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        certificate = writer.get_extra_info("peercert")
        writer.close()
        return str(dict(pair[0] for pair in certificate["subject"])["commonName"])

    async with server, listening.following(context, files, "api.tls"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        assert await shown() == "old"
        put("new", "new")

        async def is_new() -> bool:
            return await shown() == "new"

        await eventually_async(is_new, "a new connection gets the new certificate")
        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n"
        writer.close()
        with caplog.at_level(logging.ERROR):
            put("other", "new")  # they do not fit together

            async def is_refused() -> bool:
                return bool(caplog.messages)

            await eventually_async(is_refused, "the wrong key is noticed")
        assert caplog.messages[0].startswith("api.tls: the new certificate or key cannot be used (")
        assert len(caplog.messages) == 1
        assert await shown() == "new"
        files[1].unlink()
        put("other", "other")

        async def is_other() -> bool:
            return await shown() == "other"

        await eventually_async(is_other, "the next pair that fits is taken")
