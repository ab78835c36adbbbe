"""Tables of the commands show every instant and number whole, however narrow the terminal is."""

from __future__ import annotations

import pytest

from stream_app.client import Series
from stream_app.shell.readers import _print_series

POINTS = 3


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_tables_cut_off_no_time_and_no_number(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    numbers = {name: [1234567.891] * POINTS for name in ("value", "stderr", "lower", "upper")}
    times = {"start": [1357000000.0 + 3600 * i for i in range(POINTS)], "end": [1357003600.0] * POINTS}
    said = {"confidence": 0.95, "seq": 3, "private": True, "downsampled": False, "note": "A note."}
    _print_series(Series.of({**numbers, **times, **said}), "table", None)
    printed = capsys.readouterr().out
    assert "…" not in printed
    lines = [line.split() for line in printed.splitlines() if line.split()[0].startswith("2013-01-01T")]
    ends = [f"2013-01-01T0{hour}:26:40Z" for hour in range(POINTS)]
    shown = [*["1,234,567.89"] * 3, "1,234,567.90"]  # the upper end is rounded outward
    assert lines == [[start, "2013-01-01T01:26:40Z", *shown] for start in ends]
