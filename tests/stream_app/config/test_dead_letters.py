"""The section ``dead_letters``: what is kept by default, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_app.config.document import ConfigError
from stream_app.config.load import load_text
from stream_app.config.settings import DAY_US, DeadLetterSettings

STREAM = """
streams:
  clicks:
    source: {file: clicks.ndjson}
    time: {field: at, format: ms, bin: 1s, grace: 1s, epoch: 1h}
    privacy: {epsilon: 1}
"""


def read(section: str) -> DeadLetterSettings:
    return load_text(section + STREAM, Path("app.yaml"), {}).dead_letters


def test_letters_are_kept_a_week_without_content_by_default() -> None:
    assert read("") == DeadLetterSettings(7 * DAY_US, 100_000_000, content=False)


def test_all_settings_are_read() -> None:
    settings = read("dead_letters: {keep: 36h, max_size: 2GB, content: true}")
    assert settings == DeadLetterSettings(36 * 3_600_000_000, 2_000_000_000, content=True)


ACCEPT = "whoever may read the topic reads refused records"
KAFKA = 'kafka: {bootstrap_servers: "localhost:9092"}\n'


def test_a_topic_gets_records_only_if_the_operator_accepts_it() -> None:
    assert read(f"dead_letters: {{topic: refused}}\n{KAFKA}").topic == "refused"
    with pytest.raises(ConfigError, match="content would put whole records into refused; leave it out"):
        read(f"dead_letters: {{topic: refused, content: true}}\n{KAFKA}")
    section = f'dead_letters: {{topic: refused, content: true, accept: "{ACCEPT}"}}\n{KAFKA}'
    assert read(section).content
