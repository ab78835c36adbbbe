"""``python -m tests.page_pictures [NAME ...]``: photograph every page in every state, to be looked at.

Desktop and phone, light and dark, into artifacts/pages/, with an index.html that has them side by side. The
pictures are WebP without loss of few colours, so that all of them stay below 6 MB. The states in ``MAIN``
have all four looks, the others two. A page that is wider than its window is a fault, and so is what axe-core
finds.
"""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page

from tests.ending import end_all_with_this_run
from tests.services import REPOSITORY
from tests.stream_app.api.accessibility import faults
from tests.stream_app.api.browsing import ARTIFACTS, Backstage, launched
from tests.stream_app.api.page_states import EMPTY, STATES, State, States, shown

PLACE = ARTIFACTS / "pages"
LOOKS: dict[str, dict[str, Any]] = {
    "desktop-light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "phone-dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
    "desktop-dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone-light": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
TWO = tuple(LOOKS)[:2]
MAIN = ("overview", "stream", "keys-and-values", "sum", "stream-loading", "first-bin-open")
COLOURS = 40
LARGEST = 6_000_000  # bytes of all pictures


def looks_of(name: str) -> tuple[str, ...]:
    """Return the looks in which a state is photographed."""
    return tuple(LOOKS) if name in MAIN else TWO


def save(page: Page, name: str) -> int:
    """Save a picture of a whole page with few colours; return its bytes."""
    taken = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    few = taken.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.convert("RGB").save(PLACE / f"{name}.webp", lossless=True, method=4)
    return (PLACE / f"{name}.webp").stat().st_size


def photographed(
    browser: Browser, address: str, states: dict[str, State]
) -> Iterator[tuple[str, int, list[str]]]:
    """Photograph states; yield each picture's name, its bytes, and what is wrong with the page."""
    for name, state in states.items():
        for look in looks_of(name):
            with shown(browser, address, state, **LOOKS[look]) as page:
                size, wrong = save(page, f"{name}-{look}"), faults(page)
                if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                    wrong.append("wider than its window")
                yield f"{name}-{look}", size, wrong


def commit() -> str:
    """Return the commit that the pictures show."""
    asked = ["git", "describe", "--always", "--dirty"]
    told = subprocess.run(asked, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "an unknown commit"


def index() -> str:
    """Return a page with all pictures, a row for each state."""
    rows = [f"<p>Made by <code>make pictures</code> of {commit()}.</p>"]
    for name in (*STATES, *EMPTY):
        files = [f"{name}-{look}.webp" for look in looks_of(name)]
        shots = "".join(f'<a href="{one}"><img loading="lazy" src="{one}" alt="{one}"></a>' for one in files)
        rows.append(f"<h2>{name}</h2><p>{shots}</p>")
    style = "body{font:16px sans-serif;background:#999}img{width:23%;margin:0 1%;vertical-align:top}"
    head = f'<meta charset="utf-8"><title>Every page in every state</title><style>{style}</style>'
    return f'<!doctype html><html lang="en">{head}{"".join(rows)}</html>'


def main(wanted: list[str]) -> int:
    """Photograph the wanted states, or all; return the exit status."""
    PLACE.mkdir(parents=True, exist_ok=True)
    full, empty = States(), Backstage()
    total, found = 0, list[str]()
    with launched() as browser:
        for address, states in ((full.address, STATES), (empty.start(), EMPTY)):
            chosen = {name: state for name, state in states.items() if not wanted or name in wanted}
            for name, size, wrong in photographed(browser, address, chosen):
                total += size
                found += [f"{name}: {one}" for one in wrong]
                print(f"{name:40} {size / 1000:6.0f} kB", flush=True)
    full.close()
    empty.close()
    (PLACE / "index.html").write_text(index())
    print(f"{total / 1e6:.1f} MB in {PLACE}")
    if total > LARGEST:
        found.append(f"The pictures are larger than {LARGEST / 1e6:.1f} MB: lower COLOURS.")
    print("\n".join(found) or "axe-core finds nothing, and every page fits its window.")
    return 1 if found else 0


if __name__ == "__main__":
    end_all_with_this_run()
    sys.exit(main(sys.argv[1:]))
