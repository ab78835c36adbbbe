"""``stream-app init`` writes a configuration that reads the user's events, and tells nothing about them."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_app.config import load_text
from stream_app.core.instants import parse_instant
from stream_app.shell.init import proposals
from stream_app.shell.init.answers import Counted, read_bin, read_keys
from stream_app.shell.init.configuration import configuration
from stream_app.shell.init.questions import Questions
from stream_app.shell.processes import INTERRUPTED
from stream_app.shell.samples.findings import read_sample
from stream_app.shell.samples.of_log import sample_of
from stream_app.sources.decode import TimeField
from tests.stream_app.shell.initial import ANSWERS, HEADER, PLAIN, ROWS, folder, init, written
from tests.stream_app.shell.test_init_files import csv
from tests.terminal import CTRL_C, in_terminal

pytestmark = pytest.mark.slow

__all__ = ["folder"]
JANUARY = "2026-01-01T00:00:00Z"


def test_answers_become_a_configuration_that_reads_the_file(folder: Path) -> None:
    made = init(**ANSWERS)
    assert made.exit_code == 0, made.output
    assert "What readers get" in made.output
    assert made.output.endswith("stream-app doctor --config stream-app.yaml\n")
    stream = written(folder)
    declared = stream.declared
    assert (stream.name, declared.time.field, declared.time.format) == ("visits", "seen", "iso8601")
    assert (declared.privacy.epsilon, declared.time.bin_us) == (Fraction(1), 3_600_000_000)
    assert declared.privacy.per_user is None
    sample = read_sample(stream)
    assert sample is not None
    assert (len(sample.positions), len(sample.refused)) == (len(ROWS), 0)


def test_person_keys_and_sum_are_declared_as_answered(folder: Path) -> None:
    many = {"user": "visitor", "max_events": "5", "count": "sum of spent by town"}
    made = init(**ANSWERS | many | {"keys": "Ulm, NO,null", "range": "0 to 12.5"})
    assert made.exit_code == 0, made.output
    assert made.output.endswith("stream-app plan --config stream-app.yaml --caps visits.csv\n")
    declared = written(folder).declared
    assert declared.privacy.per_user is not None
    assert (declared.privacy.per_user.field, declared.privacy.per_user.caps.max_events) == ("visitor", 5)
    assert declared.keys is not None
    assert (declared.keys.field, declared.keys.names) == ("town", ("Ulm", "NO", "null"))
    assert declared.amounts is not None
    amounts = declared.amounts
    assert (amounts.low, amounts.high, amounts.unit) == (Fraction(0), Fraction(25, 2), Fraction(1, 100))


def test_without_a_terminal_all_missing_answers_are_named_in_one_line(folder: Path) -> None:
    refused = init(events="visits.csv", epsilon="1")
    assert refused.exit_code == 2
    [line] = refused.output.splitlines()
    assert line.endswith(f"--time seen --first {JANUARY} --user visitor --max-events 10 --count all --bin 1h")
    assert [path.name for path in folder.iterdir()] == ["visits.csv"]


def test_list_of_keys_and_range_are_never_proposed(folder: Path) -> None:
    by = init(**ANSWERS | {"count": "by town"})
    assert by.output.splitlines()[-1].endswith("proposals: --keys ...")
    total = init(**ANSWERS | {"count": "sum of spent"})
    assert total.output.splitlines()[-1].endswith("proposals: --range ...")


def test_a_field_with_many_values_is_proposed_to_be_found(folder: Path) -> None:
    rows = [row.replace("Xanten", f"Xanten{n % 60}-") for n, row in enumerate(ROWS * 4)]
    (folder / "visits.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    by = {"user": "visitor", "max_events": "5", "count": "by town"}
    assert init(**ANSWERS | by).output.splitlines()[-1].endswith("--keys find")
    made = init(**ANSWERS | by | {"keys": "find"})
    assert made.exit_code == 0, made.output
    declared = written(folder).declared
    assert declared.keys is not None
    assert declared.keys.names == ()
    assert declared.keys.discover is not None
    assert declared.keys.discover.epsilon == Fraction(1, 2)
    assert "Xanten" not in made.output
    assert "a key appears once about" in made.output
    assert "2.7-fold, but for discover.delta" in (folder / "stream-app.yaml").read_text()
    (folder / "stream-app.yaml").unlink()
    summed = by | {"count": "sum of spent by town", "keys": "find", "range": "0 to 9"}
    assert init(**ANSWERS | summed).exit_code == 0
    assert written(folder).declared.finds_keys
    assert written(folder).declared.amounts is not None


def test_no_value_of_an_event_is_shown_or_written(folder: Path) -> None:
    many = {"user": "visitor", "max_events": "5", "count": "by town", "keys": "Ulm"}
    made = init(**ANSWERS | many)
    assert made.exit_code == 0
    said = made.output + (folder / "stream-app.yaml").read_text()
    assert not [value for row in ROWS for value in row.split(",")[:3] if value in said]


@pytest.mark.parametrize("there", ["file", "dangling link"])
def test_an_existing_file_is_never_changed(folder: Path, there: str) -> None:
    place = folder / "stream-app.yaml"
    if there == "file":
        place.write_text("mine")
    else:
        place.symlink_to("nowhere")
    refused = init(**ANSWERS)
    assert refused.exit_code == 2
    assert "is there already and is not changed" in refused.output
    assert place.is_symlink() or place.read_text() == "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["stream-app.yaml", "visits.csv"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"events": "absent.csv"}, "absent.csv is not there"),
        ({"events": "topic:a b"}, "is not a topic name"),
        ({"time": "town"}, "--time town: the events have no times in town"),
        ({"time": "sen"}, "no event of the sample has the field sen; they have seen, visitor, town, spent"),
        ({"time": "seen in ms"}, "they look like iso8601"),
        ({"first": "2026"}, "must be an instant such as"),
        ({"first": "2030-01-01"}, "so none would count"),
        ({"user": "nobody"}, "no event of the sample has the field nobody"),
        ({"user": "visitor", "max_events": "0"}, "must be a whole number above 0"),
        ({"count": "town"}, "must be: all, by FIELD, sum of FIELD, or sum of FIELD by FIELD"),
        ({"count": "by town", "keys": "a,a"}, "must be different keys"),
        ({"count": "sum of spent", "range": "9 to 3"}, "the smaller one first"),
        ({"epsilon": "21"}, "must be a number above 0 and at most 20"),
        ({"bin": "10"}, "must be a duration with its unit"),
        ({"name": "My Shop"}, "is not a name"),
        ({"count": "by town", "keys": "other"}, "which is the key of all others"),
        ({"grows": "maybe"}, "must be yes or no"),
        ({"grows": "no", "first": "now"}, "--first now: must be an instant such as 2026-01-01T00:00:00Z"),
        ({"grows": "yes", "to": "2026-02-01"}, "--to: a file that grows has no end; leave it out"),
        ({"to": "2026-01-01"}, "must be later than 2026-01-01T00:00:00Z"),
        ({"first": "2025-01-01", "to": "2025-02-01"}, "all events of the sample are later, so none would"),
        ({"events": "topic:clicks"}, "--first: belongs to a file, and a topic is followed"),
        ({"events": "topic:clicks", "first": None, "grows": "no"}, "--grows: belongs to a file"),
        ({"to": "now"}, "must be an instant such as 2026-01-01T00:00:00Z"),
        ({"to": "2026-02-01T00:30:00Z"}, "no bin of 1h begins at 2026-02-01T00:30:00Z"),
    ],
)
def test_an_answer_that_cannot_be_used_gets_one_line(
    folder: Path, changed: dict[str, str | None], said: str
) -> None:
    refused = init(**ANSWERS | changed)
    [line] = refused.output.splitlines()
    assert (refused.exit_code, said in line) == (2, True), line
    assert [path.name for path in folder.iterdir()] == ["visits.csv"]


@pytest.mark.parametrize(
    ("lines", "proposed"),
    [
        (['{"meta": {"ts": 1767571200}, "uid": "a"}'], f"--time meta.ts --first {JANUARY} --user uid"),
        (['{"n": 3, "createdAt": 1767571200000}'], f"--time createdAt --first {JANUARY} --user none"),
        (['{"updated_at": 1767571200, "at": 1767571200}'], "--time at "),
        (['{"at": "2026-01-05T00:00:00+01:00"}'] * 49 + ['{"at": "1999-01-05T00:00:00Z"}'], JANUARY),
        ([f'{{"at": 1767571200, "customer": "c{n % 12}"}}' for n in range(96)], "--user customer --max-ev"),
        ([f'{{"at": 1767571200, "customer": "{n % 2}"}}' for n in range(96)], "--user none"),
        (["broken", '{"at": null}', *['{"at": "2026-01-05T00:00:00Z"}'] * 9], "--time at"),
    ],
)
def test_proposals_come_from_names_and_formats(folder: Path, lines: Sequence[str], proposed: str) -> None:
    (folder / "a-2026.jsonl.gz").write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    assert proposed in init(events="a-*.jsonl").output


def test_questions_at_a_terminal_and_enter_take_the_proposals(folder: Path) -> None:
    (folder / "german.txt").write_text("seen;town\n1;2\n")
    with in_terminal([sys.executable, "-m", "stream_app", "init"], folder) as terminal:
        terminal.answer("events [visits.csv]:", "visit.csv")
        terminal.await_text("visit.csv is not there")
        terminal.answer("events [visits.csv]:", "german.txt")
        terminal.await_text("separated by ';'")
        terminal.answer("events [visits.csv]:", "visits.csv")
        terminal.answer("time [seen]:", "town")
        terminal.await_text("the events have no times in town")
        terminal.answer("time [seen]:")
        terminal.answer("still grows [no]:", "perhaps")
        terminal.await_text("must be yes or no")
        terminal.answer("still grows [no]:")
        terminal.answer("from [2026-01-01T00:00:00Z]:", "now")
        terminal.await_text("must be an instant such as 2026-01-01T00:00:00Z\n")
        terminal.answer("from [2026-01-01T00:00:00Z]:")
        terminal.answer("until [2026-02-01T00:00:00Z]:")
        terminal.answer("person [visitor]:", "none")
        terminal.await_text("possible: by town, by spent\n   possible: sum of spent")
        terminal.answer("count [all]:")
        terminal.answer("epsilon [1]:", "0.5")
        terminal.answer("length of a bin [1h]:")
        assert terminal.status() == 0
    assert written(folder).declared.privacy.epsilon == Fraction(1, 2)


def test_ctrl_c_leaves_nothing_behind(folder: Path) -> None:
    with in_terminal([sys.executable, "-m", "stream_app", "init"], folder) as terminal:
        terminal.answer("events [visits.csv]:")
        terminal.await_text("time [seen]:")
        terminal.type(CTRL_C)
        terminal.await_text("nothing was written")
        assert terminal.status() == INTERRUPTED
    assert [path.name for path in folder.iterdir()] == ["visits.csv"]


def test_a_text_that_comes_back_is_asked_about(folder: Path) -> None:
    rows = [f"2026-01-05T{n % 24:02d}:00:07Z,card{n % 20},{n}" for n in range(60)]
    (folder / "visits.csv").write_text("\n".join(["seen,card,spent", *rows]) + "\n")
    with in_terminal([sys.executable, "-m", "stream_app", "init"], folder) as terminal:
        terminal.answer("events [visits.csv]:")
        terminal.answer("time [seen]:")
        terminal.answer("still grows [no]:", "yes")
        terminal.answer("from [2026-01-01T00:00:00Z]:")
        terminal.await_text("values come back in: card.")
        terminal.await_text("person [none]:")
        terminal.type(CTRL_C)
        assert terminal.status() == INTERRUPTED


def test_times_without_an_offset_need_their_zone(folder: Path) -> None:
    (folder / "visits.csv").write_text("seen,town\n2026-01-05 10:00:00,Ulm\n2026-01-05T10:00:00.25,Ulm\n")
    assert init(**ANSWERS).output.endswith("--zone ...\n")
    assert "is not a time zone" in init(**ANSWERS | {"zone": "Ulm"}).output
    assert zoned(folder)[:2] == [1_767_603_600_000_000, 1_767_603_600_250_000]


def zoned(folder: Path) -> list[int]:
    """Write a configuration with a zone; return the times that it reads."""
    made = init(**ANSWERS | {"zone": "Europe/Berlin"})
    assert made.exit_code == 0, made.output
    time, sample = written(folder).declared.time, read_sample(written(folder))
    assert (time.field, time.format, time.zone) == ("seen", "iso8601", "Europe/Berlin")
    assert sample is not None
    return list(sample.columns["seen"].tolist())


def test_days_without_an_instant_are_those_of_the_zone(folder: Path) -> None:
    days = [f"2026-03-{day} 00:30:00,Ulm\n" for day in range(20, 32)]  # on the 29th an hour is left out
    (folder / "visits.csv").write_text("seen,town\n" + "".join(days))
    berlin = {"zone": "Europe/Berlin", "bin": "1d", "first": "2026-03-20", "to": "2026-04-01"}
    made = init(**ANSWERS | berlin)
    assert made.exit_code == 0, made.output
    time = written(folder).declared.time
    assert (time.timezone, time.epoch_bins) == ("Europe/Berlin", 12)
    assert time.first_us == 1_773_961_200_000_000
    (folder / "stream-app.yaml").unlink()
    refused = init(**ANSWERS | berlin | {"first": "2026-03-20T00:00:00Z"}).output
    assert "no bin of 1d begins at 2026-03-20T00:00:00Z in Europe/Berlin; take another length" in refused
    until_today = init(**ANSWERS | berlin | {"to": None})
    assert until_today.exit_code == 0, until_today.output


def test_zone_belongs_to_the_field_that_is_chosen(folder: Path) -> None:
    rows = [f"2026-01-05T09:0{n}:00Z,2026-01-05 10:00:0{n},{1_767_571_200 + n}" for n in range(5)]
    (folder / "visits.csv").write_text("\n".join(["created,seen,epoch", *rows]) + "\n")
    assert init(**ANSWERS).output.endswith("--zone ...\n")
    refused = init(**ANSWERS | {"zone": "Europe/Berlin", "time": "epoch"}).output
    assert "times in epoch are read as s, which has no zone; leave it out" in refused
    assert zoned(folder)[0] == 1_767_603_600_000_000


@pytest.mark.parametrize("how", ["no rights", "no longer there"])
def test_a_folder_that_cannot_be_written_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    config = "/proc/stream-app.yaml" if how == "no longer there" else "stream-app.yaml"
    if how == "no rights":  # tests run as root, whom no rights hold back
        monkeypatch.setattr("os.access", lambda *_: False)
    refused = init(**ANSWERS | {"config": config})
    assert refused.exit_code == 2
    assert not isinstance(refused.exception, OSError)
    assert "cannot be written" in refused.output.splitlines()[-1]


NOW = datetime.now(UTC)


@pytest.mark.parametrize(
    ("name", "last_h", "written_h", "more", "is_live"),
    [
        ("e.ndjson", 2, 1, {}, True),
        ("e-*.ndjson", 2, 1, {}, True),
        ("e.ndjson", 7_200, 1, {}, False),
        ("e.ndjson", 2, 72, {}, False),
        ("e.ndjson.gz", 2, 1, {}, False),
        ("e.ndjson", 7_200, 1, {"grows": "yes"}, True),
        ("e.ndjson", 2, 1, {"grows": "no"}, False),
        ("e.ndjson", 2, 1, {"to": f"{NOW:%Y-%m-%d}"}, False),
        ("e.ndjson", 7_200, 1, {"first": "now", "grows": None}, True),
    ],
)
def test_a_file_that_no_longer_grows_is_replayed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    last_h: int,
    written_h: int,
    more: dict[str, str],
    is_live: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    first = NOW - timedelta(days=400)
    lines = [f'{{"at": "{first:%Y-%m-%dT%H:%M:%SZ}"}}'] * 3_000  # more than the sample at the start
    lines += [f'{{"at": "{NOW - timedelta(hours=last_h):%Y-%m-%dT%H:%M:%SZ}"}}']
    data = ("\n".join(lines) + "\n").encode()
    file = tmp_path / name.replace("*", "1")
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    os.utime(file, (0, (NOW - timedelta(hours=written_h)).timestamp()))
    answers = ANSWERS | {"events": name, "time": "at", "first": f"{first:%Y-%m-%d}"}
    made = init(**answers | more)
    assert made.exit_code == 0, made.output
    stream = written(tmp_path)
    assert (stream.declared.source.replay is None) == is_live
    assert ("seems to grow no more" in made.output) == (not is_live and "grows" not in more)
    if not is_live:
        replay = stream.declared.source.replay
        assert replay is not None
        assert stream.declared.time.epoch_bins * stream.declared.time.bin_us == replay.to_us - replay.from_us


def test_a_followed_file_whose_rows_have_line_breaks_is_warned_of(folder: Path) -> None:
    (folder / "visits.csv").write_text(csv("seen,text", '{at},"one\nline"'))
    made = init(**ANSWERS | {"grows": "yes"})
    assert made.exit_code == 0
    assert "warning: rows with line breaks in quotes are refused where a file is followed" in made.output


@pytest.mark.parametrize(
    ("days", "begins", "ends"),
    [
        ([*range(450)], "2025-01-01T00:00:00Z", "2026-04-01T00:00:00Z"),
        ([*range(450), -9_000], "2025-01-01T00:00:00Z", "2026-04-01T00:00:00Z"),  # one dirty time
        ([*range(450), 600], "2025-01-01T00:00:00Z", "2026-09-01T00:00:00Z"),  # far, but less than all others
        ([0] * 99 + [300], "2025-01-01T00:00:00Z", "2025-02-01T00:00:00Z"),
        ([0, 60], "2025-01-01T00:00:00Z", "2025-04-01T00:00:00Z"),
        ([16], "2025-01-01T00:00:00Z", "2025-02-01T00:00:00Z"),
        ([699], "2026-12-01T00:00:00Z", "2026-12-05T00:00:00Z"),  # at most the end of today
    ],
)
def test_the_proposed_range_has_all_months_of_the_events(days: list[int], begins: str, ends: str) -> None:
    start = datetime(2025, 1, 3, tzinfo=UTC)
    lines = [f'{{"at": "{(start + timedelta(days=day)).isoformat()}"}}'.encode() for day in days]
    sample, field = sample_of("e", "ndjson", lines), TimeField("at", "iso8601")
    now_us = parse_instant("2026-12-04T10:00:00Z")
    assert (proposals.begins(sample, field), proposals.ends(sample, field, now_us)) == (begins, ends)


def test_the_proposed_range_has_months_and_days_of_the_zone() -> None:
    sample = sample_of("e", "ndjson", [b'{"at": "2026-03-01 00:30:00"}', b'{"at": "2026-03-20 09:00:00"}'])
    field = TimeField("at", "iso8601", "Europe/Berlin")
    assert proposals.begins(sample, field) == "2026-02-28T23:00:00Z"
    assert proposals.ends(sample, field, parse_instant("2026-12-04T10:00:00Z")) == "2026-03-31T22:00:00Z"
    assert proposals.ends(sample, field, parse_instant("2026-03-20T23:30:00Z")) == "2026-03-21T23:00:00Z"
    # Bins of an hour, which are proposed, begin at no midnight of India.
    assert proposals.begins(sample, replace(field, zone="Asia/Kolkata")) == "2026-02-01T00:00:00Z"


def test_an_id_within_a_person_is_proposed() -> None:
    lines = [f'{{"user": {{"id": "u{n}"}}, "song": {{"id": "s{n}"}}}}'.encode() for n in range(100)]
    assert proposals.person(sample_of("e", "ndjson", lines)) == "user.id"


@settings(max_examples=40)
@given(
    st.text(min_size=1, max_size=12),
    st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4, unique=True),
)
def test_names_and_keys_are_read_back_as_they_were(field: str, keys: list[str]) -> None:
    if "other" in keys:
        return
    answered = replace(PLAIN, counted=Counted(key="k" + field), keys=tuple(keys))
    (stream,) = load_text(configuration(answered, "a", Path("a.yaml")), Path("a.yaml"), {}).streams
    assert stream.declared.keys is not None
    assert (stream.declared.keys.field, stream.declared.keys.names) == ("k" + field, tuple(keys))


def test_a_bin_that_does_not_begin_where_counting_does_is_asked_for_again():
    read = read_bin("2026-04-01T00:00:00Z")
    assert (read("5m"), read("1d"), read_bin(None)("7m")) == ("5m", "1d", "7m")
    with pytest.raises(ValueError, match="no bin of 7m begins at 2026-04-01T00:00:00Z; take another length"):
        read("7m")


def test_an_empty_answer_is_refused_with_what_to_write(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    given = iter(["", "DE,FR"])
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _text: next(given))
    questions = Questions({})
    questions.at_terminal = True
    assert questions.ask("keys", "values", None, read_keys) == ("DE", "FR")
    assert "for example DE,FR" in capsys.readouterr().out
