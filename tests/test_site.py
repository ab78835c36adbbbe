"""The documentation site: it builds strictly, asks no other host, and its figures equal their numbers."""

from __future__ import annotations

import json
import re
import subprocess
from html.parser import HTMLParser
from inspect import getdoc, getmembers, isclass, isfunction
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import dphist
import stream_app.client
from docs.site import figures, reference
from docs.site.svg import drawn
from stream_app.client import Client
from tests.services import REPOSITORY

MKDOCS = REPOSITORY / ".venv" / "docs" / "bin" / "mkdocs"
DOCS = REPOSITORY / "docs"
# What a page loads by itself; a link that a reader clicks may lead anywhere.
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a site that was built now; warnings fail the build."""
    assert MKDOCS.is_file(), f"{MKDOCS} is missing; make test and make docs install it"
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [MKDOCS, "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


class Loads(HTMLParser):
    """Collects what a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address = given.get(LOADED.get(tag, ""))
        if address and given.get("rel") != "canonical":
            self.found.add(address)


@pytest.mark.slow
def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 80
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert [one for one in loads.found if urlsplit(one).netloc] == [], page
    styles = "".join(sheet.read_text(encoding="utf-8") for sheet in site.rglob("*.css"))
    assert [one for one in re.findall(r"url\(([^)]*)\)", styles) if "//" in one and "data:" not in one] == []


@pytest.mark.slow
def test_site_has_the_demo_page_with_a_link_to_the_first_page(site: Path) -> None:
    for own in (REPOSITORY / "demo-page").glob("*.*"):
        said = own.read_text(encoding="utf-8").replace("../README.md", "../index.html")
        assert (site / "demo-page" / own.name).read_text(encoding="utf-8") == said


@pytest.mark.slow
def test_search_finds_a_command_a_key_and_a_function_and_no_page_of_source(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    found = {entry["location"]: entry["title"] for entry in index}
    assert any("plan-alert" in title for title in found.values())
    assert any(location.startswith("configuration.html#") for location in found)
    assert any("plan_tree" in title for title in found.values())
    assert [location for location in found if location.startswith("source/")] == []


@pytest.mark.slow
def test_reference_has_every_command_path_and_exported_name(site: Path) -> None:
    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    for program, group in reference.COMMANDS.items():
        for name, _ in reference.helps(program, group):
            assert f'id="{name.replace(" ", "-")}"' in commands, name
    client = (site / "reference" / "client.html").read_text(encoding="utf-8")
    for name in {name for name in vars(Client) if not name.startswith("_")} | {*stream_app.client.__all__}:
        assert re.search(rf'id="stream_app\.client\.(\w+\.)?{name}"', client), name
    library = (site / "reference" / "dphist.html").read_text(encoding="utf-8")
    described = {name for name, one in vars(dphist).items() if isclass(one) or isfunction(one)}
    missing = [name for name in dphist.__all__ if f'id="dphist.{name}"' not in library]
    assert described.isdisjoint(missing)
    assert 'id="get-v1streamsstreamcount"' in (site / "reference" / "http.html").read_text(encoding="utf-8")


def test_methods_of_the_client_can_be_read_in_a_clone() -> None:
    page = (DOCS / "reference" / "client.md").read_text(encoding="utf-8")
    methods = [(name, one) for name, one in getmembers(Client, isfunction) if name[0] != "_"]
    first = [(name, (getdoc(one) or "").partition("\n")[0]) for name, one in methods]
    assert "\n".join(f"| `{name}` | {line} |" for name, line in first) in page


@pytest.mark.parametrize("name", figures.FIGURES)
def test_figure_and_its_numbers_are_those_of_the_library(name: str) -> None:
    compute, draw = figures.FIGURES[name]
    stored = json.loads((DOCS / "figures" / f"{name}.json").read_text(encoding="utf-8"))
    computed = json.loads(json.dumps(compute()))
    assert stored.keys() == computed.keys()
    for part, numbers in computed.items():
        assert stored[part] == pytest.approx(numbers, rel=1e-5), part
    assert drawn(draw(stored)) == (DOCS / "figures" / f"{name}.svg").read_text(encoding="utf-8")


def test_every_figure_is_shown_beside_a_link_to_its_numbers() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.glob("explanation/*.md"))
    assert {path.stem for path in (DOCS / "figures").glob("*.svg")} == figures.FIGURES.keys()
    for name in figures.FIGURES:
        assert f"(../figures/{name}.svg)" in pages
        assert f"(../figures/{name}.json)" in pages


def test_sentences_about_figures_equal_their_numbers() -> None:
    week = json.loads((DOCS / "figures" / "one-week.json").read_text(encoding="utf-8"))
    inside, hours = week["hours_inside_their_interval"], len(week["true"])
    noise = (DOCS / "explanation" / "noise.md").read_text(encoding="utf-8")
    assert f"in {inside} of the {hours} hours the true count lies in its interval" in noise
