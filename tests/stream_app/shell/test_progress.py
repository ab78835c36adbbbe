"""The terminal shows values of released rows only, also if a setting was changed since."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from stream_app.config import load_text
from stream_app.shell.progress import (
    BinRate,
    PlainReport,
    StreamProgress,
    TerminalReport,
    first_lines,
    progress_of,
)
from tests.models.memory import MemoryStore
from tests.stream_app.published import FIRST_BIN, HOUR_US, Published

ROW = {
    "seq": 3,
    "stream": "departures",
    "end": "2013-01-01T08:00:00Z",
    "estimate": [41.6],
    "interval": [[30.0, 53.0]],
    "confidence": 0.95,
    "private": True,
}
END_US = 1_357_027_200_000_000  # 2013-01-01T08:00:00Z


def test_a_row_becomes_a_line():
    progress = StreamProgress.of_row(ROW, of_bins=8_760, to_us=END_US + 1)
    assert progress.describe() == (
        "departures: 3 of 8,760 bins closed, released until 2013-01-01T08:00:00Z, count 42 (95 %: 30 to 53)"
    )
    assert not progress.complete
    assert StreamProgress.of_row(ROW, of_bins=3, to_us=END_US).complete
    assert not StreamProgress.of_row(ROW, of_bins=None, to_us=None).complete


def test_a_line_says_since_when_it_counts():
    progress = StreamProgress.of_row(ROW, None, None, since_us=END_US - 7_200_000_000)
    assert "count since 2013-01-01T06:00:00Z: 42 (95 %" in progress.describe()


def test_a_line_of_a_later_epoch_says_that_it_counts_no_earlier_ones():
    progress = StreamProgress.of_row(ROW | {"epoch": 6}, None, None, since_us=END_US - 7_200_000_000)
    assert "count in this epoch, since 2013-01-01T06:00:00Z: 42 (95 %" in progress.describe()
    complete = StreamProgress.of_row(ROW | {"epoch": 6}, None, END_US)
    assert complete.describe().endswith("; the page counts all epochs")


def test_a_line_of_a_later_generation_names_it_and_counts_no_earlier_ones():
    row = ROW | {"stream": "departures@2", "epoch": 0}
    progress = StreamProgress.of_row(row, None, None, since_us=END_US - 7_200_000_000)
    assert progress.describe() == (
        "departures, generation 2: 3 bins closed, released until 2013-01-01T08:00:00Z, "
        "count in this epoch, since 2013-01-01T06:00:00Z: 42 (95 %: 30 to 53)"
    )


def test_line_of_a_row_without_privacy_says_so():
    assert StreamProgress.of_row(ROW | {"private": False}, None, None).describe().endswith("NOT PRIVATE")


def test_plain_lines_come_once_per_change_and_at_the_end(capsys):
    report = PlainReport()
    first, last = (StreamProgress.of_row(ROW | {"seq": seq}, 9, None) for seq in (3, 4))
    for progress in (first, first, last, last):
        report.show([progress])
    assert capsys.readouterr().out == first.describe() + "\n"
    report.close()
    report.close()
    assert capsys.readouterr().out == last.describe() + "\n"


def test_completed_replay_is_printed_at_once(capsys):
    report = PlainReport()
    report.show([StreamProgress.of_row(ROW | {"seq": 2}, 3, END_US + 1)])
    report.show([StreamProgress.of_row(ROW, 3, END_US)])
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_terminal_shows_count_interval_pace_and_end():
    screen = io.StringIO()
    report = TerminalReport(Console(file=screen, force_terminal=True, width=160, color_system=None))
    report.say("[not markup]")
    report.show([StreamProgress("waiting", 0, None), StreamProgress.of_row(ROW, 8_760, END_US)])
    report.close()
    text = screen.getvalue()
    for shown in (
        "[not markup]",
        "waiting for the first bin",
        "3/8,760 bins",
        "count 42",
        "30 to 53",
        "complete",
    ):
        assert shown in text


def test_the_rate_is_over_the_last_seconds_only():
    rate = BinRate()
    assert rate.add(0, 100.0) == 0
    assert rate.add(10, 101.0) == 10
    assert rate.add(10, 120.0) == 0
    assert rate.add(14, 122.0) == 2


BINS = 64


def configured(bin_length: str, epoch: str) -> str:
    time = {"field": "scheduled", "format": "iso8601", "grace": "0s", "bin": bin_length, "epoch": epoch}
    stream = {"source": {"file": "flights.ndjson"}, "time": time, "privacy": {"epsilon": 1}}
    return json.dumps({"streams": {"departures": stream}})


@pytest.mark.parametrize(
    ("bin_length", "epoch"), [("1h", "64h"), ("30m", "32h"), ("1d", "64d"), ("30d", "360d")]
)
def test_progress_is_of_the_bins_that_the_stream_began_with(bin_length: str, epoch: str) -> None:
    async def lines() -> tuple[list[str], str]:
        to_us = (FIRST_BIN + BINS) * HOUR_US
        published = Published(MemoryStore(), epoch_bins=BINS, replay=(FIRST_BIN * HOUR_US, to_us))
        await published.open()
        await published.close([100] * 41)
        reader = published.store.reader()
        text = configured(bin_length, epoch)
        settings = load_text(text, Path("app.yaml"), {})
        first = await first_lines(settings, reader, serves=False)
        return first, (await progress_of(settings.streams[0], reader)).describe()

    first, line = asyncio.run(lines())
    assert first == [
        "departures: going on from 2013-01-02T17:00:00Z; nothing is measured again",
        f"refused records are listed with their reasons below {Path.cwd() / 'state'}, in dead_letters",
    ]
    assert line.startswith("departures: 41 of 64 bins closed, released until 2013-01-02T17:00:00Z, ")
    assert "count since 2013-01-01T00:00:00Z: " in line
