"""Streams over access logs: what holds without a word, and what may be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_app.config import StreamSettings, load_text
from stream_app.config.source import by_source
from stream_app.core.meaning import counted_in, epoch_in_words, meaning_of, range_in_words
from tests.blocks.pages import block

WEB = """
streams:
  web:
    source: {file: access.log, format: combined}
    time: {bin: 1h, epoch: 2d, grace: 1m, first: 2026-03-01T00:00:00Z}
    privacy: {epsilon: 1}
"""
OWN = "format: log_format, log_format: '$remote_addr $msec $request'"


def read(text: str) -> StreamSettings:
    """Return the stream of a configuration."""
    return load_text(text, Path("app.yaml"), {}).streams[0]


def test_unit_is_a_visitors_day_and_bots_do_not_count() -> None:
    declared = read(WEB).declared
    assert (declared.time.field, declared.time.format, declared.late) == ("time", "us", "drop")
    assert declared.privacy.per_user is not None
    assert (declared.privacy.per_user.field, declared.privacy.per_user.max_events) == ("visitor", 10)
    assert str(declared.where) == "bot is false"
    assert declared.cell_fields == ("visitor", "bot")


@pytest.mark.parametrize(
    ("privacy", "user", "cap"),
    [
        ("epsilon: 1, unit: {max_events: 3}", "visitor", 3),
        ("epsilon: 1, unit: {user: visitor, max_events: 2}", "visitor", 2),
        ("epsilon: 1, unit: event", None, None),
    ],
)
def test_unit_may_be_written(privacy: str, user: str | None, cap: int | None) -> None:
    per_user = read(WEB.replace("epsilon: 1", privacy)).declared.privacy.per_user
    assert (per_user and per_user.field, per_user and per_user.max_events) == (user, cap)


def test_users_are_visitors_and_a_named_condition_on_bots_is_the_only_one() -> None:
    users = read(f"{WEB}    count: users\n    where: {{bot: [true, false], status: 200}}\n").declared
    assert users.privacy.max_events == 1
    assert meaning_of(users).counts.startswith("Counts each user once per UTC day, in the first bin")
    by = "by events where bot is one of true, false and status is 200"
    assert range_in_words(users, 2) == f"visitors first seen in this range {by}, each once on each UTC day"
    assert epoch_in_words(users, "noon") == f"visitors since noon {by}, each once on each UTC day"
    assert (counted_in(users), meaning_of(users).noun) == ("users first seen", "users first seen")
    assert meaning_of(users).shape.endswith("the first bins of a UTC day are the highest.")
    days = meaning_of(read(f"{WEB}    count: users\n".replace("bin: 1h", "bin: 1d")).declared)
    assert (days.noun, days.shape) == ("visitors", "")
    assert "at most 10 events per user and UTC day" in meaning_of(read(WEB).declared).counts
    assert str(users.where) == "bot is one of true, false and status is 200"


def test_pattern_of_a_log_format_is_a_part_of_the_declaration() -> None:
    other = WEB.replace("format: combined", OWN)
    assert read(other).declared.source.log_format == "$remote_addr $msec $request"
    assert read(other).declared != read(other.replace("$msec ", "$msec  ")).declared


def test_source_of_the_page_is_read() -> None:
    source = block("docs/how-to/web-log.md: source:").text.replace("\n", "\n    ")
    page = WEB.replace("source: {file: access.log, format: combined}", source)
    assert read(page).declared.source.log_format.endswith('"$http_user_agent" $host')


@pytest.mark.parametrize(
    ("other", "sources"),
    [
        ("access.log.1", 1),
        ("access.log-20260301.gz", 1),
        ("access-2026-03-01T11-59-59.123.log", 1),
        ("access.old.log.xz", 1),
        ("'access-*.log'", 1),
        ("'*-20260301.log'", 1),
        ("b.log", 2),
        ("access-ssl.log", 2),
        ("'access-api*.log'", 2),
    ],
)
def test_files_that_a_log_was_rotated_to_are_the_same_log(other: str, sources: int) -> None:
    text = WEB + WEB.partition("streams:\n")[2].replace("web:", "older:").replace("access.log", other)
    streams = load_text(text, Path("app.yaml"), {}).streams
    assert len({id(group) for group in by_source(streams).values()}) == sources
