"""What MkDocs does besides: pages from outside docs/, pages made from the code, figures in the page.

MkDocs runs this file in the environment .venv/docs, which has no package of the service. So the pages that
are made from the code come from a process of the service's own environment.
"""

from __future__ import annotations

import json
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).parents[2]
PYTHON = Path(sys.prefix).parent / "bin" / "python"
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)
SHOWN_AS_CODE = {".py": "python", ".lua": "lua", ".js": "javascript", ".sh": "bash", ".c": "c", "": "text"}
SHOWN_AS_CODE |= {".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".conf": "text"}
HOME = "README.md"
DEMO = [f"demo-page/{name}" for name in ("index.html", "style.css", "page.js", "released.js")]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that links lead to outside docs/, and the pages that are made from the code."""
    made = json.loads(subprocess.check_output([PYTHON, "-m", "docs.site.reference"], cwd=REPOSITORY))
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    pages = [f"docs/{file.src_uri}" for file in files if file.src_uri.endswith(".md")]
    waiting = [name for name in pages if (REPOSITORY / name).is_file()]
    outside = [name for name in listed(config.nav) if files.get_file_from_path(name) is None]
    outside = [*outside, *DEMO]
    known: set[str] = set()
    while waiting or outside:
        for target in outside:
            known.add(target)
            files.append(added(target, config))
            waiting += [target] if target.endswith(".md") else []
        found = targets(waiting.pop()) if waiting else set()
        outside = sorted(name for name in found - known - {HOME} if not name.startswith("docs/"))
    return files


def listed(nav: Any) -> list[str]:
    """Return the pages that the navigation names."""
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav or ()
    return [name for one in inner for name in listed(one)]


def added(name: str, config: MkDocsConfig) -> File:
    """Return a file of the repository as a file of the site."""
    path = REPOSITORY / name
    if path.suffix == ".md":
        return File.generated(config, name, content=path.read_text(encoding="utf-8"))
    if name in DEMO:  # its link to the documents leads to the site's first page here
        content = path.read_text(encoding="utf-8").replace('href="../README.md"', 'href="../index.html"')
        return File.generated(config, name, content=content)
    if path.is_dir() or path.suffix in SHOWN_AS_CODE:
        return File.generated(config, place(name), content=shown(path, name))
    return File.generated(config, place(name), abs_src_path=str(path))


def shown(path: Path, name: str) -> str:
    """Return a page that shows a file, or the names in a folder. The search leaves such pages out."""
    head = f"---\nsearch: {{exclude: true}}\nhide: [navigation, toc]\n---\n\n# {name}\n\n"
    if path.is_dir():
        listed = subprocess.check_output(["git", "ls-files", f"{name}/"], cwd=REPOSITORY, text=True)
        return head + "\n".join(f"- `{line}`" for line in listed.splitlines())
    return f"{head}`````{SHOWN_AS_CODE[path.suffix]}\n{path.read_text(encoding='utf-8')}\n`````\n"


def place(name: str) -> str:
    """Return where the site has a file of the repository."""
    if name == HOME:
        return "index.md"
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    path = REPOSITORY / name
    if path.suffix == ".md" or name in DEMO:
        return name
    return f"source/{name}.md" if path.is_dir() or path.suffix in SHOWN_AS_CODE else f"source/{name}"


def targets(page: str) -> set[str]:
    """Return the files and folders of the repository that a page links to."""
    text = FENCE.sub("", (REPOSITORY / page).read_text(encoding="utf-8"))
    links = {found[2] for found in LINK.finditer(text) if ":" not in found[2]}
    return {target for link in links if (target := resolved(page, link))}


def resolved(page: str, link: str) -> str | None:
    """Return the path in the repository that a link of a page leads to; None if nothing is there."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    if (REPOSITORY / target / "README.md").is_file():
        target = posixpath.normpath(f"{target}/README.md")
    return target if (REPOSITORY / target).exists() else None


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page with links into the site, in the dialect of MkDocs."""
    here = page.file.src_uri
    source = f"docs/{here}" if (REPOSITORY / "docs" / here).is_file() else here
    if here.startswith("source/"):
        return markdown
    parts = FENCE.split(markdown)
    parts[::2] = [dialect(linked(part, source, here)) for part in parts[::2]]
    return "".join(parts)


def linked(text: str, source: str, here: str) -> str:
    """Return a text whose links to files of the repository lead to their places in the site."""

    def moved(found: re.Match[str]) -> str:
        target = None if ":" in found[2] else resolved(source, found[2])
        if target is None:
            return found[0]
        return f"]({posixpath.relpath(place(target), posixpath.dirname(here) or '.')}{found[3] or ''})"

    return LINK.sub(moved, text)


def dialect(text: str) -> str:
    """Return a text of GitHub's dialect in that of MkDocs: blank lines before lists, wider inner lists."""
    lines: list[str] = []
    for line in text.split("\n"):
        begins = re.match(r"([-*|]|\d+\.)( |$)", line.lstrip())
        before = lines[-1].lstrip() if lines else ""
        if begins and before and not re.match(r"[-*|]|\d+\. ", before) and not lines[-1].startswith(" "):
            lines.append("")
        nested = re.match(r" {2,3}\S| {6}", line)
        lines.append(f"  {line}" if nested else line)
    return "\n".join(lines)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page with its SVG figures inside, so that they take the colours of the page."""

    def inside(found: re.Match[str]) -> str:
        name = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), found[2]))
        drawn = (REPOSITORY / "docs" / name).read_text(encoding="utf-8")
        return drawn.replace("<svg ", f'<svg class="figure" aria-label="{found[1]}" ', 1)

    return re.sub(r'<img alt="([^"]*)" src="([^"]*\.svg)" ?/?>', inside, html)


def on_post_page(html: str, page: Page, config: MkDocsConfig) -> str:
    """Return a page whose search has a name for screen readers; Material's has none."""
    return html.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add to the navigation what it does not name: the decisions, and new pages directly under docs/."""
    named = set(listed(config.nav))
    top, decisions = (
        sorted(path.relative_to(REPOSITORY / "docs").as_posix() for path in (REPOSITORY / "docs").glob(every))
        for every in ("*.md", "decisions/[0-9]*.md")
    )
    more = {"How to": [name for name in top if name not in named], "Decisions": decisions}
    for entry in config.nav or []:
        for title in more.keys() & entry.keys():
            entry[title] = [entry[title]] if isinstance(entry[title], str) else entry[title]
            entry[title] += more[title]
    return config
