"""``stream-app watch`` says how a stream is; charts and tables fit every terminal."""

from __future__ import annotations

import io
import queue
from dataclasses import replace

import pytest
from rich.console import Console

from stream_app.client import Release, Series
from stream_app.client.answers import Summary
from stream_app.core.instants import parse_instant
from stream_app.shell.readers import print_series
from stream_app.shell.terminal import RunningChart, State
from stream_app.shell.watching import arrived, print_lines, state_of

LIVE = Summary(
    stream="clicks",
    source="file:clicks.ndjson",
    epsilon="1",
    bin="1 hour",
    timezone=None,
    start="2026-01-05T00:00:00Z",
    released_until="2026-01-05T09:00:00Z",
    seq=9,
    private=True,
    running=None,
    this_epoch=None,
    next_release="2026-01-05T10:01:00Z",
)
FIRST = replace(LIVE, seq=0, released_until=None)
REPLAY = replace(LIVE, next_release=None, ends="2026-01-05T10:00:00Z")
ENDED = replace(REPLAY, released_until="2026-01-05T10:00:00Z")


@pytest.mark.parametrize(
    ("summary", "now", "lost_s", "said"),
    [
        (LIVE, "10:00:30", None, "live next bin at 2026-01-05T10:01:00Z"),
        (LIVE, "10:01:04", None, "live next bin at 2026-01-05T10:01:00Z"),
        (LIVE, "10:01:06", None, "behind the next bin was due at 2026-01-05T10:01:00Z"),
        (FIRST, "10:00:30", None, "waiting for the first bin to close, at 2026-01-05T10:01:00Z"),
        (replace(FIRST, next_release=None), "10:00:30", None, "waiting for the first bin to close"),
        (REPLAY, "23:00:00", None, "replay until 2026-01-05T10:00:00Z"),
        (ENDED, "23:00:00", None, "complete no more bins will be released"),
        (LIVE, "10:00:30", 12.4, "lost http://there has not answered for 12 s; trying again"),
    ],
)
def test_state_of_a_stream_is_said(summary: Summary, now: str, lost_s: float | None, said: str) -> None:
    state = state_of(summary, parse_instant(f"2026-01-05T{now}Z"), "http://there", lost_s)
    assert f"{state.word} {state.said}" == said


def released(seq: int) -> Release:
    start, end = (
        f"2026-01-05T{seq // 60:02d}:{seq % 60:02d}:00Z",
        f"2026-01-05T{seq // 60:02d}:{seq % 60:02d}:59Z",
    )
    return Release(
        seq, start, end, 1_000.0 * seq, (1_000.0 * seq - 9, 1_000.0 * seq + 9), True, {"confidence": 0.95}
    )


def test_lines_have_the_decimals_that_their_error_supports(capsys: pytest.CaptureFixture[str]) -> None:
    one = released(1)
    fine = replace(one, seq=2, value=7.125, interval=(7.0249, 7.2251))
    exact = replace(one, seq=3, value=7.125, interval=None)
    print_lines(iter([one, fine, exact]), "count")
    values = [line.split("\t")[1:] for line in capsys.readouterr().out.splitlines()]
    assert values == [["1000.0", "991.0", "1009.0"], ["7.12", "7.02", "7.23"], ["7.12"]]


def printed(chart: RunningChart, columns: int, lines: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=columns, height=lines, force_terminal=True, color_system=None)
    console.print(chart)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_chart_fits_the_terminal_and_shows_the_last_releases(columns: int) -> None:
    state = State("live", "next bin at 2026-01-05T10:01:00Z", "green")
    chart = RunningChart("clicks", [released(n) for n in range(300)], None, 0, state, "events", "1 minute")
    lines = printed(chart, columns)
    assert lines[0].rstrip() == "clicks  299,000 events  (95 %: 298,991 to 299,009)"
    assert lines[1].rstrip() == "until 2026-01-05T04:59:59Z"
    assert lines[2].rstrip() == "live: next bin at 2026-01-05T10:01:00Z"
    assert max(map(len, lines)) <= columns
    assert sum(line.count("●") for line in lines[3:17]) == columns - 13
    assert "bins of 1 minute, from 2026-01-05T0" in " ".join(lines)


def test_chart_is_whole_on_a_low_terminal_and_before_the_first_release() -> None:
    assert len(printed(RunningChart("clicks", [released(n) for n in range(9)]), 80, lines=12)) < 12
    waiting = RunningChart("clicks", [], state=State("waiting", "for the first bin to close", "yellow"))
    assert [line.rstrip() for line in printed(waiting, 60)] == [
        "clicks",
        "waiting: for the first bin to close",
    ]


def test_failure_of_the_follower_is_raised_and_its_end_is_seen() -> None:
    arriving: queue.Queue[Release | Exception | None] = queue.Queue()
    arriving.put(released(1))
    arriving.put(None)
    kept: list[Release] = []
    assert not arrived(arriving, kept)
    assert [release.seq for release in kept] == [1]
    arriving.put(ValueError("refused"))
    with pytest.raises(ValueError, match="refused"):
        arrived(arriving, kept)


POINTS = 3


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_tables_cut_off_no_time_and_no_number(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    numbers = {name: [1234567.891] * POINTS for name in ("value", "stderr", "lower", "upper")}
    times = {"start": [1357000000.0 + 3600 * i for i in range(POINTS)], "end": [1357003600.0] * POINTS}
    said = {"confidence": 0.95, "seq": 3, "private": True, "downsampled": False, "note": "A note."}
    print_series(Series.of({**numbers, **times, **said}), "table", None)
    printed = capsys.readouterr().out
    assert "…" not in printed
    lines = [line.split() for line in printed.splitlines() if line.split()[0].startswith("2013-01-01T")]
    ends = [f"2013-01-01T0{hour}:26:40Z" for hour in range(POINTS)]
    shown = [*["1,234,567.89"] * 3, "1,234,567.90"]  # the upper end is rounded outward
    assert lines == [[start, "2013-01-01T01:26:40Z", *shown] for start in ends]
