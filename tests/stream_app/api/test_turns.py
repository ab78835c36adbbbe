"""However many requests one reader sends, another reader waits for only one of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from stream_app.api.admission import turns as turns_module
from stream_app.api.admission.hosts import Hosts
from stream_app.api.admission.turns import LongTurns, Places, TooManyError, Turnstile
from tests.patience import PATIENCE_S


def test_many_requests_of_one_reader_do_not_delay_another() -> None:
    async def run() -> list[str]:
        turnstile, order = Turnstile(lambda: True), []

        async def enter(reader: str) -> None:
            await turnstile.passed(reader)
            order.append(reader)

        crowd = [asyncio.create_task(enter("crowd")) for _ in range(50)]
        await asyncio.sleep(0)
        await asyncio.gather(enter("alone"), *crowd)
        return order

    order = asyncio.run(run())
    assert order.index("alone") <= 2
    assert order.count("crowd") == 50


@pytest.mark.parametrize(
    ("readers", "followed", "rests"),
    [
        (["one"], False, False),
        (["one"], True, True),
        (["one", "two"], False, True),
        (["one"] * 40 + ["two"], False, True),  # another reader asks less than a second apart
        (["one"] * 400 + ["two"], False, False),
    ],
)
def test_reader_who_is_alone_never_rests(readers: list[str], followed: bool, rests: bool) -> None:
    assert (_rested_s(400, 0.005, Turnstile(lambda: followed), readers) > 0.0) == rests


@pytest.mark.parametrize(
    ("requests", "each_s", "least_s", "most_s"),
    [
        (1, 0.02, 0.0, 0.0),
        (2, 0.02, 0.0, 0.0),  # a few answers in a row wait for nothing
        (20, 0.0004, 0.0, 0.0),
        (20, 0.02, 0.28, 0.4),  # many wait for as long as they take, but for the first 50 ms
        (100, 0.005, 0.38, 0.5),
        (10, 0.2, 0.4, 0.55),  # a request that takes long is followed by a short pause
    ],
)
def test_requests_use_half_of_the_time_and_a_little_ahead(
    requests: int, each_s: float, least_s: float, most_s: float
) -> None:
    assert least_s <= _rested_s(requests, each_s, Turnstile(lambda: True), ["one"]) <= most_s


def _rested_s(requests: int, each_s: float, turnstile: Turnstile, readers: list[str]) -> float:
    """Return for how long requests rested. Args: each_s, of a request; readers, who ask in turn."""

    class Clock(asyncio.SelectorEventLoop):
        """A loop whose time passes only while it sleeps, or a request works."""

        now_s = rested_s = 0.0

        def time(self) -> float:
            return self.now_s

        def call_later(  # type: ignore[override]
            self, delay: float, callback: Any, *given: Any, context: Any = None
        ) -> Any:
            self.now_s += delay
            self.rested_s += delay
            return self.call_soon(callback, *given, context=context)

    async def run(clock: Clock) -> None:
        for number in range(requests):
            await turnstile.passed(readers[number % len(readers)])
            clock.now_s += each_s

    with contextlib.closing(Clock()) as clock:
        clock.run_until_complete(run(clock))
        return clock.rested_s


async def test_cancelled_request_delays_nobody() -> None:
    turnstile = Turnstile(lambda: True)
    await turnstile.passed("a")
    waiting = [asyncio.create_task(turnstile.passed("a")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*waiting, return_exceptions=True)
        await turnstile.passed("a")


async def test_readers_take_turns_for_long_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "MOST_WAITING", 3)

    turns, order = LongTurns(together=2), []
    gate = asyncio.Event()

    async def work(reader: str) -> None:
        async with turns.of(reader):
            order.append(reader)
            await gate.wait()

    many = [asyncio.create_task(work("many")) for _ in range(4)]
    await asyncio.sleep(0)
    one = asyncio.create_task(work("one"))
    await asyncio.sleep(0)
    assert order == ["many", "one"]  # one request of each reader at once
    with pytest.raises(TooManyError, match="3 of your questions are waiting already"):
        await work("many")
    third = asyncio.create_task(work("third"))
    await asyncio.sleep(0)
    given_up = many.pop()
    given_up.cancel()
    gate.set()
    await asyncio.gather(one, third, *many)
    assert sorted(order) == ["many"] * 3 + ["one", "third"]
    assert order.index("third") <= 3


async def test_cancelled_request_frees_its_turn() -> None:
    turns = LongTurns(together=1)
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(3):
            async with turns.of("a"):
                waiting = asyncio.create_task(_hold(turns))
                await asyncio.sleep(0)
            waiting.cancel()  # it has just been granted its turn, but has not run yet
            await asyncio.gather(waiting, return_exceptions=True)
        async with turns.of("b"):
            pass


async def test_turn_cancelled_as_it_is_granted_is_given_back() -> None:
    turns = LongTurns(together=1)
    async with turns.of("a"):
        waiting = asyncio.create_task(_hold(turns))
        await asyncio.sleep(0)
        waiting.cancel()
    # The place became free after the waiter was cancelled, but before the waiter noticed.
    [outcome] = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError)
    async with asyncio.timeout(PATIENCE_S), turns.of("b"):
        pass


async def _hold(turns: LongTurns) -> None:
    async with turns.of("b"):
        await asyncio.sleep(3600)


def test_places_are_limited_in_total_and_per_reader() -> None:
    places = Places("connections", 3, 2, ("api.limits.connections", "api.limits.connections_per_address"))
    places.take("a")
    places.take("a")
    with pytest.raises(
        TooManyError, match=r"2 connections of yours .* \(api.limits.connections_per_address\)"
    ):
        places.take("a")
    places.take(None)  # the address of a proxy
    with pytest.raises(TooManyError, match=r"3 connections are open, the limit \(api.limits.connections\)"):
        places.take("b")
    places.give_back("a")
    places.take("b")
    assert places.held == 3


@pytest.mark.parametrize(
    ("hosts", "known", "unknown"),
    [
        (
            Hosts(),
            ["localhost:1", "127.0.0.1", "127.0.0.1:80", "[::1]:80"],
            ["evil.example", "10.0.0.7:1", ""],
        ),
        (
            Hosts(frozenset({"api"})),
            ["api", "API:8088", "api."],
            ["api.evil.example", "evil:8088", "a/b?c#d"],
        ),
        (
            Hosts(addresses=True),
            ["10.0.0.7:8088", "[2001:db8::1]"],
            ["evil.example", "10.0.0.7.evil.example"],
        ),
        (Hosts(any_name=True), ["counts.example.org"], []),
    ],
)
def test_only_known_host_names_are_accepted(hosts: Hosts, known: list[str], unknown: list[str]) -> None:
    assert [name for name in known if not hosts.know(name)] == []
    assert [name for name in unknown if hosts.know(name)] == []
