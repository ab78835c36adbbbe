"""The documents name only what exists: files, commands and their options, symbols, links, addresses."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path

import click
import pytest

from docs.site import reference
from stream_app.api.app import create_app
from tests.models.memory import MemoryStore

REPOSITORY = Path(__file__).parents[1]
COMMANDS = reference.COMMANDS
TRACKED = subprocess.run(
    ["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True
).stdout.split()
FILES = {f"/{name}" for name in TRACKED if (REPOSITORY / name).exists()}
FOLDERS = {f"{parent}" for name in FILES for parent in Path(name).parents}
DOCUMENTS = sorted(name for name in TRACKED if re.fullmatch(r"[^/]+\.md|(docs|deploy|research)/.*\.md", name))
FILE = re.compile(r"[\w./{},-]+(/|\.(py|md|ya?ml|lua|toml|json|conf|properties|sh|js|css|html|txt))")
# Folders and files that commands create.
MADE = {"state/", "dead_letters/", "deploy/secrets/", "pages.txt", "manifest.json"}
# Pages of the documentation site that are made from the code.
BUILT = {REPOSITORY / "docs" / page for page in reference.PAGES}
TESTS = {
    test
    for file in FILES
    if re.search(r"/test_\w+\.py$", file)
    for test in re.findall(r"^ *(?:async )?def (test_\w+)", (REPOSITORY / file[1:]).read_text("utf-8"), re.M)
}


def text_of(document: str) -> str:
    return (REPOSITORY / document).read_text(encoding="utf-8")


def fences(text: str) -> list[tuple[str, str]]:
    """Return the language and the content of every block of code in a page."""
    return re.findall(r"^```(\w*)(?: [^\n]*)?\n(.*?)^```", text, re.M | re.S)


def spans(text: str) -> list[str]:
    """Return the texts between backticks in a page."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def code(text: str) -> str:
    """Return the lines that a reader may type: texts in backticks, and console blocks without comments."""
    typed = [re.sub(r"(?<=\s)#.*", "", block) for language, block in fences(text) if language == "console"]
    return "\n".join([*spans(text), *typed])


def expanded(path: str) -> Iterator[str]:
    """Return the paths that braces stand for: ``a/{b,c}/`` names two folders."""
    parts = [part.strip("{}").split(",") for part in re.split(r"(\{[^}]*\})", path)]
    return map("".join, product(*parts))


def is_there(path: str) -> bool:
    """Return whether a file or folder of the repository ends with this path."""
    if path.endswith("/"):
        return any(f"{folder}/".endswith(f"/{path}") for folder in FOLDERS)
    return any(file.endswith(f"/{path}") for file in FILES)


def missing_files(text: str) -> list[str]:
    named = chain.from_iterable(expanded(span) for span in spans(text) if FILE.fullmatch(span))
    return [path for path in named if path[0] != "/" and path not in MADE and not is_there(path)]


def missing_targets(text: str) -> list[str]:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.M))
    named = re.findall(r"(?:^|\$ )make (?:[A-Z]+=\S+ )*([a-z][a-z-]*)", code(text), re.M)
    return [name for name in named if name not in targets and not any(t.startswith(name) for t in targets)]


def unknown_commands(text: str) -> list[str]:
    """Return the unknown commands, and the options that a command does not have."""
    wrong = []
    for line in code(text).splitlines():
        found = re.match(r"(?:\$ )?(stream-app|dphist) ([a-z][a-z-]*)(.*)", line)
        if not found:
            continue
        group, name, rest = COMMANDS[found[1]], found[2], found[3]
        if name not in group.commands:
            wrong.append(f"{found[1]} {name}")
            continue
        _, command, _ = group.resolve_command(click.Context(group), [name])
        assert command is not None
        known = {option for one in command.params if isinstance(one, click.Option) for option in one.opts}
        named = re.findall(r"(?<=\s)--[a-z][a-z-]*", rest)
        wrong += [f"{found[1]} {name} {option}" for option in named if option not in known]
    return wrong


def imports(source: str) -> Iterator[tuple[str, str | None]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, name.name) for name in node.names)
        elif isinstance(node, ast.Import):
            yield from ((name.name, None) for name in node.names)


def can_be_named(module: str, name: str | None) -> bool:
    """Return whether a module, or a name in it, can be imported."""
    if importlib.util.find_spec(module) is None:
        return False
    return name is None or hasattr(importlib.import_module(module), name)


def missing_symbols(text: str) -> list[str]:
    """Return the dotted names, modules and imports that cannot be found."""
    blocks = chain.from_iterable(imports(block) for language, block in fences(text) if language == "python")
    wrong = [f"{module}.{name}" for module, name in blocks if not can_be_named(module, name)]
    for dotted in re.findall(r"^(?:dphist|stream_app)(?:\.\w+)+$", "\n".join(spans(text)), re.M):
        above, _, last = dotted.rpartition(".")
        if not (
            importlib.util.find_spec(above) and (can_be_named(above, last) or can_be_named(dotted, None))
        ):
            wrong.append(dotted)
    modules = re.findall(r"python -m ([\w.]+)", code(text))
    return wrong + [module for module in modules if importlib.util.find_spec(module) is None]


def missing_tests(text: str) -> list[str]:
    """Return the names of tests that no file defines. Names of test files are checked as files."""
    named = re.findall(r"(?<![\w/])test_\w+(?![\w.*]|\.\w)", "\n".join(spans(text)))
    return [name for name in named if name not in TESTS]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.*)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: str) -> list[str]:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(document)):
        path, _, anchor = link.partition("#")
        if re.match(r"\w+:", path):
            continue
        target = (REPOSITORY / document).parent / path if path else REPOSITORY / document
        if target.resolve() in BUILT:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    return broken


def misplaced(text: str) -> list[str]:
    """Return symbols that are not in the file that is named before them."""
    named = re.findall(r"`([\w/]+\.py)`, `(?!\w+\.py)(?:\w+\.)*(\w+)`", text)
    return [f"{path}: {name}" for path, name in named if not any(defines(file, name) for file in files(path))]


def files(path: str) -> list[Path]:
    """Return the files of the repository that end with this path."""
    return [REPOSITORY / file[1:] for file in FILES if file.endswith(f"/{path}")]


def defines(file: Path, name: str) -> bool:
    """Return whether a file of Python defines a name."""
    return (
        re.search(rf"\b(def|class) {name}\b|^ *{name}\b.*=", file.read_text(encoding="utf-8"), re.M)
        is not None
    )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_commands_symbols_and_links_of_a_document_exist(document: str) -> None:
    text = text_of(document)
    assert missing_files(text) == []
    assert missing_targets(text) == []
    assert unknown_commands(text) == []
    assert missing_symbols(text) == []
    assert missing_tests(text) == []
    assert misplaced(text) == []
    assert broken_links(document) == []


def test_missing_files_commands_and_symbols_are_found() -> None:
    text = (
        "`core/nowhere.py`, `stream_app/{core,nowhere}/`, `make nothing`, `stream-app count`, "
        "`stream-app run --nothing`, `dphist.TreeShape`, `dphist.Nothing`, `python -m nowhere`, "
        "`tests/test_documents.py`, `test_listed_addresses_are_answered`, `test_that_nobody_wrote`, "
        "`core/ledger.py`, `Statement.nothing`\n"
        "```python\nfrom dphist import SystemNoise, Nothing\n```\n"
        "```console\n$ stream-app watch clicks --nowhere 3   # --more\n```\n"
    )
    assert missing_files(text) == ["core/nowhere.py", "stream_app/nowhere/"]
    assert missing_targets(text) == ["nothing"]
    assert unknown_commands(text) == [
        "stream-app count",
        "stream-app run --nothing",
        "stream-app watch --nowhere",
    ]
    assert missing_symbols(text) == ["dphist.Nothing", "dphist.Nothing", "nowhere"]
    assert missing_tests(text) == ["test_that_nobody_wrote"]
    assert misplaced(text) == ["core/ledger.py: nothing"]


@pytest.mark.parametrize(
    "module",
    re.findall(r"^\| `([\w.]+)` \| stable: the names", text_of("docs/stability.md"), re.M),
)
def test_stable_module_lists_its_exports_and_has_them(module: str) -> None:
    exported = importlib.import_module(module).__all__
    assert exported == sorted(set(exported), key=lambda name: (name.upper() != name, name[0].islower(), name))
    assert all(can_be_named(module, name) for name in exported)


def test_listed_addresses_are_answered() -> None:
    answered = set(create_app(MemoryStore().reader()).openapi()["paths"])
    table = text_of("docs/stability.md").split("## HTTP")[1].split("\n## ")[0]
    under = "/v1/streams/{stream}"
    named = [name for name in re.findall(r"`(/[^`]*)`", table) if not name.startswith("/api/")]
    assert [name for name in named if not {name, under + name} & answered] == []
