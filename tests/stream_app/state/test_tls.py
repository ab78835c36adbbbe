"""Redis over TLS, with an own authority and a client's certificate, as the configuration names them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from stream_app.config import load_text
from stream_app.config.settings import RedisSettings
from stream_app.ports import OperatorError
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from stream_app.state.safety import check_reading, check_safety
from tests.certificates import write_certificates
from tests.tls_listener import tls_before

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    write_certificates(folder, "server", "client")
    (folder / "other").mkdir()
    write_certificates(folder / "other", "client")
    return folder


@pytest.fixture(scope="module")
def urls(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the URL of each user, behind TLS."""
    with EmbeddedRedis(folder / "redis") as server:
        of_users = {"url": server.worker_url, "api_url": server.api_url, "alerts_url": server.alerts_url}
        socket = Path(urlsplit(server.worker_url).path)
        with tls_before(socket, folder) as port:
            yield {
                name: f"rediss://{urlsplit(url).username}:{urlsplit(url).password}@127.0.0.1:{port}/0"
                for name, url in of_users.items()
            }


def configured(folder: Path, urls: dict[str, str], tls: str) -> RedisSettings:
    text = f"""
redis: {{url: "{urls["url"]}", api_url: "{urls["api_url"]}", tls: {tls}}}
streams:
  s:
    source: {{file: a.ndjson}}
    time: {{field: at, format: iso8601, bin: 5m, grace: 30s, epoch: 30d}}
    privacy: {{epsilon: 1.0}}
"""
    return load_text(text, folder / "app.yaml", {}).redis


def test_both_halves_work_over_tls(folder: Path, urls: dict[str, str]) -> None:
    redis = configured(folder, urls, "{ca: ca.pem, certificate: client.pem, key: client.key}")
    assert redis.url is not None
    assert redis.api_url is not None

    async def use(url: str, api_url: str) -> None:
        await check_safety(url)
        assert await check_reading("redis.api_url", api_url) is None
        store, reader = RedisStore(url), RedisReader(api_url)
        try:
            assert min(await store.now_us()) >= 0
            assert await reader.visible_seqs(["nothing"]) == [0]
        finally:
            await store.close()
            await reader.close()

    asyncio.run(use(redis.url, redis.api_url))


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        ("{ca: ca.pem}", "no use of 127.0.0.1"),  # the server wants a client's certificate
        ("{ca: other/ca.pem, certificate: client.pem, key: client.key}", "certificate verify failed"),
        ("{ca: ca.pem, certificate: other/client.pem, key: other/client.key}", "no use of 127.0.0.1"),
    ],
)
def test_a_wrong_certificate_is_refused_in_one_line(
    folder: Path, urls: dict[str, str], tls: str, words: str
) -> None:
    url = configured(folder, urls, tls).url
    assert url is not None
    with pytest.raises(OperatorError, match=words) as refused:
        asyncio.run(check_safety(url))
    assert "\n" not in str(refused.value)
    assert urlsplit(url).password not in (None, "")
    assert str(urlsplit(url).password) not in str(refused.value)
