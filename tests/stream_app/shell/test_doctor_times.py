"""``doctor`` and ``replay`` find times that are read in the wrong unit, and name the likely one."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stream_app.config import load
from stream_app.shell.doctor.checks import examine
from stream_app.wiring.checks import Finding

BEGIN_S = 1_712_345_678
STREAM = """
redis: {{url: "embedded:./redis"}}
state: {{dir: ./state}}
streams:
  clicks:
    source: {{file: clicks.{form}{replay}}}
    time: {{field: at, format: {format}, bin: 10s, grace: 1s, epoch: 1d}}
    privacy: {{epsilon: 1}}
"""
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def written(unit: str, begin_s: int = BEGIN_S) -> list[object]:
    """Return the times of some events in a unit."""
    if unit == "iso8601":
        return [datetime.fromtimestamp(begin_s + n, UTC).isoformat() for n in range(40)]
    return [(begin_s + n) * TICKS[unit] for n in range(40)]


def examined(
    folder: Path, times: list[object], format: str, *, form: str = "ndjson", replay: str = ""
) -> dict[str, Finding]:
    """Return the last finding about each key of the stream."""
    lines = ["at", *map(str, times)] if form == "csv" else [json.dumps({"at": at}) for at in times]
    (folder / f"clicks.{form}").write_text("".join(f"{line}\n" for line in lines))
    (folder / "app.yaml").write_text(STREAM.format(form=form, format=format, replay=replay))
    found = asyncio.run(examine(load(folder / "app.yaml", {})))
    return {one.what.removeprefix("streams.clicks."): one for one in found}


@pytest.mark.parametrize("declared", ["s", "ms", "us", "ns", "iso8601"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "iso8601"])
@pytest.mark.parametrize("form", ["ndjson", "csv"])
def test_the_likely_unit_is_named(tmp_path: Path, unit: str, declared: str, form: str) -> None:
    found = examined(tmp_path, written(unit), declared, form=form)
    if unit == declared:
        assert "time.format" not in found
        assert found["source.file"].state == "ok"
    else:
        assert found["time.format"].state == "fail"
        assert found["time.format"].said.endswith(f"when read as {unit}; did you mean {unit}?")
        assert str(BEGIN_S)[2:] not in found["time.format"].said  # no event's own time


def test_what_both_units_make_of_the_times_is_said(tmp_path: Path) -> None:
    said = examined(tmp_path, written("s"), "ms")["time.format"].said
    assert said.startswith(
        "its times have 10 digits: they are of 1970-01 when read as ms, and of 2024-04 when read as s"
    )


def test_events_of_long_ago_are_no_mistake(tmp_path: Path) -> None:
    for begin_s in (-86_400, 40_000_000, 500_000_000):
        assert "time.format" not in examined(tmp_path, written("s", begin_s), "s")


def test_a_replay_of_the_past_is_no_mistake(tmp_path: Path) -> None:
    replay = ", replay: {from: 1970-01-20T00:00:00Z, to: 1970-01-21T00:00:00Z, speed: max}"
    found = examined(tmp_path, written("s"), "ms", replay=replay)
    assert not {"time.format", "source.replay"} & found.keys()


def test_a_replay_of_another_time_is_found(tmp_path: Path) -> None:
    replay = ", replay: {from: 2013-01-01T00:00:00Z, to: 2013-01-02T00:00:00Z, speed: max}"
    found = examined(tmp_path, written("s"), "s", replay=replay)["source.replay"]
    assert (found.state, "2024-04-05: correct from and to" in found.said) == ("warn", True)


def test_a_few_damaged_times_are_no_other_unit(tmp_path: Path) -> None:
    found = examined(tmp_path, [*written("s"), "noon"], "s")
    assert "time.format" not in found
    assert found["source.file"].state == "warn"
    assert "bad_time: their time cannot be read; correct time.field" in found["source.file"].said
