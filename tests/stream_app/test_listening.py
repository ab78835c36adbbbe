"""A listener waits for an address that its predecessor holds, and follows its certificate."""

from __future__ import annotations

import asyncio
import errno
import logging
import shutil
import socket
import ssl
from functools import partial
from pathlib import Path

import pytest

from deploy.ports import free_port
from stream_app import listening
from stream_app.api.app import listen
from stream_app.config import Settings, load
from stream_app.listening import once_free
from stream_app.ports import OperatorError
from stream_app.wiring.public import run_api
from tests.certificates import write_certificates
from tests.patience import PATIENCE_S, eventually_async

pytestmark = pytest.mark.slow

CONFIGURATION = """
redis: {{url: "redis://127.0.0.1:{redis}/0", api_url: "redis://127.0.0.1:{redis}/0"}}
api: {{port: {port}}}
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: ms, bin: 1m, grace: 5s, epoch: 1d}}
    privacy: {{epsilon: 1}}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    # Nothing answers at the store's address. An API waits for the store, but already listens.
    (tmp_path / "clicks.ndjson").touch()
    (tmp_path / "app.yaml").write_text(CONFIGURATION.format(port=free_port(), redis=free_port()))
    return load(tmp_path / "app.yaml", {})


async def _answers(port: int) -> None:
    for _ in range(10_000):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return


async def test_an_api_waits_for_the_port_of_its_predecessor(settings: Settings) -> None:
    port = settings.api.port
    predecessor = listen("127.0.0.1", port)
    serving = asyncio.create_task(run_api(settings))
    await asyncio.sleep(1)
    assert not serving.done()
    predecessor.close()
    await asyncio.wait_for(_answers(port), PATIENCE_S)
    assert not serving.done()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_an_orphan_leaves_the_address_to_its_successor() -> None:
    """A process whose parent has ended is cancelled soon. Until then it must not take the address."""

    taken: list[bool] = []
    orphan = asyncio.create_task(once_free(lambda: taken.append(True)))
    asyncio.get_running_loop().call_later(0.01, orphan.cancel)
    await asyncio.gather(orphan, return_exceptions=True)
    assert orphan.cancelled()
    assert taken == []


async def test_an_address_in_use_is_refused_after_the_patience_and_other_failures_at_once() -> None:
    tries: list[int] = []

    def take(failure: int) -> None:
        tries.append(failure)
        raise OSError(failure, "no")

    for failure, patience_s in ((errno.EADDRINUSE, 0.3), (errno.EADDRNOTAVAIL, 100)):
        with pytest.raises(OSError, match="no"):
            await once_free(partial(take, failure), patience_s)
    assert tries.count(errno.EADDRINUSE) > 1
    assert tries.count(errno.EADDRNOTAVAIL) == 1


@pytest.mark.slow
async def test_an_api_says_which_port_is_taken(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", settings.api.port)):
        refused = rf"^api\.port: 127\.0\.0\.1:{settings.api.port} cannot be served .*; free it$"
        with pytest.raises(OperatorError, match=refused):
            await run_api(settings)


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
