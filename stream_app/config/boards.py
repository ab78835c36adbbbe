"""The section ``boards``: pages of panels, each with its streams; and annotations of a board or a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from stream_app.config import values
from stream_app.config.access import read_origins
from stream_app.config.document import Section
from stream_app.config.settings import StreamSettings
from stream_app.core.answers.asked_keys import AskedKeys, KeyNameError
from stream_app.core.boards import (
    MEASURES,
    MOST_ANNOTATIONS,
    MOST_LINES,
    MOST_PANELS,
    OF_VALUES,
    SEVERAL,
    SHOWS,
    Annotation,
    Board,
    Line,
    Panel,
)

_EVERYTHING = "all"

_MOST_TEXT = 200


def read_boards(section: Section, streams: Sequence[StreamSettings]) -> tuple[Board, ...]:
    """Read the section. Raises: ConfigError for a panel that its streams cannot fill."""
    by_name = {stream.name: stream for stream in streams}
    return tuple(_board(section.named(name), name, by_name) for name in section.names())


def _board(section: Section, name: str, streams: Mapping[str, StreamSettings]) -> Board:
    panels = section.section("panels")
    board = Board(
        name=name,
        title=section.take("title", line_of_text, name),
        panels=tuple(_panel(panels.named(panel), panel, streams) for panel in panels.names()),
        annotations=read_annotations(section),
        range_us=section.take("range", _range_us, None),
        embed=section.take("embed", read_origins, ()),
    )
    section.finish()
    if not board.panels:
        raise section.error(
            "panels", "has none; add one, for example {visits: {show: bins, streams: [clicks]}}"
        )
    if len(board.panels) > MOST_PANELS:
        raise section.error("panels", f"are {len(board.panels)}; keep {MOST_PANELS}, and make a second board")
    return board


def _panel(section: Section, name: str, streams: Mapping[str, StreamSettings]) -> Panel:
    panel = Panel(
        name=name,
        show=section.take("show", values.one_of(*SHOWS)),
        lines=section.take("streams", _lines),
        measure=section.take("measure", values.one_of(*MEASURES), "count"),
        title=section.take("title", line_of_text, ""),
        range_us=section.take("range", _range_us, None),
    )
    section.finish()
    for line in panel.lines:
        if line.stream not in streams:
            raise section.error(
                "streams", f"name {line.stream}, which is not here; known: {', '.join(streams)}"
            )
        _check_line(section, panel, line, streams[line.stream])
    for one, other in pairwise(panel.lines):
        _check_together(section, panel, streams[one.stream], streams[other.stream])
    return panel


def _check_line(section: Section, panel: Panel, line: Line, stream: StreamSettings) -> None:
    """Refuse a panel that the stream's releases cannot fill. Raises: ConfigError."""
    declared, name = stream.declared, stream.name
    keys, lines = declared.cells.keys, "streams"
    if declared.windows_of is not None and (line.key is not None or panel.show in OF_VALUES | {"keys"}):
        raise section.error(lines, f"{name} releases keys and values in windows, which boards do not show")
    if panel.show in OF_VALUES and declared.cells.buckets is None:
        raise section.error("show", f"{panel.show} needs a value, and {name} has none; choose another")
    if panel.show == "keys" and keys is None:
        raise section.error("show", f"keys needs a stream with keys, and {name} has none; choose another")
    if panel.measure != "count" and declared.amounts is None:
        raise section.error("measure", f"{panel.measure} needs a sum, and {name} has none; take it out")
    if panel.measure != "count" and panel.show in OF_VALUES | {"alerts"}:
        raise section.error("measure", f"does not apply to {panel.show}; take it out")
    if line.key is None:
        return
    if panel.show in ("keys", "alerts"):
        raise section.error(lines, f"{line}: {panel.show} is about a whole stream; write {name}")
    if keys is None:
        raise section.error(lines, f"{line}: {name} has no keys; write {name}")
    if keys.discover is not None:
        return  # a key may be found later
    try:
        if line.key not in keys.place_of_label and not keys.matching(line.key):
            known = ", ".join([*keys.labels[:10], *filter(None, [keys.a_pattern])])
            raise section.error(lines, f"{line}: {line.key!r} is not on the list of {name}: {known}")
        AskedKeys((line.key,)).places(keys)
    except KeyNameError as refusal:
        raise section.error(lines, f"{line}: {refusal}") from None


def _check_together(section: Section, panel: Panel, one: StreamSettings, other: StreamSettings) -> None:
    """Refuse streams whose numbers cannot be compared in one chart. Raises: ConfigError."""
    if panel.show not in SEVERAL:
        raise section.error("streams", f"must be one for {panel.show}; give each stream its own panel")
    zones = {stream.declared.time.timezone for stream in (one, other)}
    if len(zones) > 1:
        line = f"{one.name} and {other.name} have days of other time zones, or bins of other kinds"
        raise section.error("streams", f"{line}; give each its own panel")
    units = [_unit(stream, panel) for stream in (one, other)]
    if units[0] != units[1]:
        line = f"{one.name} counts {units[0]} and {other.name} {units[1]}, so they share no axis"
        raise section.error("streams", f"{line}; give each its own panel")


def _unit(stream: StreamSettings, panel: Panel) -> str:
    """Return the unit of the values of a panel's chart."""
    amounts = stream.declared.amounts
    if panel.measure == "count" or amounts is None:
        return "users" if stream.declared.count == "users" else "events"
    return amounts.field


def _lines(value: object) -> tuple[Line, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(one, str) and one for one in value):
        raise ValueError("must be a list of streams, for example [clicks, clicks/FR]")
    if len(value) > MOST_LINES:
        raise ValueError(
            f"must be at most {MOST_LINES}; more lines cannot be told apart, so make a second panel"
        )
    if len(set(value)) < len(value):
        raise ValueError("must name each stream, or each of its keys, once; take the second one out")
    return tuple(map(Line.of, value))


def _range_us(value: object) -> int | None:
    return None if value == _EVERYTHING else values.positive_duration_us(value)


def read_annotations(section: Section) -> tuple[Annotation, ...]:
    """Read the list ``annotations`` of a board or a stream, by time. Raises: ConfigError."""
    if "annotations" not in section.names():
        return ()
    found = [_annotation(one) for one in section.sections("annotations")]
    if len(found) > MOST_ANNOTATIONS:
        raise section.error("annotations", f"are {len(found)}; keep at most {MOST_ANNOTATIONS}")
    return tuple(sorted(found, key=lambda one: one.start_us))


def line_of_text(value: object) -> str:
    """Read one line of text that everybody may read."""
    text = values.text(value).strip()
    if not text or len(text) > _MOST_TEXT or not text.isprintable():
        raise ValueError(f"must be one line of at most {_MOST_TEXT} characters; every reader may see it")
    return text


def _annotation(section: Section) -> Annotation:
    at_us = section.take("at", values.instant_us, None)
    from_us, to_us = (
        section.take("from", values.instant_us, None),
        section.take("to", values.instant_us, None),
    )
    text, link = section.take("text", line_of_text), section.take("link", _link, "")
    section.finish()
    if at_us is not None:
        for key in ("from", "to"):
            section.refuse(key, "is for a length of time, and at for an instant; keep one of them")
        return Annotation(at_us, None, text, link)
    if from_us is None or to_us is None:
        raise section.error("at", "is missing; write at for an instant, or from and to for a length of time")
    if to_us <= from_us:
        raise section.error("to", "is not later than from; exchange them, or write at for an instant")
    return Annotation(from_us, to_us, text, link)


def _link(value: object) -> str:
    values.url(value, ("http", "https"))
    return str(value)
