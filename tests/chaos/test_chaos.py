"""A short schedule on real processes, in which every kind of fault comes at least once."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.chaos.collector import closes_s, released_bins
from tests.chaos.found_terms import FOUND, LOG, FoundRecount, check_hidden
from tests.chaos.logs import LogFault, compare_logs, draw_log_steps
from tests.chaos.processes import POSTED, ROTATED
from tests.chaos.schedule import Fault, draw_steps
from tests.chaos.traffic import Visit
from tests.chaos.world import FAULTS_A_BREATH, World
from tests.e2e.log_traffic import Confirmed, LogTraffic
from tests.simulator.checks import Broken
from tests.stream_app.found_keys import APPROXIMATE, drawn_visits, replay, view_at, write_visits

SEED = 99  # chosen because its schedule contains each fault whose recovery is timed


@pytest.fixture
def _quiet() -> Iterator[None]:
    """Turn logging off: clients log every broker that the test stops."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("_quiet")
def test_twenty_faults_change_nothing(tmp_path: Path) -> None:
    told: list[str] = []
    try:
        # How long recoveries take on a shared machine says nothing about the service: make chaos asserts it.
        World(tmp_path, SEED, draw_steps(SEED, 20), told.append, recovery_s=math.inf).run()
    except Broken as broken:
        raise AssertionError(f"python -m tests.chaos --faults 20 --seed {SEED}\n{told}\n{broken}") from broken


def test_every_schedule_has_every_fault_and_a_seed_gives_it_again() -> None:
    for seed in range(20):
        steps = list(draw_steps(seed, 20))
        assert {step.fault for step in steps} == set(Fault)
        assert steps == list(draw_steps(seed, 20))


def test_the_seed_times_the_recovery_from_what_takes_longest() -> None:
    timed = {step.fault for step in list(draw_steps(SEED, 20))[FAULTS_A_BREATH - 1 :: FAULTS_A_BREATH]}
    assert timed >= {Fault.KILL_WORKER, Fault.KILL_REDIS, Fault.EMPTY_REDIS, Fault.WRONG_CLOCK}


def test_the_faults_of_logs_come_early_and_are_those_of_the_seed() -> None:
    for seed in range(20):
        first, again = (list(islice(draw_log_steps(seed), 20)) for _ in range(2))
        assert first == again
        assert {step.fault for step in first if step is not None} == set(LogFault)


def test_the_recount_of_logs_finds_an_event_too_many_and_one_too_few(tmp_path: Path) -> None:
    traffic = LogTraffic(tmp_path, "http://127.0.0.1:1", 1, 0.2)
    for bin, events, confirmed_s in ((70, 20, 0.0), (71, 30, 0.0), (71, 2, closes_s(71))):
        traffic.confirmed += [Confirmed("one", bin * 1_000, confirmed_s)] * events
    traffic.written_ms.append(70_000)

    def compare(posted: float, rotated: float) -> dict[str, int]:
        counted = {1: row(1, 0, 70, 20.0), 2: row(2, 0, 71, posted)}
        return compare_logs(traffic, {POSTED: counted, ROTATED: {1: row(1, 0, 70, rotated)}})

    assert compare(50.0, 1.0) == {POSTED: 50, ROTATED: 1}
    assert compare(52.0, 1.0) == {POSTED: 52, ROTATED: 1}
    for posted, rotated in ((49.0, 1.0), (53.0, 1.0), (50.0, 2.0), (50.0, 0.0)):
        with pytest.raises(Broken, match="differ"):
            compare(posted, rotated)


@pytest.mark.anyio
@pytest.mark.parametrize("privacy", [{}, APPROXIMATE], ids=["pure", "approximate"])
async def test_the_recount_of_found_terms_finds_what_is_wrong(
    tmp_path: Path, privacy: dict[str, float]
) -> None:
    drawn = drawn_visits(1)
    write_visits(tmp_path, drawn)
    replayed = await replay(tmp_path, time={"epoch": "12h"}, name=FOUND, privacy=privacy)
    rows = {int(seq): row for seq, row in await replayed.store.rows(FOUND, 0, 100)}
    start = (await view_at(replayed.reader, 24, FOUND)).span.start
    visits = [Visit(start + int(hour), "", "", None, "", page) for hour, _, page in drawn]
    await FoundRecount(visits, least=2).check(replayed.reader, rows)
    too_early = {seq: row.replace(b"keys", b"kept") for seq, row in rows.items()}
    for given, shown, words in (
        (visits[1:], rows, "names|as recounted"),
        (visits, too_early, "it must name"),
        (visits, {seq: row for seq, row in rows.items() if seq > 12}, "lists keys that no row has named"),
    ):
        with pytest.raises(Broken, match=words):
            await FoundRecount(given, least=2).check(replayed.reader, shown)
    without_keys = {"seq": 24, "start": [start], "end": [start + 24], "keys": []}
    with pytest.raises(Broken, match="the API has answered"):
        await FoundRecount(visits, least=2).check(replayed.reader, rows, [without_keys])


def test_a_hidden_term_is_found_wherever_it_is_written(tmp_path: Path) -> None:
    for name in (f"{LOG}/00.log", "state/letters", "worker.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("term-1-10" if name.startswith(LOG) else "term-1-1")
    check_hidden(["term-1-1"], [b"term-1-1"], tmp_path)
    for said in ([b'{"key":"term-1-10"}'], [b"", b"term-2-1,"]):
        with pytest.raises(Broken, match="no row has named"):
            check_hidden(["term-1-1"], said, tmp_path)
    (tmp_path / "state" / "letters").write_text("term-1-12")
    with pytest.raises(Broken, match="term-1-12"):
        check_hidden(["term-1-1"], [], tmp_path)


def row(seq: int, epoch: int, bin: int, running: float) -> bytes:
    """Return a row with the fields that the collector reads."""
    return f'{{"seq":{seq},"epoch":{epoch},"bin":{bin},"estimate":[{running}]}}'.encode()


def test_bins_are_differences_of_running_counts_anew_in_each_epoch() -> None:
    rows = {1: row(1, 0, 70, 5.0), 2: row(2, 0, 71, 5.0), 3: row(3, 1, 72, 4.0), 4: row(4, 1, 73, 10.0)}
    assert released_bins(rows) == {70: 5, 71: 0, 72: 4, 73: 6}
    with pytest.raises(Broken, match="row 4 is of bin 73, after bin 71"):
        released_bins({2: rows[2], 4: rows[4]})
