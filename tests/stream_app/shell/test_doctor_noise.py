"""On a real store, ``stream-app doctor`` finds whether a worker has the keys of stored noise."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dphist.tree.design import Release
from stream_app.audit.backups import read_copy
from stream_app.config import load
from stream_app.core.records import Reply
from stream_app.core.user_keys import mark_of_users
from stream_app.loops.lease import Lease
from stream_app.ports import NoiseKeys
from stream_app.shell.checks.redis import redis_findings
from stream_app.shell.checks.stored import users_findings
from stream_app.state.redis_store import RedisStore
from stream_app.vault.key_files import KeyFiles
from stream_app.vault.key_ring import KeyRing, SharedKey
from stream_app.wiring.checks import Finding
from stream_app.wiring.storage import holds_users_keys, noise_keys
from tests.contracts import test_store
from tests.contracts.conftest import Stores
from tests.contracts.examples import BINS, FIRST_BIN, of_users
from tests.contracts.servers import server_paths
from tests.deployment.test_redis import deployed
from tests.stream_app.declared import design_of, strategy_of
from tests.stream_app.one_source import OneSource

TOPIC = '{topic: visits, format: json}\nkafka: {bootstrap_servers: "127.0.0.1:1"}'
FILE = "{file: visits.ndjson}"
SECRET = b"c2VjcmV0IHRoYXQgYWxsIHdvcmtlcnMgaGF2ZSBhcyBvbmU="


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the worker's URL of a deployed server."""
    with deployed(tmp_path_factory.mktemp("store"), server_paths()["bundled"]) as server:
        yield server.worker_url


def examined(folder: Path, url: str, stream: str, source: str, more: str = "") -> Finding:
    """Return the finding about a stream's noise. The worker's configuration is in ``folder``."""
    source, _, kafka = source.partition("\n")
    text = f"""
redis: {{url: "{url}"}}
{kafka}
{more}
streams:
  {stream}:
    source: {source}
    time: {{field: at, format: ms, bin: 10s, grace: 0s, epoch: 1m}}
    privacy: {{epsilon: 1}}
"""
    (folder / "app.yaml").write_text(text)
    found = asyncio.run(redis_findings(load(folder / "app.yaml", {})))
    [noise] = [finding for finding in found if finding.what == f"streams.{stream} noise"]
    return noise


def opened(
    folder: Path,
    url: str,
    stream: str,
    keys: NoiseKeys,
    release: Release = "anticipating",
    lease_s: float = 0.0,
) -> None:
    """Open a stream as another machine does. Args: lease_s, how long that machine holds the lease."""
    design = replace(design_of((2, 3)), release=release)
    strategy = strategy_of(design, stream=stream, source=f"file:{stream}")

    async def run(one: OneSource) -> None:
        store = RedisStore(url)
        try:
            await one.closer(store=store).reconcile()
            if lease_s:
                assert await Lease(store, stream, "somebody else", lease_s).held()
        finally:
            await store.close()

    with closing(OneSource(folder, strategy)) as one:
        one.keys = keys
        asyncio.run(run(one))


@pytest.mark.redis
class TestOnARealStore:
    def test_stream_without_an_epoch_is_ok(self, tmp_path: Path, url: str) -> None:
        assert examined(tmp_path, url, "unknown", TOPIC).state == "ok"
        assert not (tmp_path / "state").exists()

    @pytest.mark.parametrize("source", [FILE, TOPIC])
    def test_keys_on_this_machine_are_ok(self, tmp_path: Path, url: str, source: str) -> None:
        stream = f"here-{source[1:5]}"
        opened(tmp_path, url, stream, KeyFiles(tmp_path / "state" / "noise_keys"), lease_s=60)
        keys = [*(tmp_path / "state" / "noise_keys").rglob("*.key")]
        assert examined(tmp_path, url, stream, source).state == "ok"
        assert [*(tmp_path / "state" / "noise_keys").rglob("*.key")] == keys

    def test_missing_keys_while_another_machine_closes_the_stream(self, tmp_path: Path, url: str) -> None:
        opened(tmp_path, url, "elsewhere", KeyFiles(tmp_path / "elsewhere"), lease_s=60)
        refused = examined(tmp_path, url, "elsewhere", TOPIC)
        assert refused.state == "fail"
        assert refused.said.endswith("it would be refused; give all workers one secrets.key_file")
        # A file has only one worker. It needs no lease and is not refused.
        assert examined(tmp_path, url, "elsewhere", FILE).state == "warn"

    def test_missing_keys_while_no_machine_closes_the_stream(self, tmp_path: Path, url: str) -> None:
        opened(tmp_path, url, "gone", KeyFiles(tmp_path / "elsewhere"))
        ending = examined(tmp_path, url, "gone", TOPIC)
        assert (ending.state, "it would end early" in ending.said) == ("warn", True)

    def test_causal_stream_needs_no_keys(self, tmp_path: Path, url: str) -> None:
        opened(tmp_path, url, "causal", KeyFiles(tmp_path / "elsewhere"), "causal", lease_s=60)
        assert examined(tmp_path, url, "causal", TOPIC).state == "ok"

    @pytest.mark.parametrize(("same", "state"), [(True, "ok"), (False, "fail")])
    def test_machines_with_a_shared_secret_have_the_keys(
        self, tmp_path: Path, url: str, same: bool, state: str
    ) -> None:
        file = tmp_path / "noise.key"
        file.touch(mode=0o600)
        file.write_bytes(SECRET)
        keys = SharedKey.read(file) if same else SharedKey(KeyRing.of(b"another one" * 4))
        stream = f"shared-{state}"
        opened(tmp_path, url, stream, keys, lease_s=60)
        found = examined(tmp_path, url, stream, TOPIC, "secrets: {key_file: noise.key}")
        assert found.state == state

    def test_a_missing_key_of_users_is_found(self, tmp_path: Path, url: str) -> None:
        text = f"""
redis: {{url: "{url}"}}
streams:
  departures:
    source: {FILE}
    time: {{field: at, format: ms, bin: 10s, grace: 0s, epoch: 1m}}
    tree: {{release: causal}}
    privacy: {{epsilon: 1, unit: {{user: who, max_events: 2}}}}
"""
        (tmp_path / "app.yaml").write_text(text)
        keys = KeyFiles(tmp_path / "state" / "noise_keys")

        async def run() -> list[list[str]]:
            store = RedisStore(url)

            async def found() -> list[str]:
                settings = load(tmp_path / "app.yaml", {})
                return [one.state for one in await users_findings(settings, store, noise_keys(settings))]

            stores = Stores(store, None, "departures")  # type: ignore[arg-type]
            try:
                said = [await found()]  # nobody has counted
                assert not (tmp_path / "state").exists()
                await test_store.opened(stores)
                mark = mark_of_users(keys.user_key("departures"))
                change = of_users(0, 1, [(FIRST_BIN, 0, "ann")], key_mark=mark)
                assert await store.apply("departures", change) == Reply.DONE
                said.append(await found())
                (tmp_path / "state" / "noise_keys" / "users.key").unlink()
                said.append(await found())
                settings = load(tmp_path / "app.yaml", {})
                _, [_, check] = await read_copy(settings, url)  # a copy of this store
                assert (check.subject, check.passed) == ("departures", False)
                assert await holds_users_keys(settings, store, keys, "departures", FIRST_BIN + BINS)
                assert await store.end_at("departures", FIRST_BIN) == Reply.DONE
                return [*said, await found()]  # it counts nobody any more, so no worker needs its key
            finally:
                await store.close()

        assert asyncio.run(run()) == [["ok"], ["ok"], ["fail"], []]
        assert not (tmp_path / "state" / "noise_keys" / "users.key").exists()
