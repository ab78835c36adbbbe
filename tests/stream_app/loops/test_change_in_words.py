"""What a changed setting is called, in the line that says from when on it holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_app.config import load
from stream_app.core.declaration import Declaration
from stream_app.loops.configured import facts_in_words

STREAM = """
streams:
  clicks:
    source: {{file: log.ndjson}}
    time: {{field: at, format: s, bin: {bin}, grace: {grace}, epoch: 1h{ahead}}}
    privacy: {{epsilon: 1}}
    {more}
"""


def declared(folder: Path, **settings: str) -> Declaration:
    """Return the declaration of a stream with these settings."""
    file = folder / "app.yaml"
    file.write_text(STREAM.format(**{"bin": "10s", "grace": "10s", "ahead": "", "more": ""} | settings))
    return load(file, {}).streams[0].declared


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"more": "where: {status: 200}"}, "where status is 200 instead of not set"),
        ({"grace": "30s"}, "time.grace 30s instead of 10s"),
        ({"grace": "15s"}, "time.grace 15s instead of 10s"),
        ({"ahead": ", max_ahead: 1m"}, "time.max_ahead 1m instead of 10s"),
        (
            {"grace": "5s", "ahead": ", max_ahead: 1m"},
            "time.grace 5s instead of 10s, time.max_ahead 1m instead of 10s",
        ),
    ],
)
def test_a_change_is_named_as_the_configuration_writes_it(
    tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    assert facts_in_words(declared(tmp_path), declared(tmp_path, **settings)) == said


def test_a_changed_condition_is_named_once(tmp_path: Path) -> None:
    before = declared(tmp_path, more="where: {status: 200}")
    after = declared(tmp_path, more="where: {country: [FR, DE]}")
    assert facts_in_words(before, after) == "where country is one of FR, DE instead of status is 200"
