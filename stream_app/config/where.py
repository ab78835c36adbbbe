"""The condition under ``where``: which records a stream counts."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from stream_app.config import values
from stream_app.config.document import Section
from stream_app.config.plain_yaml import as_written
from stream_app.core.counting.where import AllOf, AnyOf, Condition, Not, OneOf, Present, Within

MOST_TESTS = 64  # of one stream, and values of one test: every record is compared with all of them
_MOST_VALUES = 1_000
_LONGEST_VALUE = 200
_TESTS = ("min", "above", "max", "below", "present")
_EQUALS = ("equals", "is", "in")  # what people guess for a test that a field has a value


def read_where(section: Section) -> Condition | None:
    """Read the condition of a stream; None if the stream counts every record. Raises: ConfigError."""
    if not section.written:
        return None
    condition = _condition(section)
    if len(list(_tests(condition))) > MOST_TESTS:
        raise section.error("", f"holds more than {MOST_TESTS} tests; list several values in one test")
    return condition


def _condition(section: Section) -> Condition:
    """Read a mapping; all of its conditions must hold."""
    if not section.names():
        raise section.error("", "is empty; name a field, for example {country: FR}")
    _check_guess(section)
    parts = tuple(_part(section, name) for name in section.names())
    section.finish()
    return parts[0] if len(parts) == 1 else AllOf(parts)


def _check_guess(section: Section) -> None:
    """Refuse {field: amount, min: 1}, which would compare fields that are named "field" and "min".

    For such fields write the value of ``field`` as a list, which means the same.
    Raises: ConfigError.
    """
    guessed = [name for name in (*_TESTS, *_EQUALS) if name in section.names()]
    if not section.holds_value("field") or not guessed:
        return
    field = section.take("field", str, read=as_written)
    tests = ", ".join(f"{name}: {section.take(name, str, read=as_written)}" for name in guessed)
    meant = (
        f"{{{field}: FR}} or {{{field}: [FR, DE]}}" if guessed[0] in _EQUALS else f"{{{field}: {{{tests}}}}}"
    )
    raise section.error(
        "field",
        f"and {guessed[0]} would be two fields of the events; for a test of {field} write {meant}; if fields "
        f"have these names write field: [{field}]",
    )


def _part(section: Section, name: str) -> Condition:
    if name in ("all", "any"):
        parts = tuple(map(_condition, section.sections(name)))
        return AllOf(parts) if name == "all" else AnyOf(parts)
    if name == "not":
        return Not(_condition(section.section(name)))
    if not section.holds_keys(name):
        return OneOf(name, section.take(name, _listed, read=as_written))
    return _test(section.section(name), name)


def _test(section: Section, field: str) -> Condition:
    """Read whether a field must be present, or the ends of its range."""
    for name in section.names():
        if name not in _TESTS:
            raise section.error(
                name,
                f"is no test of a field; known are {', '.join(_TESTS)}; for an equal value write "
                f"{{{field}: FR}}, for one of several {{{field}: [FR, DE]}}",
            )
    present = section.take("present", values.flag, None)
    low, high = _end(section, "min", "above"), _end(section, "max", "below")
    section.finish()
    if (present is None) == (low is high is None):
        raise section.error(
            "", "must hold ends of a range, for example {min: 0, below: 100}, or present: true"
        )
    if present is not None:
        return Present(field) if present else Not(Present(field))
    if low and high and (low[1] > high[1] or (low[1] == high[1] and (low[0], high[0]) != ("min", "max"))):
        raise section.error(high[0], f"leaves no number beside {low[0]}; move one of them")
    return Within(field, **dict(filter(None, (low, high))))


def _end(section: Section, closed: str, open: str) -> tuple[str, Fraction] | None:
    """Return the name and the place of one end of a range; None for no end on this side."""
    ends = {name: section.take(name, values.signed_fraction, None) for name in (closed, open)}
    given = [(name, end) for name, end in ends.items() if end is not None]
    if len(given) == 2:
        raise section.error(open, f"is a second end beside {closed}; take one of them out")
    return given[0] if given else None


def _tests(condition: Condition) -> Iterator[Condition]:
    if isinstance(condition, AllOf | AnyOf):
        for part in condition.parts:
            yield from _tests(part)
    elif isinstance(condition, Not):
        yield from _tests(condition.part)
    else:
        yield condition


def _listed(value: object) -> tuple[str, ...]:
    if value is None:
        raise ValueError(
            "names no value; write a word, a number or a list; no value at all is {present: false}"
        )
    listed = value if isinstance(value, list) else [value]
    if not 0 < len(listed) <= _MOST_VALUES:
        raise ValueError(f"must be a value or a list of 1 to {_MOST_VALUES} values")
    for one in listed:
        if not isinstance(one, str) or not 0 < len(one) <= _LONGEST_VALUE:
            raise ValueError(f"{one!r} is not a value; write words or numbers, null as {{present: false}}")
    return tuple(dict.fromkeys(listed))
