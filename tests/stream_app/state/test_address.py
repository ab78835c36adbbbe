"""One URL says where Redis is: one server, a primary that Sentinels name, or a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis.asyncio.connection import SSLConnection, parse_url

from stream_app.state.address import redis_address, with_certificates


def test_sentinels_have_their_own_user_and_the_primary_has_the_url_s() -> None:
    url = "redis+sentinel://worker:p%40ss@a:1,b,[::1]/main/3?sentinel_username=s&sentinel_password=q%2F"
    address = redis_address(url)
    assert (address.kind, address.service) == ("sentinel", "main")
    assert address.hosts == ("a:1", "b:26379", "[::1]:26379")
    primary = parse_url(address.of_server("c:9"))
    assert primary == {"username": "worker", "password": "p@ss", "host": "c", "port": 9, "db": 3}
    sentinel = parse_url(address.of_sentinel("[::1]:26379"))
    assert sentinel == {"username": "s", "password": "q/", "host": "::1", "port": 26379}
    assert parse_url(redis_address("redis+sentinel://a/main").of_sentinel("a:1")) == {"host": "a", "port": 1}


def test_nodes_of_a_cluster_share_the_user() -> None:
    address = redis_address("redis+cluster://worker:secret@a,b:7")
    assert (address.kind, address.hosts) == ("cluster", ("a:6379", "b:7"))
    node = parse_url(address.of_server("c:9"))
    assert node == {"username": "worker", "password": "secret", "host": "c", "port": 9, "db": 0}


@pytest.mark.parametrize(
    "url", ["rediss://u:p@h:1/0", "rediss+sentinel://h/main", "rediss+cluster://h?timeout=3"]
)
def test_certificates_are_a_part_of_the_url(url: str) -> None:
    named = with_certificates(url, Path("/a b/ca.pem"), Path("/c&d.pem"), Path("/e%20f.key"))
    address = redis_address(named)
    servers = [named] if address.kind == "server" else [address.of_server("x:1")]
    if address.kind == "sentinel":
        servers.append(address.of_sentinel("h:1"))
    for server in servers:
        read: dict[str, object] = dict(parse_url(server))
        assert read["connection_class"] is SSLConnection
        files = [read[name] for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")]
        assert files == ["/a b/ca.pem", "/c&d.pem", "/e%20f.key"]


@pytest.mark.parametrize(
    "url",
    ["http://h", "redis+other://h", "redis://", "redis://h:0", "redis://h:x", "redis+cluster://", "unix://",
     "redis+cluster://a,,b", "redis+sentinel://a/", "redis+sentinel://a/n/x", "redis+cluster://a/1", "redis://[a"],
)  # fmt: skip
def test_other_urls_are_refused_without_showing_them(url: str) -> None:
    with pytest.raises(ValueError) as refused:
        redis_address(url.replace("://", "://user:hunter2@", 1) if "://" in url else url)
    assert "hunter2" not in str(refused.value)
