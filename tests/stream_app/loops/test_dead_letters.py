"""Dead letters are written while counting goes on. A refused record must not delay its bin's release."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from stream_app.core.incoming import Reason, Refusal
from stream_app.loops import dead_letters
from stream_app.loops.dead_letters import LettersBeside
from tests.simulator.loop import simulate
from tests.simulator.memory_sinks import MemoryDeadLetters
from tests.stream_app.declared import strategy_of
from tests.world import Struck, World, slow

ONE_LETTER = dead_letters.LETTER_BYTES + dead_letters.STREAM_BYTES + 10


def refusal(position: int) -> Refusal:
    """Return a refused record of ten bytes of its own."""
    return Refusal("p0", position, Reason.UNDECODABLE, bytes(bytearray(10)))


@pytest.mark.parametrize(("record", "stream"), [(b"{", None), (b'{"at": 0}', "visits")])
def test_a_refused_record_is_passed_before_its_letter_is_written(record: bytes, stream: str | None) -> None:
    with World(strategy_of()) as world:
        store = Struck(world.store)
        world.start(store=store, letters=Struck(world.letters, write=slow(4.5)))
        world.until(100.5)
        world.write(record)
        world.until(100.6)
        world.arrive(100.6)
        world.until(100.62)
        assert world.state().partitions["0"].position == 2
        assert world.letters.kept == []
        world.end()  # while the letter is being written
        assert world.letters.streams == [stream]
        assert [one.position for one in world.letters.kept] == [0]


def test_the_next_read_waits_while_letters_have_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "MOST_WAITING_BYTES", 1)
    with World(strategy_of()) as world:
        world.start(letters=Struck(world.letters, write=slow(4.5)))
        world.until(100.5)
        world.arrive(97)
        world.until(100.6)
        world.arrive(100.6)
        world.until(100.94)
        assert world.state().partitions["0"].position == 1
        world.until(101.2)
        assert world.state().partitions["0"].position == 2


class SlowLetters(MemoryDeadLetters):
    """Dead letters on a disk that takes ``takes_s`` seconds for each write."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_s = 0.0
        self.failures: list[Exception] = []

    async def write(
        self, refusals: Sequence[Refusal], streams: tuple[str | None, ...] = (None,)
    ) -> Sequence[int]:
        """Keep the refusals after that time."""
        await asyncio.sleep(self.takes_s)
        if self.failures:
            raise self.failures.pop()
        return await super().write(refusals, streams)


def test_reading_waits_for_room_and_letters_are_written_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "MOST_WAITING_BYTES", 3 * ONE_LETTER)

    async def run() -> tuple[list[float], list[int]]:
        disk = SlowLetters()
        disk.takes_s = 1
        beside = LettersBeside(disk)
        returned = []
        for position in range(6):
            await beside.room()
            beside.put([refusal(position)])
            returned.append(asyncio.get_running_loop().time())
        await beside.written()
        return returned, [position for *_, position in disk.kept]

    returned, kept = simulate(1, run())
    assert returned == [0, 0, 0, 1, 2, 3]
    assert kept == list(range(6))


def test_streams_that_refuse_the_same_records_wait_as_one_write() -> None:
    """A thousand streams over one topic refuse the same records, and each write takes its time."""

    asked = list[tuple[str | None, ...]]()

    class Noting(SlowLetters):
        async def write(
            self, refusals: Sequence[Refusal], streams: tuple[str | None, ...] = (None,)
        ) -> Sequence[int]:
            asked.append(streams)
            return await super().write(refusals, streams)

    async def run() -> tuple[float, list[tuple[str | None, int]]]:
        disk = Noting()
        disk.takes_s = 1
        beside = LettersBeside(disk)
        shared, others = [refusal(0), refusal(1)], [refusal(2)]
        for stream in ("visits", "sales", "orders"):
            beside.put(shared, stream)
            beside.put(others, stream)
            beside.put(shared, stream)
        await beside.written()
        return asyncio.get_running_loop().time(), [(stream, at) for stream, _, at in disk.kept]

    took_s, kept = simulate(1, run())
    assert took_s == 2
    assert asked == [("visits", "sales", "orders")] * 2
    assert sorted(kept) == [(stream, at) for stream in ("orders", "sales", "visits") for at in (0, 1, 2)]


def test_a_letter_that_is_not_written_is_written_again() -> None:
    async def run() -> int:
        disk = SlowLetters()
        disk.failures = [OSError("the disk is full")] * 2
        beside = LettersBeside(disk)
        beside.put([refusal(0)])
        await beside.written()
        return len(disk.kept)

    assert simulate(1, run()) == 1


def test_letters_that_cannot_be_written_are_lost_with_a_line_and_leave_their_room(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dead_letters, "MOST_WAITING_BYTES", ONE_LETTER)

    async def run() -> list[int]:
        disk = SlowLetters()
        disk.failures = [RuntimeError("can't start new thread")]
        beside = LettersBeside(disk)
        for position in range(3):
            await beside.room()
            beside.put([refusal(position)])
        await beside.written()
        return [position for *_, position in disk.kept]

    assert simulate(1, run()) == [1, 2]
    assert caplog.messages == ["dead letters: RuntimeError; records are refused without a letter"]


def test_a_large_record_that_a_thousand_streams_refuse_delays_no_read() -> None:
    async def run() -> float:
        disk = SlowLetters()
        disk.takes_s = 1
        beside = LettersBeside(disk)
        large = [Refusal("p0", 0, Reason.UNDECODABLE, bytes(1 << 20))]
        for stream in range(1_000):
            beside.put(large, f"s{stream}")
            await beside.room()
        return asyncio.get_running_loop().time()

    assert simulate(1, run()) == 0


def test_a_large_record_that_streams_refuse_beside_different_ones_takes_its_bytes_once() -> None:
    async def run() -> float:
        disk = SlowLetters()
        disk.takes_s = 1
        beside = LettersBeside(disk)
        record = bytes(1 << 20)
        for stream in range(1_000):
            own = [Refusal("p0", 0, Reason.UNDECODABLE, record), Refusal("p0", 1, Reason.LATE, b"x")]
            beside.put(own, f"s{stream}")
            await beside.room()
        at_s = asyncio.get_running_loop().time()
        await beside.written()
        assert (beside._bytes, beside._records) == (0, {})
        return at_s

    assert simulate(1, run()) == 0
