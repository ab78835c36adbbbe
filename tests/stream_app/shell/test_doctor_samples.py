"""``stream-app doctor`` counts what a sample has in each field, and finds wrong units and a short grace."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from stream_app.shell.commands import main
from stream_app.shell.samples.times import LOST, arrivals_in_file, enough_us
from stream_app.wiring.checks import Finding
from tests.stream_app.shell.sampled import PLAIN, configured, examined

BEGIN_MS = 1_700_000_000_000


def found_in(folder: Path, events: list[dict[str, Any]], more: str = PLAIN) -> dict[str, Finding]:
    """Return the last finding about each key of the stream."""
    timed = ({"at": BEGIN_MS + place} | event for place, event in enumerate(events))
    return {what: found[-1] for what, found in examined(configured(folder, timed, more)).items()}


EVENTS: list[dict[str, Any]] = [
    {"country": "FR", "ms": 5, "user": "a"},
    {"country": "DE", "ms": 700, "user": "b"},
    {"country": "XX", "ms": "6.5", "user": "b"},
    {"ms": "?", "user": None},
]


@pytest.mark.parametrize(
    ("stream", "what", "state", "said"),
    [
        ("keys: {field: country, list: [FR, DE], other: false}", "keys", "warn",
         "3 of 4 events of a sample have country; 2 are on the list; the rest is refused (unknown_key)"),
        ("keys: {field: country, list: [FR, DE], other: true}", "keys", "ok",
         "3 of 4 events of a sample have country; 2 are on the list, the rest counts as other"),
        ("keys: {field: land, list: [FR, DE], other: true}", "keys", "warn",
         "0 of 4 events of a sample have land; 0 are on the list, the rest counts as other; correct "),
        ("keys: {field: land, list: [FR, DE], other: false}", "keys", "fail",
         "0 are on the list; correct the field, or no event is counted (unknown_key)"),
        ("value: {field: ms, min: 0, max: 1000, buckets: 4}", "value", "warn",
         "3 are from 0 to 1000, the others count at the nearer end; the rest is refused (bad_value)"),
        ("value: {field: ms, min: 0, max: 10, buckets: 4}", "value", "warn",
         "2 are from 0 to 10, the others count at the nearer end; widen the range (choosing min and max"),
        ("value: {field: country, min: 0, max: 10, buckets: 4}", "value", "fail",
         "0 of 4 events of a sample have a number in country"),
        ("sum: {field: ms, min: 0, max: 1000, unit: 1}", "sum", "warn", "3 of 4 events of a sample"),
        ("where: {country: [FR, XX]}", "where", "ok", "2 of 4 events of a sample match country is"),
        ("where: {country: IT}", "where", "warn", "0 of 4 events of a sample match country is"),
    ],
)  # fmt: skip
def test_each_field_is_counted(tmp_path: Path, stream: str, what: str, state: str, said: str) -> None:
    found = found_in(tmp_path, EVENTS, f"{PLAIN}\n    {stream}")[what]
    assert (found.state, found.exact) == (state, True)
    assert said in found.said


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        ("keys: {field: land, list: [FR], other: true}", "keys: no event of a sample has a land on"),
        ("keys: {field: country, list: [FR], other: true}", ""),
        ("where: {country: IT}", "where: no event of a sample matches country is"),
        ("where: {country: FR}", ""),
    ],
)
def test_check_config_warns_of_what_doctor_finds_without_a_number_of_events(
    tmp_path: Path, stream: str, said: str
) -> None:
    timed = [{"at": BEGIN_MS + place} | event for place, event in enumerate(EVENTS)]
    config = configured(tmp_path, timed, f"{PLAIN}\n    {stream}")
    done = CliRunner().invoke(main, ["check-config", "--config", str(config)])
    assert done.exit_code == 0, done.output
    warned = [line for line in done.output.splitlines() if line.startswith("warning: ")]
    assert [line.startswith(f"warning: streams.clicks.{said}") for line in warned] == [True] * bool(said)
    assert "of 4" not in done.output


def test_users_are_counted(tmp_path: Path) -> None:
    unit = "privacy: {{epsilon: 1, unit: {{user: {}, max_events: 9}}}}"
    found = found_in(tmp_path, EVENTS, unit.format("user"))["privacy.unit.user"]
    assert found.state == "warn"
    assert found.said == "3 of 4 events of a sample have a user in user; the rest is refused (no_user)"
    found = found_in(tmp_path, EVENTS, unit.format("who"))["privacy.unit.user"]
    assert (found.state, "correct the field" in found.said) == ("fail", True)
    found = found_in(tmp_path, EVENTS[:3], unit.format("user"))["privacy.unit.user"]
    assert (found.state, found.said) == ("ok", "3 of 3 events of a sample have a user in user")


def disordered(late_s: float, every: int) -> list[dict[str, Any]]:
    """Return one event a second; every so many events one is late."""
    times = [place - late_s * (place % every == every - 1) for place in range(2_000)]
    return [{"at": BEGIN_MS + round(1000 * at)} for at in times]


def test_a_grace_that_is_too_short_is_found_with_one_that_is_long_enough(tmp_path: Path) -> None:
    found = found_in(tmp_path, disordered(60, 50))["time.grace"]
    assert (found.state, found.exact) == ("warn", True)
    assert found.said.startswith(
        "with 5s, 40 of 2,000 events of a sample would be late (2.0%); 1m would lose fewer"
    )
    assert "epsilon does not cover that" in found.said
    in_order = found_in(tmp_path, disordered(0, 50))["time.grace"]
    assert (in_order.state, in_order.said) == (
        "ok", "with 5s, 0 of 2,000 events of a sample would be late (0.0%)"
    )  # fmt: skip


def test_one_event_from_the_future_makes_no_others_late(tmp_path: Path) -> None:
    events = disordered(0, 50)
    events[700]["at"] += 10**9
    assert found_in(tmp_path, events)["time.grace"].state == "ok"


def test_a_replay_is_sorted_so_nothing_in_it_is_late(tmp_path: Path) -> None:
    replay = ", replay: {from: 2023-11-14T00:00:00Z, to: 2023-11-15T00:00:00Z, speed: max}"
    assert "time.grace" not in examined(configured(tmp_path, disordered(600, 20), source=replay))


@given(st.lists(st.integers(-(10**7), 3 * 10**9), min_size=1, max_size=3_000))
def test_with_the_named_grace_fewer_than_one_in_a_thousand_are_late(needed: list[int]) -> None:
    grace = enough_us(np.array(needed))
    late = sum(one >= grace for one in needed)
    assert late < LOST * len(needed) or late == 0


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50), st.data())
def test_a_lone_event_moves_no_arrival(times: list[int], data: st.DataObject) -> None:
    rising = np.sort(np.array(times))
    assert (np.diff(arrivals_in_file(rising)) >= 0).all()
    place = data.draw(st.integers(0, len(times)))
    spoiled = np.insert(rising, place, 10**12)
    if len(times) >= 5:
        assert arrivals_in_file(spoiled).max() <= rising.max()


def test_each_of_several_key_fields_is_counted(tmp_path: Path) -> None:
    keys = "keys: {fields: [country, user], list: {country: [FR, DE], user: [a, b]}, other: false}"
    events = ({"at": BEGIN_MS} | one for one in EVENTS)
    found = examined(configured(tmp_path, events, f"{PLAIN}\n    {keys}"))["keys"]
    said = [one.said.partition(";")[0] for one in found]
    assert said == [
        "3 of 4 events of a sample have country",
        "3 of 4 events of a sample have user",
    ]


AT = "2026-03-01T00:10:00Z"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "c.csv",
            f'at,k\n{AT},"a\nb"\n',
            "their quotes are not closed on their line, and only a replay reads",
        ),
        ("c.csv", f'k,at\n"a\n0,{AT}\nb",{AT}\n', "their quotes are not closed on their line"),
        (
            "c.csv",
            f"at,k\n{AT},a,b\n",
            "they are not in the format of the source; correct source.format, or write",
        ),
        ("c.csv", f'at,k\n{AT},"5\\" disc"\n', r"they have \" for a quote in a value; write it twice"),
        ("c.csv", f'at,k\n{AT},"5"disc\n', "text follows the quote that ends a value"),
        ("c.csv", "at,k\n2026-03-01 00:10:00,a\n", "name its zone in time.zone"),
        ("c.csv", "at,k\n2026-03-01,a\n", "local_time: their time does not say its offset from UTC"),
        ("c.csv", "at,k\nnoon,a\n", "bad_time: their time cannot be read; correct time.field or time.format"),
        ("c.csv", f"at,k,k\n{AT},a,b\n", "the header line has the column k 2 times; rename all but one"),
        ("c.csv", f"at,l\n{AT},a\n", "the header line has no column k; correct keys.field"),
        ("c.ndjson", f'[{{"at": "{AT}", "k": "a"}}]\n', "it is one JSON array; write one object per line"),
        ("c.ndjson", f'{{"at": "{AT}"}}{{"at": "{AT}"}}\n', "write each event on one line, as a JSON object"),
        ("c.ndjson", '"{\\"at\\": 5}"\n', "undecodable: they are not in the format of the source"),
        ("c.ndjson", '{"at": "2026-03-01T00:10:00"}\n', "name its zone in time.zone"),
        ("c.ndjson", '{"at": "1772323800000"}\n', "when read as ms; did you mean ms?"),
        ("c.ndjson", f'{{"at": "{AT}"}}\n\n{{"to": 2}}\n', "become dead letters when the service runs"),
    ],
)
def test_the_remedy_names_the_cause(tmp_path: Path, name: str, content: str, said: str) -> None:
    time, keys = "format: iso8601, bin: 1h, grace: 5s, epoch: 1d", "keys: {field: k, list: [a], other: true}"
    lines = content.removesuffix("\n").split("\n")
    config = configured(tmp_path, lines, f"{PLAIN}\n    {keys}", time=time, file=name)
    wrong = [one.said for found in examined(config).values() for one in found if one.state != "ok"]
    assert any(said in one for one in wrong), wrong


@pytest.mark.parametrize("content", [f'{{"at": "{AT}"}}' * 2, "PAR1\0\0PAR1", '{"at": 1'])
def test_a_followed_file_without_a_line_end_is_no_silent_one(tmp_path: Path, content: str) -> None:
    config = configured(tmp_path, [], file="c.ndjson")
    (tmp_path / "c.ndjson").write_text(content)
    found = examined(config)["source.file"]
    assert [one.state for one in found] == ["ok", "warn"]
    assert "c.ndjson: it has no line end so far" in found[-1].said


BEGIN_S = 1_712_345_678
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def written(unit: str, begin_s: int = BEGIN_S) -> list[object]:
    """Return the times of some events in a unit."""
    if unit == "iso8601":
        return [datetime.fromtimestamp(begin_s + n, UTC).isoformat() for n in range(40)]
    return [(begin_s + n) * TICKS[unit] for n in range(40)]


def found_at(
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
    found = found_at(tmp_path, written(unit), declared, form=form)
    if unit == declared:
        assert "time.format" not in found
        assert found["source.file"].state == "ok"
    else:
        assert found["time.format"].state == "fail"
        assert found["time.format"].said.endswith(f"when read as {unit}; did you mean {unit}?")
        assert str(BEGIN_S)[2:] not in found["time.format"].said  # no event's own time


def test_what_both_units_make_of_the_times_is_said(tmp_path: Path) -> None:
    said = found_at(tmp_path, written("s"), "ms")["time.format"].said
    assert said.startswith(
        "its times have 10 digits: they are of 1970-01 when read as ms, and of 2024-04 when read as s"
    )


def test_events_of_long_ago_are_no_mistake(tmp_path: Path) -> None:
    for begin_s in (-86_400, 40_000_000, 500_000_000):
        assert "time.format" not in found_at(tmp_path, written("s", begin_s), "s")


def test_a_replay_of_the_past_is_no_mistake(tmp_path: Path) -> None:
    replay = ", replay: {from: 1970-01-20T00:00:00Z, to: 1970-01-21T00:00:00Z, speed: max}"
    found = found_at(tmp_path, written("s"), "ms", replay=replay)
    assert not {"time.format", "source.replay"} & found.keys()


def test_a_replay_of_another_time_is_found(tmp_path: Path) -> None:
    replay = ", replay: {from: 2013-01-01T00:00:00Z, to: 2013-01-02T00:00:00Z, speed: max}"
    found = found_at(tmp_path, written("s"), "s", replay=replay)["source.replay"]
    assert (found.state, "2024-04-05: correct from and to" in found.said) == ("warn", True)


def test_a_few_damaged_times_are_no_other_unit(tmp_path: Path) -> None:
    found = found_at(tmp_path, [*written("s"), "noon"], "s")
    assert "time.format" not in found
    assert found["source.file"].state == "warn"
    assert "bad_time: their time cannot be read; correct time.field" in found["source.file"].said
