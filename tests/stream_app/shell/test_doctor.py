"""``stream-app doctor`` finds each fault, names its remedy, and finds nothing else."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis
from rich.console import Console

from deploy.ports import free_port
from stream_app.config import load
from stream_app.ports import ACCEPT_LOSS
from stream_app.shell.checks import everything as doctor
from stream_app.shell.checks import free_space as doctor_room
from stream_app.shell.checks.commands import show
from stream_app.shell.samples.findings import EXACT
from stream_app.state.alert_store import RedisAlertStore
from stream_app.state.keys import CLOCK_MARK
from stream_app.wiring.checks import Finding
from stream_app.wiring.storage import new_ledger
from tests.contracts.servers import server_paths
from tests.deployment.test_redis import deployed

CONFIGURATION = """
redis: {{url: "{redis}"{more_redis}}}
state: {{dir: ./state}}
api: {{port: {port}}}
{more}
streams:
  clicks:
    source: {{{source}}}
    time: {{field: at, format: ms, bin: 1m, grace: 5s, epoch: 1d}}
    privacy: {{epsilon: 1}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "clicks.ndjson").touch()
    return tmp_path


def examined(folder: Path, redis: str = "embedded:./redis", **written: object) -> dict[str, list[Finding]]:
    """Return the findings, by the key of the configuration that was checked."""
    plain = {"port": free_port(), "more": "", "more_redis": "", "source": "file: clicks.ndjson"}
    (folder / "app.yaml").write_text(CONFIGURATION.format(redis=redis, **plain | written))
    found: dict[str, list[Finding]] = {}
    for finding in asyncio.run(doctor.examine(load(folder / "app.yaml", {}))):
        found.setdefault(finding.what, []).append(finding)
    return found


def bad(found: dict[str, list[Finding]]) -> dict[str, str]:
    """Return the findings that an operator should act on."""
    acted_on = ("warn", "fail")
    return {what: f.state for what, findings in found.items() for f in findings if f.state in acted_on}


def test_doctor_finds_nothing_in_a_good_installation(folder: Path) -> None:
    found = examined(folder)
    assert bad(found) == {}
    assert {"streams.clicks.source.file", "state.dir", "redis.url", "api.port", "operator.port"} == set(found)


def test_doctor_finds_missing_files_of_ledger_and_secret_and_then_that_they_are_good(folder: Path) -> None:
    more = "ledger: {file: ledger.ndjson}\nsecrets: {key_file: noise.key}"
    assert bad(examined(folder, more=more)) == {"ledger": "fail", "secrets.key_file": "fail"}
    asyncio.run(new_ledger(load(folder / "app.yaml", {})))
    (folder / "noise.key").touch(mode=0o600)
    (folder / "noise.key").write_bytes(b"c2VjcmV0IHRoYXQgYWxsIHdvcmtlcnMgaGF2ZSBhcyBvbmU=")
    found = examined(folder, more=more)
    said = f"ledger.file: {folder}/ledger.ndjson holds 0 epoch(s)", f"{folder}/noise.key holds a secret"
    assert (found["ledger"][0].said, found["secrets.key_file"][0].said) == said
    assert bad(found) == {}


def test_doctor_finds_an_unwritable_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # root may write anywhere
    assert bad(examined(folder)) == {"state.dir": "fail", "redis.url": "fail"}


def test_doctor_finds_secrets_that_others_may_read(folder: Path) -> None:
    (folder / "state").mkdir(mode=0o755)
    found = examined(folder)
    assert bad(found) == {"state.dir": "warn"}
    assert found["state.dir"][0].said.endswith("chmod 700")


@pytest.mark.parametrize(("free_mib", "state"), [(100, "fail"), (1000, "warn"), (9000, "ok")])
def test_doctor_reports_free_disk_space(
    folder: Path, monkeypatch: pytest.MonkeyPatch, free_mib: int, state: str
) -> None:
    usage = shutil.disk_usage(folder)._replace(free=free_mib << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    found = examined(folder)
    assert set(bad(found).values()) == ({state} if state != "ok" else set())
    assert f"{free_mib:,} MiB" in found["state.dir"][1].said


@pytest.mark.redis
class TestOverAServer:
    def test_deployed_redis_is_good(self, folder: Path) -> None:
        with deployed(folder / "redis", server_paths()["bundled"]) as server:
            found = examined(folder, server.worker_url, more_redis=f', api_url: "{server.api_url}"')
        assert bad(found) == {}
        assert {"redis.url", "redis clock", "redis.api_url"} < set(found)

    def test_api_user_with_too_many_rights_is_found(self, folder: Path) -> None:
        with deployed(folder / "redis", server_paths()["bundled"]) as server:
            same = examined(folder, server.worker_url)
            other = examined(folder, server.worker_url, more_redis=f', api_url: "{server.url("operator")}"')
            nobody = server.api_url.replace(":", ":not-", 2).replace("redis:not-", "redis:", 1)
            wrong = examined(folder, server.worker_url, more_redis=f', api_url: "{nobody}"')
        assert bad(same) == {"redis.api_url": "warn"}
        assert bad(other) == {"redis.api_url": "fail"}
        assert "can read secret keys" in other["redis.api_url"][0].said
        assert bad(wrong) == {"redis.api_url": "fail"}
        assert "not-" not in wrong["redis.api_url"][0].said

    def test_rights_of_the_alerts_user_are_checked(self, folder: Path) -> None:
        rules = "alerts: {rules: {many: {when: count(clicks) > 1}}}"
        with deployed(folder / "redis", server_paths()["bundled"]) as server:
            users = {"alerts": "ok", "worker": "warn", "api": "fail", "operator": "fail"}
            found = {}
            for user in users:
                urls = f', api_url: "{server.api_url}", alerts_url: "{server.url(user)}"'
                [found[user]] = examined(folder, server.worker_url, more=rules, more_redis=urls)[
                    "redis.alerts_url"
                ]
        assert {user: finding.state for user, finding in found.items()} == users
        assert "can read secret keys" in found["operator"].said
        assert "this user has no permissions" in found["api"].said

    def test_a_refused_notification_and_a_host_without_its_format_are_found(self, folder: Path) -> None:
        hook = 'webhooks: ["https://hooks.slack.com/services/secret"]'
        rules = f"alerts: {{rules: {{many: {{when: count(clicks) > 1}}}}, {hook}}}"
        with deployed(folder / "redis", server_paths()["bundled"]) as server:
            store = RedisAlertStore(server.alerts_url)

            async def refuse() -> None:
                await store.acknowledge("webhook 1234", "1-0", "many", "webhooks[0] (status 400)")
                await store.close()

            asyncio.run(refuse())
            urls = f', api_url: "{server.api_url}", alerts_url: "{server.alerts_url}"'
            all_found = examined(folder, server.worker_url, more=rules, more_redis=urls)
            found = [*all_found["alerts.webhooks[0]"], *all_found["alerts"]]
        assert [finding.state for finding in found] == ["warn", "warn"]
        assert "write {url: ..., format: slack}" in found[0].said
        assert "the last notification of many was refused by webhooks[0] (status 400)" in found[1].said
        assert "secret" not in str(found)

    @pytest.mark.parametrize(
        ("own_ahead_s", "noted_ahead_s", "state", "said"),
        [
            (0, 0, "ok", "this machine's"),
            (2, 0, "warn", "run an NTP client on both"),
            (-8, 0, "fail", "8 s ahead of this worker's (redis.largest_clock_skew: 5 s); nothing is closed"),
            (3_600, 0, "fail", "3,600 s behind this worker's"),
            (0, 3_600, "fail", "if that time was wrong, delete the note (docs/runbook.md,"),
            (0, 10**13, "fail", "redis has noted a time after the year 9999"),
        ],
    )
    def test_wrong_redis_clock_is_found(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        own_ahead_s: int,
        noted_ahead_s: int,
        state: str,
        said: str,
    ) -> None:
        own = SimpleNamespace(time_ns=lambda: time.time_ns() + own_ahead_s * 10**9)
        monkeypatch.setattr("stream_app.loops.clocks.time", own)
        with deployed(folder / "redis", server_paths()["bundled"]) as server:
            if noted_ahead_s:
                noted_us = time.time_ns() // 1_000 + noted_ahead_s * 10**6
                with redis.Redis.from_url(server.url("operator")) as client:
                    client.set(CLOCK_MARK, str(noted_us))
            api_url = f', api_url: "{server.api_url}"'
            [found] = examined(folder, server.worker_url, more_redis=api_url)["redis clock"]
            assert (found.state, said in found.said) == (state, True), found.said

    def test_memory_and_disk_of_redis_are_looked_at(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with deployed(folder / "redis", server_paths()["bundled"]) as server:
            api_url = f', api_url: "{server.api_url}"'

            def found() -> dict[str, list[Finding]]:
                return examined(folder, server.worker_url, more_redis=api_url)

            good = found()
            assert f"127.0.0.1:{server.port} uses " in good["redis memory"][0].said
            assert str(folder / "redis" / "data") in good["redis disk"][0].said
            with redis.Redis.from_url(server.url("operator"), protocol=2) as operator:
                used = operator.info("memory")["used_memory"]
                for share, state in ((0.85, "warn"), (0.97, "fail")):
                    operator.config_set("maxmemory", int(used / share))
                    [memory] = found()["redis memory"]
                    assert (memory.state, "noeviction" in memory.said) == (state, True), memory.said
                operator.config_set("maxmemory", 0)
            monkeypatch.setattr(doctor_room, "FRAGMENTED", 0.001)
            monkeypatch.setattr(doctor_room, "_SMALL_BYTES", 0)
            assert bad(broken := found()) == {"redis memory": "warn"}
            assert "fragmented" in broken["redis memory"][0].said
            usage = shutil.disk_usage(folder)._replace(free=100 << 20)
            monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
            assert bad(found())["redis disk"] == "fail"

    def test_store_that_may_lose_releases_is_found(self, folder: Path) -> None:
        port = free_port()
        options = ["--port", str(port), "--save", "", "--bind", "127.0.0.1"]
        command = [str(server_paths()["bundled"]), *options]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder)
        try:
            url, accept = f"redis://127.0.0.1:{port}/0", f', accept: "{ACCEPT_LOSS}"'
            while bad(found := examined(folder, url)).get("redis.url") == "fail":
                if "appendonly" in found["redis.url"][0].said:
                    break
            assert "set appendonly yes" in found["redis.url"][0].said
            accepted = bad(examined(folder, url, more_redis=accept))
            assert accepted == {"redis.accept": "warn", "redis.api_url": "warn"}
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("exact", [True, False])
def test_findings_are_shown_as_lines_or_a_table_which_say_if_numbers_are_private(exact: bool) -> None:
    findings = [Finding("api.port", "ok", "is [free]", exact=exact), Finding("redis.url", "fail", "start it")]
    lines, screen = io.StringIO(), io.StringIO()
    show(findings, Console(file=lines))
    note = f"note {EXACT}\n" if exact else ""
    assert lines.getvalue() == f"ok   api.port: is [free]\nfail redis.url: start it\n{note}"
    show(findings, Console(file=screen, force_terminal=True, width=80))
    shown = screen.getvalue()
    assert ("is [free]" in shown, "\x1b[" in shown, "exact and private" in shown) == (True, True, exact)
    assert max(map(len, shown.splitlines())) <= 100  # 80 columns and codes of colours


@pytest.mark.parametrize(
    ("numbers", "is_warned"), [(("9", "10"), False), (("09a", "10a"), False), (("9a", "10a"), True)]
)
def test_numbers_of_unequal_length_in_a_list_are_found(
    folder: Path, numbers: tuple[str, str], is_warned: bool
) -> None:
    for number in numbers:  # two files with the same records would be copies
        (folder / f"clicks-{number}.ndjson").write_text(f'{{"at": {number.rstrip("a")}}}\n')
    found = examined(folder, source="file: clicks-*.ndjson")["streams.clicks.source.file"]
    warned = [one.said for one in found if one.state == "warn"]
    said = "clicks-10a.ndjson is read before clicks-9a.ndjson, by the"
    assert [line.startswith(said) for line in warned] == [True] * is_warned


@pytest.mark.parametrize(("free_mib", "state"), [(9_700, "warn"), (9_900, "ok")])
def test_a_spool_needs_a_free_port_and_room_but_no_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, free_mib: int, state: str
) -> None:
    for name in ("spool", "spool/clicks"):
        (folder / name).mkdir(mode=0o700)
    (folder / "spool/clicks" / f"{0:020}.ndjson").write_bytes(b"x" * (1 << 20))
    usage = shutil.disk_usage(folder)._replace(free=free_mib << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    found = examined(folder, source="http: clicks", more=f"ingest: {{port: {free_port()}}}")
    assert [found[f"ingest.{key}"][0].state for key in ("port", "dir")] == ["ok", "ok"]
    assert "streams.clicks.source.file" not in found
    [room] = found["ingest.max_size"]
    assert (room.state, "another 9,535 MiB" in room.said) == (state, True), room.said
