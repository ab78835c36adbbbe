"""Tokens for OAUTHBEARER: fetched once for most of their life, refused in one line, never shown."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deploy.ports import free_port
from stream_app.kafka.tokens import Tokens
from stream_app.ports import OperatorError
from tests.openid import CLIENT, SECRET, Provider, providing

pytestmark = pytest.mark.slow


@pytest.fixture
def provider() -> Iterator[Provider]:
    with providing(Provider()) as served:
        yield served


def settings(provider: Provider, **more: str) -> dict[str, str]:
    given = {
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret": SECRET,
    }
    return given | {f"sasl.oauthbearer.{name}": value for name, value in more.items()}


def test_many_clients_share_one_token(provider: Provider) -> None:
    tokens = Tokens(settings(provider, scope="topics.read"))
    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(lambda _: tokens.current(), range(32)))
    assert len(found) == 1
    assert provider.asked == [{"grant_type": ["client_credentials"], "scope": ["topics.read"]}]


def test_token_is_fetched_again_before_its_life_is_over(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("stream_app.kafka.tokens.time.monotonic", lambda: now[0])
    tokens = Tokens(settings(provider))
    tokens.current()
    now[0] = 0.79 * provider.life_s
    tokens.current()
    assert len(provider.asked) == 1
    now[0] = 0.81 * provider.life_s
    tokens.current()
    assert len(provider.asked) == 2


@pytest.mark.parametrize("life_s", [float("nan"), float("inf"), -1.0, 0.0])
def test_token_without_a_sensible_life_is_fetched_again_soon(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, life_s: float
) -> None:
    now = [0.0]
    monkeypatch.setattr("stream_app.kafka.tokens.time.monotonic", lambda: now[0])
    provider.broken = 200, {"access_token": "first", "expires_in": life_s}
    tokens = Tokens(settings(provider))
    assert tokens.current() == "first"
    provider.broken = 200, {"access_token": "second", "expires_in": life_s}
    now[0] = 1.0
    assert tokens.current() == "first"
    now[0] = 61.0
    assert tokens.current() == "second"


def test_query_of_the_token_endpoint_is_not_shown() -> None:
    place = f"http://127.0.0.1:{free_port()}/token?code=hunter2"
    given = {"token.endpoint.url": place, "client.id": CLIENT, "client.secret": SECRET}
    tokens = Tokens({f"sasl.oauthbearer.{name}": value for name, value in given.items()})
    with pytest.raises(ConnectionError, match=r"/token: no answer") as failed:
        tokens.current()
    assert "hunter2" not in str(failed.value)


def test_refused_client_is_one_line_without_its_secret(provider: Provider) -> None:
    wrong = settings(provider, **{"client.secret": "wrong-one"})
    with pytest.raises(OperatorError) as refused:
        Tokens(wrong).current()
    said = str(refused.value)
    assert "refuses client counter (invalid_client); correct kafka.sasl.oauthbearer.client.id" in said
    assert "wrong-one" not in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "broken", [(500, {}), (200, {}), (200, ["a"]), (200, {"access_token": 7}), (503, {"error": "x"})]
)
def test_failing_provider_is_tried_again(provider: Provider, broken: tuple[int, Any]) -> None:
    tokens = Tokens(settings(provider))
    provider.broken = broken
    with pytest.raises(ConnectionError, match="gives no token"):
        tokens.current()
    provider.broken = None
    assert tokens.current().count(".") == 2


def test_hostile_reason_stays_one_line(provider: Provider) -> None:
    provider.broken = 401, {"error": "no\n\x1b[2Jway" + "x" * 1000}
    with pytest.raises(OperatorError) as refused:
        Tokens(settings(provider)).current()
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400


def test_unreachable_provider_is_tried_again(provider: Provider) -> None:
    there = settings(provider) | {
        "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{free_port()}/token"
    }
    with pytest.raises(ConnectionError, match="no answer"):
        Tokens(there).current()


def test_token_of_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    tokens = Tokens({"sasl.oauthbearer.token.file": str(file)})
    for token in ("a.b.c", "d.e.f"):
        file.write_text(f"{token}\n")
        assert tokens.current() == token
    for wrong in ("", "two tokens", "line\nline"):
        file.write_text(wrong)
        with pytest.raises(OperatorError, match="holds no token"):
            tokens.current()
    file.unlink()
    with pytest.raises(OperatorError, match="No such file"):
        tokens.current()


def test_extensions_are_pairs() -> None:
    given = {"sasl.oauthbearer.extensions": "logicalCluster=lkc-1, identityPoolId=pool=2"}
    assert Tokens(given).extensions() == {"logicalCluster": "lkc-1", "identityPoolId": "pool=2"}
    assert Tokens({}).extensions() == {}
