"""Read the blocks of code in the documents, and the commands in a block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = sorted(
    f"{page.relative_to(REPOSITORY)}"
    for page in (
        REPOSITORY / "README.md",
        REPOSITORY / "CONTRIBUTING.md",
        REPOSITORY / "deploy" / "README.md",
        *(REPOSITORY / "docs").rglob("*.md"),
    )
)
_FENCE = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A block of code. Args: document, by its path in the repository; title, the words after the language."""

    document: str
    language: str
    title: str
    text: str

    @property
    def name(self) -> str:
        """The document and the first line of the block without its comment, which tell blocks apart."""
        return f"{self.document}: {re.split(r' +# ', self.text.splitlines()[0])[0]}"

    @property
    def commands(self) -> list[str]:
        """The commands that a reader types, without what they print."""
        if self.language != "console":
            return [self.text]
        # A command goes on in the next line after a backslash.
        return re.findall(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)", self.text, re.M)


def blocks(document: str) -> Iterator[Block]:
    """Yield the blocks of a document in their order."""
    for _, language, title, text in _FENCE.findall((REPOSITORY / document).read_text(encoding="utf-8")):
        yield Block(document, language, title.strip(), dedent(text))


def block(name: str) -> Block:
    """Return the first block with a name. Raises: StopIteration if no block has it."""
    return next(one for one in blocks(name.partition(": ")[0]) if one.name == name)
