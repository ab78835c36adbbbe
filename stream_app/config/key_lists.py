"""Lists of keys in files, one key a line: ``keys.list_file``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from stream_app.config import values
from stream_app.config.document import Section
from stream_app.config.plain_yaml import as_written

LONGEST_KEY = 200


def read_names(section: Section, directory: Path) -> tuple[str, ...]:
    """Read a list of keys, from ``list`` or from the file that ``list_file`` names. Raises: ConfigError.

    Args: directory, of the configuration; the file's path is relative to it.
    """
    if "list_file" not in section.names():
        return section.take("list", listed, read=as_written)
    section.refuse("list", "does not stand beside keys.list_file; take one of them out")
    return section.take("list_file", in_file(directory))


def in_file(directory: Path) -> Callable[[object], tuple[str, ...]]:
    """Return a function that reads the keys in a file.

    Each line is a key, exactly as it stands there; empty lines are skipped. The function raises ValueError.
    """

    def read(value: object) -> tuple[str, ...]:
        file = directory / values.text(value)
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as failure:
            why = getattr(failure, "strerror", None) or "it is not UTF-8 text"
            raise ValueError(f"{file} cannot be read: {why}; name a file with one key a line") from None
        return _checked(file, [line.removesuffix("\r") for line in text.split("\n")])

    return read


def _checked(file: Path, lines: Sequence[str]) -> tuple[str, ...]:
    line_of: dict[str, int] = {}
    for number, key in enumerate(lines, start=1):
        if len(key) > LONGEST_KEY:
            raise ValueError(f"line {number} of {file} is longer than {LONGEST_KEY} characters; shorten it")
        if key and line_of.setdefault(key, number) != number:
            raise ValueError(f"line {number} of {file} repeats line {line_of[key]}; take one of them out")
    if not line_of:
        raise ValueError(f"{file} is empty; write one key a line")
    return tuple(key for key in line_of if key)


def listed(value: object) -> tuple[str, ...]:
    """Return the keys that are written in the configuration itself. Raises: ValueError."""
    if not isinstance(value, list) or not value:
        raise ValueError("must be a list of keys, for example [UA, AA, DL]")
    for key in value:
        if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY:
            raise ValueError(f"{key!r} is not a key; write words or numbers, null in quotes")
    names = tuple(value)
    if len(set(names)) < len(names):
        raise ValueError("holds a key twice; an event has exactly one")
    return names
