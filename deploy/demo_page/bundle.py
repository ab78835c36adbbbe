"""The demo page's files, from its sources and the dashboard's own modules.

Browsers refuse ES modules of a page that was opened from a folder. So all modules become one classic script:
each is a function that returns its exports. ``source/api.js`` replaces the one that asks the service.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "demo-page"
SOURCE = PAGE / "source"
DASHBOARD = REPOSITORY / "stream_app" / "api" / "dashboard"
VENDOR = DASHBOARD / "vendor" / "uplot"
REPLACED = {DASHBOARD / "api.js": SOURCE / "api.js"}
_IMPORT = re.compile(r'^import (?:\{(?P<names>[^}]*)\}|\* as (?P<whole>\w+)) from "(?P<path>[^"]+)";\n', re.M)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.M)
_MADE = "Made by `make demo-page` from demo-page/source/ and stream_app/api/dashboard/. Change those."


def build() -> dict[str, str]:
    """Return the text of every built file by its name.

    Raises: ValueError if a source has a form that this bundler does not know.
    """
    styles = [VENDOR / "uPlot.min.css", DASHBOARD / "style.css", SOURCE / "demo.css"]
    return {
        "index.html": _page(),
        "style.css": f"/* {_MADE} */\n" + "\n".join(map(_text, styles)),
        "page.js": f"// {_MADE}\n{_text(VENDOR / 'uPlot.iife.min.js')}\n{bundled(SOURCE / 'main.js')}",
    }


def bundled(entry: Path) -> str:
    """Return a classic script that runs a module and all that it imports. Raises: ValueError."""
    done: dict[Path, str] = {}
    _add(entry, done, ())
    return '(() => {\n"use strict";\n' + "\n".join(done.values()) + "})();\n"


def _add(module: Path, done: dict[Path, str], importing: tuple[Path, ...]) -> None:
    """Add a module behind the modules that it imports."""
    if module in importing:
        raise ValueError(f"{module}: it imports itself, through {importing[-1].name}")
    text = _text(module)
    for found in _IMPORT.finditer(text):
        needed = _imported(module, found)
        if needed not in done:
            _add(needed, done, (*importing, module))
    body = _IMPORT.sub(lambda found: _binding(module, found), text)
    names = _EXPORT.findall(body)
    body = _EXPORT.sub("", body)
    if left := re.search(r"^(import|export)\b.*", body, re.M):
        raise ValueError(f"{module}: the bundler of the demo page does not know {left[0]!r}")
    done[module] = f"const {_name(module)} = (() => {{\n{body}return {{ {', '.join(names)} }};\n}})();\n"


def _imported(module: Path, found: re.Match[str]) -> Path:
    path = (module.parent / found["path"]).resolve()
    return REPLACED.get(path, path)


def _binding(module: Path, found: re.Match[str]) -> str:
    names = found["whole"] or "{" + found["names"].replace(" as ", ": ") + "}"
    return f"const {names} = {_name(_imported(module, found))};\n"


def _name(module: Path) -> str:
    return "$" + re.sub(r"\W", "_", str(module.relative_to(REPOSITORY).with_suffix("")))


def _page() -> str:
    """Return the page: its source, with the parts that it shares with the page of a stream."""
    stream = _text(DASHBOARD / "stream.html")
    icon = base64.b64encode((DASHBOARD / "icon.svg").read_bytes()).decode()
    parts = {
        "made": f"<!-- {_MADE} -->",
        "icon": f"data:image/svg+xml;base64,{icon}",
        "theme": _text(DASHBOARD / "theme.js"),
        "now": _section(stream, "now").replace("h1", "h2"),  # the page has a title above
        "privacy": _section(stream, "card privacy"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _text(SOURCE / "page.html"))


def _section(page: str, name: str) -> str:
    """Return a section of the page of a stream, by its class. Sections are not nested there."""
    found = re.findall(rf'    <section class="{name}".*?</section>\n', page, re.S)
    if len(found) != 1:
        raise ValueError(f'stream.html: {len(found)} sections with class="{name}", the demo page needs one')
    return str(found[0])


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")
