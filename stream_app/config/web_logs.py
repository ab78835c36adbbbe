"""Streams over access logs: their fields, their defaults, and the rules for a visitor's day."""

from __future__ import annotations

from importlib.util import find_spec
from typing import get_args

from stream_app.config import values
from stream_app.config.document import Section
from stream_app.core.counting.where import AllOf, Condition, OneOf
from stream_app.core.declaration import Declaration, Log, LogFormat, WebLogFormat
from stream_app.core.visits import DAY_US, FIELDS, VISITOR
from stream_app.sources.log_format import pattern_of

MOST_OF_VISITOR = 10  # events of a visitor's day that count, unless the stream says another number
NO_BOTS = OneOf("bot", ("false",))
WEB_LOGS: tuple[WebLogFormat, ...] = get_args(WebLogFormat)


def read_log_format(section: Section, form: LogFormat) -> str:
    """Read ``source.log_format``; empty unless the format is ``log_format``. Raises: ConfigError."""
    if form != "log_format":
        section.refuse("log_format", "belongs to format: log_format; write that, or take log_format out")
        return ""
    return section.take("log_format", _log_format)


def _log_format(value: object) -> str:
    text = values.text(value)
    pattern_of(text)
    return text


def without_bots(where: Condition | None, log: Log) -> Condition | None:
    """Return the condition of a stream: over an access log bots do not count, unless it names them."""
    if not log.is_of_web_server or (where is not None and "bot" in where.fields):
        return where
    if where is None:
        return NO_BOTS
    return AllOf((NO_BOTS, *(where.parts if isinstance(where, AllOf) else (where,))))


def check_web_log(section: Section, declared: Declaration) -> None:
    """Refuse fields that an access log has not, and visitors whose day is no part of one epoch.

    Raises: ConfigError.
    """
    if not declared.source.is_of_web_server:
        return
    if unknown := next((field for field in declared.cell_fields if field not in FIELDS), None):
        text = f'"{unknown}" is no field of an access log; it has {", ".join(FIELDS)}'
        raise section.error("source.format", text)
    if declared.keys is not None and VISITOR in declared.keys.columns:
        raise section.error("keys.field", "visitor names people, so it is no key; count: users counts them")
    if "browser" in declared.cell_fields and find_spec("ua_parser") is None:
        text = "the field browser needs the extra web; install it: pip install 'private-counts[web]'"
        raise section.error("source.format", text)
    if VISITOR in declared.cell_fields:
        check_visitors(section, declared)


def check_visitors(section: Section, declared: Declaration) -> None:
    """Refuse settings by which a visitor's day counts in two epochs, or beyond its caps. Raises: ConfigError.

    A visitor has one name per day of UTC. If an event of the day counted in a later epoch, or after the day's
    key was destroyed, the caps of that visitor would begin anew.
    """
    time, why = declared.time, "a visitor's day must lie in one epoch"
    if declared.late == "next_bin":
        raise section.error("late", "must be drop or dead_letter: a visitor's events count on their own day")
    if time.timezone is not None:
        raise section.error("time.timezone", "is not built for visitors, whose days are UTC's; take it out")
    if time.epoch_bins * time.bin_us % DAY_US:
        raise section.error("time.epoch", f"must be a whole number of days: {why}")
    if time.first_us is None or time.first_us % DAY_US:
        raise section.error("time.first", f"must be the start of a day, as 2026-01-01T00:00:00Z: {why}")
