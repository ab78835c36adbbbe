"""A process that meets a full disk names its directory, loses nothing confirmed, and goes on with room."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner, Result

from stream_app.core.incoming import Reason, Refusal
from stream_app.core.records import LedgerEntry, WitnessRow
from stream_app.durable import NoRoomError, write_durably
from stream_app.monitoring.logs import handler
from stream_app.ports import OperatorError
from stream_app.receiving.group_commit import GroupCommit
from stream_app.receiving.known_keys import KnownKeys
from stream_app.receiving.spool_writer import Incoming, SpoolWriter
from stream_app.shell.commands import main
from stream_app.shell.processes import CRASHED, exit_status
from stream_app.sinks.dead_letter_file import DeadLetterFiles, Keeping
from stream_app.sinks.ledger_file import HEADER, LedgerFile
from stream_app.sinks.witness_file import WitnessFile
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.safety import Unreachable, check_safety
from stream_app.stored_format import mark_directory
from stream_app.vault.key_files import KeyFiles
from stream_app.wiring import redis_server
from tests.full_disk import Disk, small_disk
from tests.patience import ended, eventually

CONFIGURATION = """
ledger: {{file: {ledger}}}
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: s, bin: 1h, grace: 0s, epoch: 1d}}
    privacy: {{epsilon: 1}}
"""
ROOM = "no room is left on its disk (No space left on device); make room there"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk") as made:
        yield made


def refused(disk: Disk, work: Callable[[], Awaitable[object]], directory: Path) -> None:
    """Check that work says that the disk of a directory is full, and that it succeeds when there is room."""
    disk.fill()
    with pytest.raises(NoRoomError) as failure:
        asyncio.run(_awaited(work))
    assert str(failure.value) == f"{directory}: {ROOM}"
    disk.make_room()
    asyncio.run(_awaited(work))


async def _awaited(work: Callable[[], Awaitable[object]]) -> object:
    return await work()


def test_the_witness(disk: Disk) -> None:
    directory = disk.directory / "witness"
    fields = {"seq": 1, "stream": "clicks", "epoch": 0, "bin": 1, "start": "", "strategy": "", "prev": ""}
    row = WitnessRow(1, json.dumps(fields).encode() + b" " * 100_000, b"")

    async def write() -> None:
        witness = WitnessFile(directory)
        try:
            await witness.append("clicks", [row])
        finally:
            witness.close()

    asyncio.run(_opened(directory))
    refused(disk, write, directory)

    async def rows() -> list[WitnessRow]:
        return await WitnessFile(directory).rows("clicks", 0)

    assert asyncio.run(rows()) == [row]


async def _opened(directory: Path) -> None:
    witness = WitnessFile(directory)
    await witness.rows("clicks", 0)
    witness.close()


def test_the_keys_of_stored_noise(disk: Disk) -> None:
    keys = KeyFiles(disk.directory / "noise_keys")
    asyncio.run(keys.create("clicks", 0, "a"))
    refused(disk, lambda: keys.create("clicks", 1, "b"), disk.directory / "noise_keys" / "clicks")


def test_any_file_that_is_written_whole(disk: Disk) -> None:
    async def write() -> None:
        write_durably(disk.directory / "one" / "file", [b"x" * 100_000])

    (disk.directory / "one").mkdir()
    refused(disk, write, disk.directory / "one")


def test_the_ledger(disk: Disk) -> None:
    ledger = LedgerFile.create(disk.directory / "ledger" / "ledger.ndjson")
    entry = LedgerEntry("people", "clicks", 0, 10, 20, "1/3", "event", "hash" * 20_000)
    refused(disk, lambda: ledger.append([entry]), disk.directory / "ledger")


def test_new_ledger_leaves_no_file_and_can_be_given_again(disk: Disk) -> None:
    place = disk.directory / "ledger" / "ledger.ndjson"
    config = disk.directory.parent / "app.yaml"
    config.write_text(CONFIGURATION.format(ledger=place))
    place.parent.mkdir(mode=0o700)

    def given() -> Result:
        return CliRunner().invoke(main, ["new-ledger", "--config", str(config)])

    disk.fill()
    refused = given()
    assert (refused.exit_code, refused.output) == (2, f"stream-app: ledger.file: {place.parent}: {ROOM}\n")
    assert not place.exists()
    disk.make_room()
    assert given().exit_code == 0
    assert place.read_bytes() == HEADER + b"\n"
    assert "is there already" in given().output


def test_a_command_ends_with_the_line_and_may_be_started_again(
    disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = KeyFiles(disk.directory / "noise_keys")
    asyncio.run(keys.create("clicks", 0, "a"))

    async def added() -> None:
        await keys.create("clicks", 1, "b")

    disk.fill()
    assert exit_status(lambda: asyncio.run(added())) == CRASHED
    assert capsys.readouterr().err == f"stream-app: {disk.directory / 'noise_keys' / 'clicks'}: {ROOM}\n"


def test_a_log_line_of_several_failures_says_it(disk: Disk) -> None:
    written = io.StringIO()
    logger = logging.Logger("stream_app.loops")
    logger.addHandler(handler("worker", written))
    disk.fill()
    try:
        write_durably(disk.directory / "file", [b"x" * 100_000])
    except NoRoomError as full:
        logger.error("a stream stopped", exc_info=ExceptionGroup("several", [full]))
    errors = json.loads(written.getvalue())["errors"]
    assert [error.get("says") for error in errors] == [None, f"{disk.directory}: {ROOM}"]


def test_the_number_of_the_format(disk: Disk) -> None:
    disk.fill()
    with pytest.raises(OperatorError) as failure:
        mark_directory("state.dir", disk.directory)
    assert str(failure.value) == f"state.dir: {disk.directory}: {ROOM}"
    disk.make_room()
    mark_directory("state.dir", disk.directory)


def test_dead_letters_are_lost_with_a_line_and_counting_goes_on(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    directory = disk.directory / "dead_letters"
    files = DeadLetterFiles(directory, Keeping(60, 10**6, content=True))

    def written(position: int) -> int:
        refusal = Refusal("0", position, Reason.LATE, b"x" * 50_000)
        return sum(asyncio.run(files.write([refusal], ("clicks",))))

    assert written(0) == 1
    disk.fill()
    with caplog.at_level(logging.WARNING):
        assert written(1) == 0
    assert caplog.messages == [f"dead letters: {directory}: {ROOM}; records are refused without a letter"]
    disk.make_room()
    assert written(2) == 1
    files.close()


def test_a_spool(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    writer = SpoolWriter(disk.directory / "spool", 10**9, KnownKeys(0, 1))

    async def stored(data: bytes) -> None:
        commits = GroupCommit(writer)
        running = asyncio.create_task(commits.run())
        try:
            await commits.store("", Incoming(data))
        finally:
            await ended(running)

    asyncio.run(stored(b"{}\n"))
    disk.fill()
    with caplog.at_level(logging.ERROR), pytest.raises(OSError, match="No space left"):
        asyncio.run(stored(b"{}\n" * 100_000))
    said = f"{writer.directory}: events cannot be stored (No space left on device); trying again"
    assert said in caplog.messages
    disk.make_room()
    asyncio.run(stored(b"{}\n"))
    writer.close()


async def _started_again(
    server: EmbeddedRedis, disk: Disk, full: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The service says the same line while there is no room, and starts the server again afterwards."""
    keeping = asyncio.create_task(redis_server._keep_running(server))
    await asyncio.sleep(3 * redis_server.LOOK_EVERY_S)
    assert {record.getMessage() for record in caplog.records} == {
        f"redis.url: {full}; the embedded Redis has ended and starts again once there is room"
    }
    disk.make_room()
    while not server.running:
        await asyncio.sleep(0.05)
        assert not keeping.done(), keeping.exception()
    keeping.cancel()


@pytest.mark.redis
def test_an_embedded_redis(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    """It ends itself when it cannot write what it has acknowledged to nobody."""
    server = EmbeddedRedis(disk.directory / "redis")
    server.start()
    try:
        with redis.Redis.from_url(server.operator_url, protocol=2) as client:
            client.set("before", "1")
            assert server.room_to_make() == ""
            disk.fill()
            if disk.real:
                with pytest.raises(redis.exceptions.RedisError):
                    client.set("lost", b"x" * 100_000)
            else:
                assert server.process is not None
                server.process.kill()
            eventually(lambda: not server.running, "the server has ended")
        full = f"{disk.directory / 'redis'}: no room is left on its disk; make room there"
        assert server.room_to_make() == full
        with pytest.raises(Unreachable, match=re.escape(f": {full}")):
            asyncio.run(check_safety(server.worker_url))
        asyncio.run(_started_again(server, disk, full, caplog))
        with redis.Redis.from_url(server.operator_url, protocol=2) as client:
            assert client.get("before") == b"1"
            assert client.get("lost") is None
    finally:
        server.stop()
