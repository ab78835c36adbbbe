"""This project's docstrings as Markdown, for mkdocstrings: labelled sentences, and doctests as code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

LABEL = re.compile(r"((?:Args|Attributes|Returns|Raises|Guarantee|Cost|Source)(?: \([^)]*\))?): ?(.*)")
NAMED = re.compile(r"(\*{0,2}\w+): (.*)")


class Labelled(Extension):  # type: ignore[misc]  # griffe is in another environment
    """Rewrites every docstring before it is shown."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Write the docstring of one object as Markdown."""
        if obj.docstring:
            text = obj.docstring.value
            # The rest of a module's text is for those who change it.
            obj.docstring.value = text.partition("\n\n")[0] if obj.is_module else as_markdown(text)


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown.

    A label and what follows it become a paragraph. If its lines begin with names, they become a list.
    """
    lines: list[str] = []
    in_code = False
    for line in text.splitlines():
        if line.startswith(">>>") and not in_code:
            in_code = True
            lines += ["", "```pycon"]
        elif in_code and not line:
            in_code = False
            lines.append("```")
        if in_code:
            lines.append(line)
        elif label := LABEL.match(line):
            lines += ["", f"**{label[1]}.** {label[2]}".rstrip()]
        elif named := NAMED.match(line.lstrip()) if line.startswith(" ") else None:
            lines += ["", f"- `{named[1]}`: {named[2]}"]
        else:
            lines.append(line.strip() if line.startswith(" ") else line)
    return "\n".join([*lines, "```"] if in_code else lines)
