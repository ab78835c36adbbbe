"""Counts of lines, of imports between rooms, and of repeated lines. ``python -m benchmarks.house [ROOT]``

A room is a package or a module directly below ``stream_app`` or ``dphist``. An arrow is an import from one
room to another one, counted once per pair of rooms. A line is repeated if it is part of a run of at least
``RUN`` lines of code that occurs in two places; comments, docstrings and indentation are ignored.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("stream_app", "dphist")
RUN = 6


def sources(root: Path) -> dict[str, str]:
    """Return the text of every module, by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path.read_text()
    return found


def room(module: str) -> str:
    """Return the room of a module: the first two parts of its dotted name."""
    return ".".join(module.split(".")[:2])


def arrows(modules: dict[str, str]) -> set[tuple[str, str]]:
    """Return the pairs of rooms in which the first room imports from the second."""
    found = set()
    for module, text in modules.items():
        for target in imported(ast.parse(text), modules):
            pair = room(module), room(target)
            if pair[0] != pair[1] and pair[0] not in PACKAGES and pair[1] not in PACKAGES:
                found.add(pair)
    return found


def imported(tree: ast.Module, modules: dict[str, str]) -> Iterator[str]:
    """Yield the modules of the project that a module imports, at any place in its code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in modules or node.module in modules:
                    yield inner if inner in modules else node.module


def code_lines(text: str) -> list[tuple[int, str]]:
    """Return the number and the words of each line that holds code, without comments and docstrings."""
    strings = {
        node.value.lineno + offset
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for offset in range((node.value.end_lineno or node.value.lineno) - node.value.lineno + 1)
    }
    words: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING):
            words[token.start[0]].append(token.string)
    return [(number, " ".join(parts)) for number, parts in sorted(words.items()) if number not in strings]


def repeated_lines(modules: dict[str, str]) -> Counter[str]:
    """Return how many lines of each room occur in two places. Imports alone do not count."""
    places: dict[tuple[str, ...], list[tuple[str, list[int]]]] = defaultdict(list)
    for module, text in modules.items():
        lines = [line for line in code_lines(text) if not line[1].startswith(("import ", "from "))]
        for first in range(len(lines) - RUN + 1):
            run = lines[first : first + RUN]
            places[tuple(words for _, words in run)].append((module, [number for number, _ in run]))
    repeated = {
        (module, number)
        for found in places.values()
        if len(found) > 1
        for module, numbers in found
        for number in numbers
    }
    return Counter(room(module) for module, _ in repeated)


def main() -> None:
    modules = sources(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    for package in PACKAGES:
        inside = {name: text for name, text in modules.items() if name.split(".")[0] == package}
        rooms = {room(name) for name in inside} - {package}
        lines = sum(text.count("\n") for text in inside.values())
        repeated = repeated_lines(inside)
        print(
            f"{package}: {lines:,} lines, {len(inside)} files, {len(rooms)} rooms, "
            f"{len(arrows(inside))} arrows between them, {repeated.total()} repeated lines"
        )
        for name, count in repeated.most_common(5):
            print(f"    {name}: {count}")


if __name__ == "__main__":
    main()
