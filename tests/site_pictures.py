"""``python -m tests.site_pictures``: open the built site in a browser, desktop and phone, light and dark.

No page may ask another host, log an error or be wider than its window. Pictures go to artifacts/site/.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Browser

from tests.ending import end_all_with_this_run
from tests.services import REPOSITORY
from tests.stream_app.api.browsing import ARTIFACTS, launched

SITE = REPOSITORY / "site"
AXE = REPOSITORY / "tests" / "vendor" / "axe-core" / "axe.min.js"
GRAVE = ("serious", "critical")
PAGES = (
    "index",
    "tutorial/file",
    "explanation/noise",
    "explanation/comparison",
    "reference/commands",
    "reference/http",
    "reference/dphist",
    "configuration",
    "privacy",
    "faq",
)
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def faults(browser: Browser, base: str, page: str, size: str, colours: str) -> list[str]:
    """Photograph one page; return what is wrong with it."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height})
    wrong: list[str] = []
    try:
        opened = context.new_page()
        opened.emulate_media(color_scheme="dark" if colours == "dark" else "light")
        opened.on(
            "request", lambda one: None if one.url.startswith((base, "data:")) else wrong.append(one.url)
        )
        opened.on("console", lambda one: wrong.append(one.text) if one.type == "error" else None)
        opened.goto(f"{base}/{page}.html", wait_until="networkidle")
        if opened.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wrong.append("wider than its window")
        opened.add_script_tag(path=AXE)
        found = opened.evaluate("axe.run()")["violations"]
        wrong += [f"{one['id']}: {one['nodes'][0]['html'][:120]}" for one in found if one["impact"] in GRAVE]
        place = ARTIFACTS / "site" / f"{page.replace('/', '-')}-{size}-{colours}.png"
        opened.screenshot(path=place)
    finally:
        context.close()
    return [f"{page}, {size}, {colours}: {what}" for what in wrong]


def main(site: Path) -> int:
    """Photograph all pages; return the exit status."""
    (ARTIFACTS / "site").mkdir(parents=True, exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    with launched() as browser:
        wrong = [
            fault
            for page in PAGES
            for size in SIZES
            for colours in ("light", "dark")
            for fault in faults(browser, base, page, size, colours)
        ]
    server.shutdown()
    print("\n".join(wrong) or f"pictures of {len(PAGES)} pages in {ARTIFACTS / 'site'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    end_all_with_this_run()
    sys.exit(main(SITE))
