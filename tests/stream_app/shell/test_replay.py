"""Options of ``stream-app replay`` are read and refused like the keys of a configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stream_app.config.plans import planned
from stream_app.config.settings import SourceSettings
from stream_app.ports import OperatorError
from stream_app.shell.commands import main
from stream_app.shell.replay import replay_settings

OPTIONS: dict[str, Any] = {
    "field": "at",
    "time_format": "iso8601",
    "file_format": "csv",
    "start": "2024-01-01T00:00:00Z",
    "end": "2024-01-03T00:00:00Z",
    "bin_length": "1h",
    "epsilon": "0.5",
    "name": "clicks",
    "state": "state/replay",
    "speed": "max",
    "port": 8088,
}


def test_options_become_one_replay_over_one_epoch():
    settings = replay_settings(Path("events.csv"), **OPTIONS)
    (stream,) = settings.streams
    assert (stream.name, stream.declared.time.epoch_bins, str(stream.declared.privacy.epsilon)) == (
        "clicks",
        48,
        "1/2",
    )
    assert isinstance(stream.source, SourceSettings)
    assert stream.source.file == Path("events.csv").absolute()
    assert settings.state_dir == Path("state/replay").absolute()


def test_a_file_has_one_name_in_the_ledger_wherever_the_command_is_given(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    options = OPTIONS | {"state": str(tmp_path / "state")}
    names = set()
    for directory, file in (
        ("data", "events.csv"),
        (".", "data/events.csv"),
        (".", tmp_path / "data/events.csv"),
    ):
        monkeypatch.chdir(tmp_path / directory)
        (stream,) = replay_settings(Path(file), **options).streams
        assert isinstance(stream.source, SourceSettings)
        assert stream.source.file.resolve() == tmp_path.resolve() / "data/events.csv"
        names |= {stream.declared.source.name, planned(stream).source}
    assert names == {"file:../data/events.csv"}


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("start", "yesterday", "--from yesterday: 'yesterday' is not a time"),
        (
            "start",
            "2024-01-01T00:30:00Z",
            "--from 2024-01-01T00:30:00Z is inside a bin of 1h; write 2024-01-01T00:",
        ),
        ("end", "2023-01-01T00:00:00Z", "--to 2023-01-01T00:00:00Z must be later than --from"),
        (
            "end",
            "2024-01-02T00:30:00Z",
            "--to 2024-01-02T00:30:00Z is inside a bin of 1h; write 2024-01-02T00:",
        ),
        ("bin_length", "60", "--bin 60: must be a duration with its unit"),
        ("bin_length", "0s", "--bin 0s: must be longer than zero"),
        ("bin_length", "1us", "--bin 1us: makes 172,800,000,000 bins, more than"),
        ("epsilon", "99", "--epsilon 99 protects nobody; use at most 20"),
        ("epsilon", "much", '--epsilon "much": must be a number above zero'),
        ("name", "My Clicks", '--name "My Clicks" is not a name; use a-z'),
        ("file_format", "xml", '--format "xml": must be one of ndjson, csv'),
        ("time_format", "noon", '--time-format "noon": must be one of s,'),
        ("field", "", '--field "": must be a word'),
        ("state", "", '--state "": must be a word'),
        ("speed", "warp", '--speed "warp": must be max, a factor'),
        ("port", 99_999, "--port 99999: must be a port"),
    ],
)
def test_a_wrong_option_is_one_line(option, value, said):
    with pytest.raises(OperatorError) as caught:
        replay_settings(Path("events.csv"), **(OPTIONS | {option: value}))
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "form"),
    [
        ("events.csv", "csv"),
        ("events-*.CSV.gz", "csv"),
        ("events.ndjson", "ndjson"),
        ("events.json.gz", "ndjson"),
        ("events.log", "ndjson"),
    ],
)
def test_a_file_s_name_says_its_format(file, form):
    (stream,) = replay_settings(Path(file), **(OPTIONS | {"file_format": None})).streams
    assert stream.declared.source.format == form
    for option in ("csv", "ndjson"):
        (stream,) = replay_settings(Path(file), **(OPTIONS | {"file_format": option})).streams
        assert stream.declared.source.format == option


@pytest.mark.parametrize(
    ("pattern", "names", "form"),
    [
        ("d*.csv*", [], "csv"),
        ("d*.csv.gz*", [], "csv"),
        ("d*.jsonl*", ["d.csv"], "ndjson"),
        ("d*", ["d1.csv", "d2.csv.gz", "D.ndjson"], "csv"),
        ("d*", ["d1.ndjson", "d2.jsonl.gz", "d3"], "ndjson"),
        ("2024.01-*", ["2024.01-1.CSV"], "csv"),
        ("d*", [], "ndjson"),
    ],
)
def test_the_files_of_a_list_say_its_format(tmp_path, pattern, names, form):
    for name in names:
        (tmp_path / name).touch()
    (stream,) = replay_settings(tmp_path / pattern, **(OPTIONS | {"file_format": None})).streams
    assert stream.declared.source.format == form


def test_a_list_of_both_formats_needs_the_option(tmp_path):
    for name in ("d1.csv", "d2.ndjson"):
        (tmp_path / name).touch()
    with pytest.raises(
        OperatorError, match=r"--format is missing: d\* names files of CSV and others; write "
    ):
        replay_settings(tmp_path / "d*", **(OPTIONS | {"file_format": None}))
    (stream,) = replay_settings(tmp_path / "d*", **OPTIONS).streams
    assert stream.declared.source.format == "csv"


def test_a_factor_is_a_speed():
    (stream,) = replay_settings(Path("events.csv"), **(OPTIONS | {"speed": "60"})).streams
    assert isinstance(stream.source, SourceSettings)
    assert stream.source.speed == 60


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("e.ndjson", "\n", "it has no event"),
        ("e.csv", "at,k\n", "it has no event, so a replay counts nothing; correct the path"),
        ("e.csv", "\nat,k\n", "its first line is blank; a CSV file begins with the names of its columns"),
        ("e.csv", "at,k\nnoon,a\n", "no event of a sample has a time in at (iso8601): bad_time"),
    ],
)
def test_a_file_that_counts_nothing_is_refused_before_anything_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(content)
    days = ["--from", "2026-03-01T00:00:00Z", "--to", "2026-03-02T00:00:00Z"]
    refused = CliRunner().invoke(main, ["replay", name, "--field", "at", *days, "--state", "kept"])
    [line] = refused.output.splitlines()
    assert (refused.exit_code, said in line) == (2, True), line
    assert [file.name for file in tmp_path.iterdir()] == [name]
