"""``stream-app doctor`` counts what a sample has in each field, and says which grace its disorder needs."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from stream_app.shell.checks.findings import show
from stream_app.shell.commands import main
from stream_app.shell.samples.findings import EXACT
from stream_app.shell.samples.grace import LOST, arrivals_in_file, enough_us
from stream_app.wiring.checks import Finding
from tests.stream_app.shell.sampled import PLAIN, TIME, configured, examined

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
    ("stream", "time", "said"),
    [
        ("keys: {field: land, list: [FR], other: true}", TIME, "keys: no event of a sample has a land on"),
        ("keys: {field: country, list: [FR], other: true}", TIME, ""),
        ("where: {country: IT}", TIME, "where: no event of a sample matches country is"),
        ("where: {country: FR}", TIME, ""),
        ("", TIME.replace("ms", "s"), "time.format: the times of a sample are implausible when read as s;"),
    ],
)  # fmt: skip
def test_check_config_warns_of_what_doctor_finds_without_a_number_of_events(
    tmp_path: Path, stream: str, time: str, said: str
) -> None:
    timed = [{"at": BEGIN_MS + place} | event for place, event in enumerate(EVENTS)]
    config = configured(tmp_path, timed, f"{PLAIN}\n    {stream}", time=time)
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


def test_private_numbers_are_said_to_be_private() -> None:
    for exact in (True, False):
        lines, screen = io.StringIO(), io.StringIO()
        findings = [Finding("keys", "ok", "3 of 4 events", exact=exact)]
        show(findings, Console(file=lines))
        show(findings, Console(file=screen, force_terminal=True, width=80))
        assert (EXACT in lines.getvalue()) == exact
        assert ("exact and private" in screen.getvalue()) == exact
        assert max(map(len, screen.getvalue().splitlines())) <= 100  # 80 columns and codes of colours


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
        ("c.csv", "at,k\n2026-03-01 00:10:00,a\n", "name its zone in time.zone"),
        ("c.csv", "at,k\n2026-03-01,a\n", "local_time: their time does not say its offset from UTC"),
        ("c.csv", "at,k\nnoon,a\n", "bad_time: their time cannot be read; correct time.field or time.format"),
        ("c.csv", f"at,k,k\n{AT},a,b\n", "the header line has the column k 2 times; rename all but one"),
        ("c.csv", f"at,l\n{AT},a\n", "the header line has no column k; correct keys.field"),
        ("c.ndjson", f'[{{"at": "{AT}", "k": "a"}}]\n', "it is one JSON array; write one object per line"),
        ("c.ndjson", f'{{"at": "{AT}"}}{{"at": "{AT}"}}\n', "write each event on one line, as a JSON object"),
        ("c.ndjson", '{"at": "2026-03-01T00:10:00"}\n', "name its zone in time.zone"),
        ("c.ndjson", '{"at": "1772323800000"}\n', "when read as ms; did you mean ms?"),
    ],
)
def test_the_remedy_names_the_cause(tmp_path: Path, name: str, content: str, said: str) -> None:
    time, keys = "format: iso8601, bin: 1h, grace: 5s, epoch: 1d", "keys: {field: k, list: [a], other: true}"
    lines = content.removesuffix("\n").split("\n")
    config = configured(tmp_path, lines, f"{PLAIN}\n    {keys}", time=time, file=name)
    wrong = [one.said for found in examined(config).values() for one in found if one.state != "ok"]
    assert any(said in one for one in wrong), wrong
