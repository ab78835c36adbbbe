"""Annotations of a board or a stream: texts beside times of its charts."""

from __future__ import annotations

from stream_app.config import values
from stream_app.config.document import Section
from stream_app.core.boards import MOST_ANNOTATIONS, Annotation

_MOST_TEXT = 200


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
