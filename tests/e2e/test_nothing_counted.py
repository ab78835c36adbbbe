"""Commands that count nothing say so: the reason, the remedy and, for a replay, the exit status."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from deploy.ports import free_port
from tests.e2e.service import Service

pytestmark = [pytest.mark.redis, pytest.mark.slow]

BEGIN_S = 1_704_067_200  # 2024-01-01
REPLAY = [
    "--field",
    "at",
    "--time-format",
    "s",
    "--bin",
    "1h",
    "--to",
    "2024-01-02T00:00:00Z",
    "--state",
    "state",
]


def write_clicks(folder: Path, begin_s: int = BEGIN_S) -> None:
    lines = (json.dumps({"at": begin_s + n}) for n in range(400))
    (folder / "clicks.ndjson").write_text("\n".join(lines) + "\n")


def test_a_replay_ends_with_what_it_refused_and_why(tmp_path: Path) -> None:
    write_clicks(tmp_path)
    with Service(["replay", "clicks.ndjson", *REPLAY, "--from", "2024-01-01T12:00:00Z"], tmp_path) as replay:
        assert replay.wait() == 2, replay.output
    assert "replay: nothing was counted, every record was refused (before_first_bin: " in replay.output
    refused, private = replay.lines[-2:]
    assert refused.startswith(
        "replay: 400 refused as before_first_bin: they are dated before the first bin; "
    )
    assert "private" in private


def test_a_replay_in_the_wrong_unit_measures_nothing(tmp_path: Path) -> None:
    write_clicks(tmp_path)
    words = ["replay", "clicks.ndjson", *REPLAY, "--from", "2024-01-01T00:00:00Z", "--time-format", "ms"]
    with Service(words, tmp_path) as replay:
        assert replay.wait() == 2
    line = replay.lines[-1]
    assert line.startswith(
        "stream-app: --time-format: its times have 10 digits: they are of 1970-01 when read as ms, "
    )
    assert line.endswith("did you mean s?")
    assert not (tmp_path / "state").exists()


def test_a_replay_of_a_field_that_no_event_has_measures_nothing(tmp_path: Path) -> None:
    write_clicks(tmp_path)
    words = ["replay", "clicks.ndjson", *REPLAY, "--from", "2024-01-01T00:00:00Z", "--field", "nope"]
    with Service(words, tmp_path) as replay:
        assert replay.wait() == 2
    assert replay.lines[-1] == (
        "stream-app: FILE: no event of a sample has the field nope; it has at; correct --field"
    )
    assert not (tmp_path / "state").exists()


def test_a_replay_that_counts_says_what_it_refused_and_succeeds(tmp_path: Path) -> None:
    write_clicks(tmp_path)
    with (tmp_path / "clicks.ndjson").open("a") as file:
        file.write('{"at": "noon"}\n')
    with Service(["replay", "clicks.ndj*", *REPLAY, "--from", "2024-01-01T00:00:00Z"], tmp_path) as replay:
        assert replay.wait() == 0, replay.output
    assert any(
        line.startswith("replay: 1 refused as bad_time: ")
        and line.endswith("correct --field or --time-format")
        for line in replay.lines
    )
    assert "Set ledger" not in replay.output
    again = "or count the file again with another --state DIR, which costs its epsilon once more"
    for option, said in (
        (["--bin", "2h"], "--bin was 1h when the stream began and is 2h now"),
        (
            ["--name", "again"],
            "FILE: file:../clicks.ndj* is already measured by replay from 2024-01-01T00:00",
        ),
    ):
        words = ["replay", "clicks.ndj*", *REPLAY, "--from", "2024-01-01T00:00:00Z", *option]
        with Service(words, tmp_path) as replay:
            assert replay.wait() == 2, replay.output
        assert said in replay.output, replay.output
        assert again in replay.output, replay.output


def test_run_warns_while_most_records_are_refused(tmp_path: Path) -> None:
    write_clicks(tmp_path, int(time.time()))
    text = f"""
redis: {{url: "embedded:./redis"}}
api: {{port: {free_port()}}}
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: ms, bin: 1s, grace: 1s, epoch: 1h}}
    privacy: {{epsilon: 1}}
"""
    (tmp_path / "app.yaml").write_text(text)
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until("clicks: most records of the last 10 minutes were refused, mostly as before_first_bin")
        assert "correct time.field or time.format" in service.output
        assert service.interrupt() == 0


def test_a_replay_without_a_record_in_its_range_does_not_succeed(tmp_path: Path) -> None:
    """All records are after the range. A second start finds the replay complete, and succeeds."""
    write_clicks(tmp_path, BEGIN_S + 10 * 86_400)
    words = ["replay", "clicks.ndjson", *REPLAY, "--from", "2024-01-01T00:00:00Z"]
    with Service(words, tmp_path) as replay:
        assert replay.wait() == 2, replay.output
    assert "replay: nothing was counted, no record lies in the range" in replay.output
    with Service(words, tmp_path) as replay:
        assert replay.wait() == 0, replay.output


def test_run_and_worker_of_a_replay_without_records_do_not_succeed(tmp_path: Path) -> None:
    write_clicks(tmp_path, BEGIN_S + 10 * 86_400)
    for name, command in (("one", ["run", "--until-complete"]), ("two", ["worker"])):
        folder = tmp_path / name
        folder.mkdir()
        text = f"""
redis: {{url: "embedded:./redis"}}
api: {{port: {free_port()}}}
streams:
  {name}:
    source: {{file: ../clicks.ndjson, replay: {{from: 2024-01-01T00:00:00Z, to: 2024-01-02T00:00:00Z}}}}
    time: {{field: at, format: s, bin: 1h, epoch: 1d}}
    privacy: {{epsilon: 1}}
"""
        (folder / "app.yaml").write_text(text)
        with Service([*command, "--config", "app.yaml"], folder) as service:
            assert service.wait() == 2, service.output
        assert f"{name}: nothing was counted, no record lies in the range" in service.output


def test_a_condition_that_leaves_every_record_out_succeeds(tmp_path: Path) -> None:
    """A count of 0 is an answer: the records lie in the range, and none of them matches."""
    write_clicks(tmp_path)
    text = """
redis: {url: "embedded:./redis"}
streams:
  errors:
    source: {file: clicks.ndjson, replay: {from: 2024-01-01T00:00:00Z, to: 2024-01-02T00:00:00Z}}
    time: {field: at, format: s, bin: 1h, epoch: 1d}
    privacy: {epsilon: 1}
    where: {status: 500}
"""
    (tmp_path / "app.yaml").write_text(text)
    with Service(["worker", "--config", "app.yaml"], tmp_path) as service:
        assert service.wait() == 0, service.output
