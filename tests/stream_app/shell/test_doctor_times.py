"""``doctor`` and ``replay`` find times that are read in the wrong unit, and name the likely one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from stream_app.wiring.checks import Finding
from tests.stream_app.shell.sampled import configured, examined

BEGIN_S = 1_712_345_678
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def written(unit: str, begin_s: int = BEGIN_S) -> list[object]:
    """Return the times of some events in a unit."""
    if unit == "iso8601":
        return [datetime.fromtimestamp(begin_s + n, UTC).isoformat() for n in range(40)]
    return [(begin_s + n) * TICKS[unit] for n in range(40)]


def found_in(
    folder: Path, times: list[object], format: str, *, form: str = "ndjson", replay: str = ""
) -> dict[str, Finding]:
    """Return the last finding about each key of the stream."""
    events = ["at", *map(str, times)] if form == "csv" else [{"at": at} for at in times]
    time = f"format: {format}, bin: 10s, grace: 1s, epoch: 1d"
    config = configured(folder, events, time=time, source=replay, file=f"clicks.{form}")
    return {what: found[-1] for what, found in examined(config).items()}


@pytest.mark.parametrize("declared", ["s", "ms", "us", "ns", "iso8601"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "iso8601"])
@pytest.mark.parametrize("form", ["ndjson", "csv"])
def test_the_likely_unit_is_named(tmp_path: Path, unit: str, declared: str, form: str) -> None:
    found = found_in(tmp_path, written(unit), declared, form=form)
    if unit == declared:
        assert "time.format" not in found
        assert found["source.file"].state == "ok"
    else:
        assert found["time.format"].state == "fail"
        assert found["time.format"].said.endswith(f"when read as {unit}; did you mean {unit}?")
        assert str(BEGIN_S)[2:] not in found["time.format"].said  # no event's own time


def test_what_both_units_make_of_the_times_is_said(tmp_path: Path) -> None:
    said = found_in(tmp_path, written("s"), "ms")["time.format"].said
    assert said.startswith(
        "its times have 10 digits: they are of 1970-01 when read as ms, and of 2024-04 when read as s"
    )


def test_events_of_long_ago_are_no_mistake(tmp_path: Path) -> None:
    for begin_s in (-86_400, 40_000_000, 500_000_000):
        assert "time.format" not in found_in(tmp_path, written("s", begin_s), "s")


def test_a_replay_of_the_past_is_no_mistake(tmp_path: Path) -> None:
    replay = ", replay: {from: 1970-01-20T00:00:00Z, to: 1970-01-21T00:00:00Z, speed: max}"
    found = found_in(tmp_path, written("s"), "ms", replay=replay)
    assert not {"time.format", "source.replay"} & found.keys()


def test_a_replay_of_another_time_is_found(tmp_path: Path) -> None:
    replay = ", replay: {from: 2013-01-01T00:00:00Z, to: 2013-01-02T00:00:00Z, speed: max}"
    found = found_in(tmp_path, written("s"), "s", replay=replay)["source.replay"]
    assert (found.state, "2024-04-05: correct from and to" in found.said) == ("warn", True)


def test_a_few_damaged_times_are_no_other_unit(tmp_path: Path) -> None:
    found = found_in(tmp_path, [*written("s"), "noon"], "s")
    assert "time.format" not in found
    assert found["source.file"].state == "warn"
    assert "bad_time: their time cannot be read; correct time.field" in found["source.file"].said
