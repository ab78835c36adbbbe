"""Read a page of the tutorial: the files that it shows, the commands that a reader types, what they print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "tutorial"
# Lessons, each with the lesson whose files and services it goes on with.
LESSONS = {
    **dict.fromkeys(["demo", "file", "topic", "web-page", "alerts", "library"]),
    "grafana": "file",
}
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]*)\")?\n(.*?)^```$", re.M | re.S)
FIRST_TERMINAL = "first terminal"


@dataclass(frozen=True)
class Written:
    """A file that the reader saves."""

    name: str
    text: str


@dataclass(frozen=True)
class Typed:
    """A command that the reader types. Args: printed, what the page says that it prints, if it says so."""

    command: str
    terminal: str
    printed: tuple[str, ...] = ()


def steps(page: Path) -> Iterator[Written | Typed]:
    """Yield the steps of a page in their order."""
    for language, title, text in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "console":
            yield from _commands(text, title or FIRST_TERMINAL)
        elif title:
            yield Written(title, text)


def _commands(text: str, terminal: str) -> Iterator[Typed]:
    for block in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, *printed = block.rstrip("\n").split("\n")
        yield Typed(command, terminal, tuple(printed))


def is_as_written(printed: str, page: tuple[str, ...]) -> bool:
    """Return whether a command printed what its page says. Numbers, times and spaces may differ.

    A line ``...`` on the page stands for any lines, and ``...`` within a line for any text.

    >>> is_as_written("573  (95 %: 555 to 590)", ("601 (95 %: 580 to 622)",))
    True
    >>> is_as_written("one\\ntwo 2\\nthree", ("...", "two 3", "..."))
    True
    >>> is_as_written("", ("...",)), is_as_written("two", ("three",))
    (True, False)
    """
    if not page:
        return True
    lines = (re.escape(_shape(line)).replace(re.escape("..."), ".*") + r"\n" for line in page)
    wanted = "".join(r"(?:.*\n)*" if line == r".*\n" else line for line in lines)
    return re.fullmatch(wanted, f"{_shape(printed)}\n") is not None


def _shape(text: str) -> str:
    """Return a text without what differs from run to run."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)", "TIME", text)
    text = re.sub(r"-?\d[\d,.]*\d(?:e-?\d+)?|-?\d", "0", text)
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())
