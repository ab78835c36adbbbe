"""Of several streams some start and others do not: check-config, doctor and a start say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_app.config import Settings, load_text
from stream_app.wiring.checks import noise_of_this_machine
from tests.stream_app.shell.agreement import DAY, JSON, asked, command, empty_store, server, text, write

__all__ = ["empty_store", "server"]
pytestmark = pytest.mark.redis

BESIDE = """  b:
    source: {{file: {file}, {day}}}
    time: {{field: at, format: iso8601, bin: 1h, epoch: 1d}}
    privacy: {{epsilon: 1{more}}}
"""
ONE_OF_TWO = [
    ("measured-twice", "e.ndjson", "", "streams.b.privacy.accept is missing: file:e.ndjson is already"),
    ("no-file", "f.ndjson", "", "streams.b.source.file: "),
    (
        "total",
        "g.ndjson",
        ", total: {epsilon: 0.5}",
        "streams.b.privacy.total: with its 1 epoch(s) the source",
    ),
    ("no-event", "empty.ndjson", "", "streams.b.source.file: "),
    ("accepted", "e.ndjson", ", accept: measured again", ""),
]


@pytest.mark.parametrize(
    ("file", "more", "said"), [row[1:] for row in ONE_OF_TWO], ids=[r[0] for r in ONE_OF_TWO]
)
def test_all_say_which_of_two_streams_starts(tmp_path: Path, file: str, more: str, said: str) -> None:
    write(tmp_path, {"e.ndjson": JSON, "g.ndjson": JSON[:200] + JSON, "empty.ndjson": b""})
    config = tmp_path / "app.yaml"
    config.write_text(text(f"file: e.ndjson, {DAY}", BESIDE.format(file=file, day=DAY, more=more)))
    found = asked(config)
    if not said:
        assert (found.check[0], found.doctor[0], found.run) == (0, 0, None), found
        return
    assert (found.check[0], found.doctor[0]) == (2, 2), found
    assert said in found.check[1]
    last = found.check[1].splitlines()[-1]
    assert last == f"{config}: would start: a; would not start as configured: b"
    if file != "empty.ndjson":  # a replay that is complete and has counted nothing stops no other
        assert found.run is not None
    [line] = [line for line in command(config, "doctor")[1].splitlines() if line.startswith("fail")]
    assert "streams.b" in line


def shared(release: str, more: str = "") -> Settings:
    """Return settings whose stream several workers may share."""
    return load_text(
        f"""{more}
kafka: {{bootstrap_servers: "127.0.0.1:1"}}
outputs: [{{stream: clicks, topic: counts}}]
streams:
  clicks:
    source: {{topic: clicks}}
    time: {{field: at, format: s, bin: 1m, grace: 1s, epoch: 1d}}
    tree: {{release: {release}}}
    privacy: {{epsilon: 1}}
""",
        Path("app.yaml"),
        {},
    )


def test_a_start_says_whose_noise_only_this_machine_can_read() -> None:
    said = "only workers over this state.dir can read the noise of clicks; a worker on another machine"
    assert said in str(noise_of_this_machine(shared("anticipating")))
    assert noise_of_this_machine(shared("causal")) is None
    assert noise_of_this_machine(shared("anticipating", "secrets: {key_file: noise.key}")) is None
    text_of_one = text("file: e.ndjson").replace("0.0", "0")
    assert noise_of_this_machine(load_text(text_of_one, Path("app.yaml"), {})) is None
