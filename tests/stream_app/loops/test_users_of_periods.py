"""With a user's hour as the unit, all events of a user in an hour change only so many counts of it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from stream_app.core.counting.bounding import PerUser
from stream_app.core.ledger import statement
from stream_app.core.records import EpochRecord, WitnessRow
from stream_app.core.releases.restored import epochs_of
from stream_app.core.strategy import Strategy
from tests.models.memory import MemoryStore
from tests.stream_app.declared import BIN_US, SOURCE, STREAM, changed, strategy_of
from tests.stream_app.loops.test_users import Event, binned, drawn
from tests.stream_app.one_source import OneSource

MOST, PERIOD_BINS = 2, 3  # an epoch has six bins, and the stream begins at bin 100, the second of its hour


@pytest.fixture(autouse=True)
def _short_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an hour have three bins of ten seconds."""
    monkeypatch.setattr("stream_app.core.declaration.PERIODS", {"1h": PERIOD_BINS * BIN_US})
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)


def hourly() -> Strategy:
    """Return a strategy whose unit is a user's hour."""
    plain = strategy_of(late="drop")
    unit = PerUser("user", MOST, per="1h")
    return Strategy(plain.stream, changed(plain.declared, privacy={"unit": unit}), plain.kind)


@pytest.mark.parametrize("seed", range(4))
def test_an_hour_of_a_user_changes_so_many_counts_of_this_hour_alone(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    hour = range(PERIOD_BINS * rng.randrange(34, 37), 1000)[:PERIOD_BINS]
    on_time: list[Event] = [(bin + rng.random(), bin, "ann") for bin in hour for _ in range(2)]
    events = sorted([*drawn(rng), *on_time], key=lambda event: event[1])
    rest = [event for event in events if event[2] != "ann" or int(event[0]) not in hour]
    counts = []
    for name, log in (("all", events), ("without", rest)):
        (tmp_path / name).mkdir()
        with closing(OneSource(tmp_path / name, hourly())) as one:
            counts.append(asyncio.run(binned(one, log, rng.choice([1, 2, 50]))))
    moved = {bin: counts[0][bin] - counts[1][bin] for bin in counts[0] if counts[0][bin] != counts[1][bin]}
    assert set(moved) <= set(hour)
    assert 0 < sum(moved.values()) <= MOST
    assert min(moved.values()) > 0


def test_caps_begin_anew_in_every_hour_and_epochs_end_with_one(tmp_path: Path) -> None:
    events: list[Event] = [(bin, bin, "ann") for bin in range(100, 112) for _ in range(3)]
    with closing(OneSource(tmp_path, hourly())) as one:
        counts = asyncio.run(binned(one, events))
        assert counts == Counter(dict.fromkeys([100, 102, 105, 108, 111], MOST))
        store = one.store
        assert isinstance(store, MemoryStore)
        epochs = [(epoch.first_bin, epoch.bins) for epoch in store._streams[STREAM].epochs]
        assert epochs == [(100, 5), (105, 6), (111, 6)]
        assert set(store._streams[STREAM].users) <= {113}  # users of earlier hours are forgotten
        stated = statement(SOURCE, asyncio.run(store.ledger(SOURCE)))
    assert (stated.unit, stated.epsilon) == ("user per 1h", hourly().declared.privacy.epsilon)
    assert [entry.periods for entry in asyncio.run(store.ledger(SOURCE))] == [2, 2, 2]


def test_epochs_are_put_back_as_they_began() -> None:
    rows = [
        WitnessRow(seq, f'{{"epoch": {epoch}, "bin": {bin}, "strategy": "h"}}'.encode())
        for seq, (epoch, bin) in enumerate([(0, 100), (0, 101), (1, 103), (1, 104), (2, 108)], start=1)
    ]
    assert epochs_of({"h": hourly()}, rows) == [
        EpochRecord(0, 100, 5, 1, "h"),
        EpochRecord(1, 103, 5, 3, "h"),
        EpochRecord(2, 108, 6, 5, "h"),
    ]
