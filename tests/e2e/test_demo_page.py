"""The demo page: opened from a folder, it shows what the service released, and the truth beside it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Page, expect

from deploy.demo_page.__main__ import script
from deploy.demo_page.answers import QUANTILES, answers_of
from deploy.demo_page.bundle import PAGE, build
from deploy.demo_page.deployments import DAYS, DEPLOYMENTS, LABELS, START, ZONE, Deployment, released
from deploy.demo_page.truth import recount
from stream_app.api import schemas
from stream_app.api.answers import counts, slices, values
from stream_app.api.replicas import Replicas
from stream_app.core.answers.query import StreamView
from stream_app.core.records import PublicState
from stream_app.ports.reader import PublicReader
from tests.browsers import SharedBrowser
from tests.e2e import flights as oracle
from tests.services import REPOSITORY
from tests.stream_app.api.browsing import PATIENCE_MS, inked, photograph, table, whole

AXE = REPOSITORY / "tests" / "vendor" / "axe-core" / "axe.min.js"
SHORT = 16  # days
EARLIER = 14  # a day of the replay, after the first whole week
CHOSEN = Deployment("1", "day")


@contextmanager
def shown(browser: Browser, folder: Path, query: str = "", **options: Any) -> Iterator[Page]:
    """Yield the page, opened from a folder, at rest. It may load its own files only, and log nothing."""
    context = browser.new_context(
        **{"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | options
    )
    context.set_default_timeout(PATIENCE_MS)
    page, faults = context.new_page(), list[str]()
    own = (folder.as_uri(), "data:")
    page.on("request", lambda one: None if one.url.startswith(own) else faults.append(one.url))
    page.on("console", lambda one: faults.append(one.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(f"{folder.as_uri()}/index.html{query}")
    expect(page.locator("main")).to_have_attribute("data-ready", "true")
    yield page
    context.close()
    assert faults == []


def move(page: Page, slider: str, place: int) -> None:
    """Move a slider with the keyboard, from its first place."""
    page.locator(f"#{slider}").press("Home")
    for _ in range(place):
        page.locator(f"#{slider}").press("ArrowRight")


def at_day(page: Page, day: int) -> None:
    """Move the replay to the end of a day."""
    page.locator("#day").fill(str(day))
    expect(page.locator("main")).to_have_attribute("data-day", str(day))


class Until:
    """A reader of the service's store that sees the releases up to a seq only."""

    def __init__(self, reader: PublicReader, seq: int) -> None:
        self._reader, self._seq = reader, seq

    async def public_state(self, stream: str) -> PublicState | None:
        """Return the state as it was when the release became visible."""
        state = await self._reader.public_state(stream)
        return state and replace(state, visible_seq=self._seq)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


async def views_at(reader: PublicReader, seq: int) -> dict[str, StreamView]:
    """Return what the API's answers are computed from once a release is visible."""
    replicas = Replicas(Until(reader, seq), LABELS)
    await replicas.refresh()
    return {name: one.view for name, one in replicas.by_name.items() if one.view}


async def counted(
    events: Path, folder: Path, seq: int
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, StreamView]]:
    """Release some days; return the page's data, the rows of the service, and its views at a seq."""
    async with released(CHOSEN, events, folder, SHORT) as reader:
        rows = [json.loads(row) for _, row in await reader.rows("departures", 0, SHORT * 24)]
        return await answers_of(reader), rows, await views_at(reader, seq)


@pytest.mark.redis
@pytest.mark.browser
@pytest.mark.slow
def test_page_shows_what_the_service_had_released_by_each_day(
    flights: Path, tmp_path: Path, shared_browser: SharedBrowser
) -> None:
    """The rows are those of a service that runs here, with real noise."""
    seq = EARLIER * 24
    at = int(START.timestamp()) + EARLIER * 86400
    (tmp_path / "state").mkdir()
    answers, rows, views = asyncio.run(counted(flights, tmp_path / "state", seq))
    for name, text in build().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "released.js").write_text(script({CHOSEN.name: answers}, recount(flights, SHORT), SHORT))
    with shared_browser.lent() as browser, shown(browser, tmp_path, "?unit=day&range=7+days") as page:
        for day in (SHORT, EARLIER):
            at_day(page, day)
            now, before = (rows[24 * one - 1]["estimate"][0] for one in (day, day - 7))
            assert whole(page.locator("#value").inner_text()) == pytest.approx(now - before, abs=0.501)
            assert whole(page.locator("#all-time b").inner_text()) == pytest.approx(now, abs=0.501)
        week = counts.count(views["departures"], schemas.CountQuery(start=str(at - 7 * 86400), end=str(at)))
        assert_interval(page, week.interval)
        page.get_by_label("The year").check()
        expect(page.locator("#value")).to_have_text(f"{round(now):,}")
        assert_interval(page, rows[seq - 1]["interval"][0])
        page.get_by_label("Last 7 days").check()
        hours = counts.series(views["departures"], schemas.SeriesQuery(kind="bin"))
        for cells, i in zip(table(page, "bins"), range(seq - 1, seq - 61, -1), strict=True):
            found = [whole(text) for text in cells[1:4]]
            assert found[0] == pytest.approx(hours.value[i], abs=0.501)
            assert found[1:] == pytest.approx([hours.lower[i], hours.upper[i]], abs=1.1)
        weeks = schemas.QuantileSlicesQuery(days=7, timezone=ZONE, q=QUANTILES)
        quantiles = slices.quantile_slices(views["delays"], weeks)
        until = int(quantiles.end[1])  # of the last whole week
        for cells, i in zip(table(page, "quantiles"), (1, 0), strict=True):
            for q, place in enumerate((1, 4)):
                one = quantiles.quantiles[q]
                said_of = [float(text) for text in cells[place : place + 3]]
                assert said_of == pytest.approx(
                    [one.value[i], one.lower[i], one.upper[i]], rel=0.01, abs=0.02
                )
        cdf = values.cdf(views["delays"], schemas.CdfQuery(end=str(until)))
        for cells, i in zip(table(page, "cdf"), range(29, -1, -1), strict=True):
            found = [whole(text) for text in cells[1:4]]
            assert found[0] == cdf.consistent[i]
            assert found[1:] == pytest.approx([cdf.lower[i], cdf.upper[i]], abs=2.1)
    assert words_of(answers) == words_of(committed()["deployments"][CHOSEN.name]), "make new releases"


def assert_interval(page: Page, interval: Sequence[float]) -> None:
    """Check the interval of the page's number: its ends are rounded outwards."""
    said = [whole(one) for one in page.locator("#interval b").all_inner_texts()]
    assert said == pytest.approx(interval, abs=1.1)
    assert said[0] <= interval[0] < interval[1] <= said[1]


def words_of(answers: dict[str, Any]) -> list[Any]:
    """Return the texts of a deployment's answers, which do not depend on what was released."""
    privacy = answers["departures"]["privacy"]
    said = {name: privacy[name] for name in ("promise", "protected", "not_protected", "also", "unit")}
    details = [answers[stream]["detail"] for stream in ("departures", "delays")]
    names = ("meaning", "intervals", "warning", "noun", "counted", "epsilon", "never_revised")
    return [said, *([one[name] for name in names] for one in details), *map(sorted, [privacy, *details])]


def committed() -> Any:
    """Return the data of the page in this repository."""
    text = (PAGE / "released.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix("window.RELEASED = ").removesuffix(";\n"))


@pytest.mark.slow
def test_truth_is_a_recount_of_the_public_events(flights: Path) -> None:
    data = committed()
    assert data["truth"] == recount(flights)
    assert list(data["deployments"]) == [one.name for one in DEPLOYMENTS]
    for name, one in data["deployments"].items():
        assert one["departures"]["detail"]["seq"] == one["delays"]["detail"]["seq"] == DAYS * 24, name
        assert one["departures"]["detail"]["never_revised"], name
        assert one["departures"]["privacy"]["source_epsilon"] == name.rpartition("-")[2]


@pytest.mark.browser
@pytest.mark.slow
def test_page_of_this_repository_opens_from_its_folder(flights: Path, shared_browser: SharedBrowser) -> None:
    per_hour = oracle.recount(flights)
    with shared_browser.lent() as browser, shown(browser, PAGE, color_scheme="light") as page:
        expect(page.locator("#truth b").first).to_have_text(f"{per_hour.sum():,}")
        midnights = [midnight(day) for day in range(DAYS + 1)]
        so_far = [0, *accumulate(per_hour.tolist())]
        per_day = [so_far[b] - so_far[a] for a, b in pairwise(midnights)]
        assert [whole(row[4]) for row in table(page, "bins")] == per_day[:-61:-1]
        expect(page.locator("#bins .coverage")).to_contain_text(f" of the {DAYS} points drawn here")
        expect(page.locator("#running .coverage")).to_contain_text("Neighbouring running counts share")
        seen = set()
        for epsilon in range(4):
            move(page, "epsilon-slider", epsilon)
            for unit in range(3):
                move(page, "unit-slider", unit)
                chosen = DEPLOYMENTS[4 * unit + epsilon].name
                expect(page.locator("main")).to_have_attribute("data-shown", chosen)
                seen.add(page.locator("#value").inner_text())
                for cells in table(page, "cdf"):
                    value, lower, upper = map(whole, cells[1:4])
                    assert 0 <= lower <= value <= upper, chosen
        assert len(seen) == 12
        expect(page.locator("#privacy-numbers")).to_contain_text("All streams over this source together3")
        page.emulate_media(reduced_motion="no-preference")
        at_day(page, 200)
        page.locator("#play").press("Enter")
        page.wait_for_function("Number(document.querySelector('main').dataset.day) > 210")
        page.locator("#play").press("Enter")
        expect(page.locator("#play-name")).to_have_text("Play")


def midnight(day: int) -> int:
    """Return the hours from the start of the year to the start of a day in New York."""
    at = datetime(2013, 1, 1, tzinfo=ZoneInfo(ZONE)) + timedelta(days=day)
    return int((at - START).total_seconds() // 3600)


@pytest.mark.browser
@pytest.mark.slow
def test_page_is_accessible_and_fits(tmp_path: Path, shared_browser: SharedBrowser) -> None:
    with shared_browser.lent() as browser:
        for size, width in (("desktop", 1280), ("phone", 390)):
            viewport = {"width": width, "height": 844}
            with shown(browser, PAGE, "?unit=day", color_scheme="light", viewport=viewport) as page:
                assert page.evaluate("document.documentElement.scrollWidth") == width
                page.add_script_tag(path=AXE)
                for scheme in ("light", "dark"):
                    page.emulate_media(color_scheme=scheme)
                    inked(page, "#running canvas")
                    found = page.evaluate("axe.run({preload: false})")["violations"]
                    assert [(one["id"], one["nodes"][0]["html"][:120]) for one in found] == []
                    photograph(page, f"demo-page-{size}-{scheme}")
        without_data(browser, tmp_path)


def without_data(browser: Browser, folder: Path) -> None:
    """Check that the page says what is missing."""
    for name, text in build().items():
        (folder / name).write_text(text)
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{folder.as_uri()}/index.html")
    expect(page.locator("#loading")).to_have_text(re.compile(r"released\.js is missing"))
    context.close()


def test_no_wheel_holds_the_page() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text()
    assert "demo-page" not in text
    assert "demo_page" not in text
