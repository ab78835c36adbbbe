"""No module imports itself through others, not even for a type: each can be read before those that use it."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[1]


def imported(source: Path, modules: set[str]) -> set[str]:
    """Return the modules that a file imports when it is loaded, or for types only."""
    blocks, found = [ast.parse(source.read_text())], set[str]()
    for block in blocks:
        for one in block.body:
            if isinstance(one, ast.If):
                blocks.append(one)  # type: ignore[arg-type]  # it has a body, too
            elif isinstance(one, ast.Import):
                found |= {name.name for name in one.names}
            elif isinstance(one, ast.ImportFrom):
                inner = {f"{one.module}.{name.name}" for name in one.names}
                found |= {name if name in modules else str(one.module) for name in inner}
    return found & modules


@pytest.mark.parametrize("package", ["dphist", "stream_app"])
def test_no_module_imports_itself_through_others(package: str) -> None:
    files = {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (REPOSITORY / package).rglob("*.py")
    }
    graph = {name: imported(path, set(files)) for name, path in files.items()}
    assert sum(map(len, graph.values())) > len(files)
    TopologicalSorter(graph).prepare()  # raises CycleError with the circle
