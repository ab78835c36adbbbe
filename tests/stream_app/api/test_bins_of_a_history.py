"""The API and the pages over a history whose streams have other bins."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.error import HTTPError

import pytest
from playwright.sync_api import Browser, expect

from stream_app.api.admission.access import AccessRules
from stream_app.core.boards import Board, Line, Panel
from stream_app.core.instants import format_instant
from tests.stream_app.api.browsing import Backstage, eventually, opened
from tests.stream_app.api.test_succession import told
from tests.stream_app.published import HOUR_US, Published

NUMBER = re.compile(r"[0-9]+")
DAY, DAY_US = 15_706, 24 * HOUR_US  # 2013-01-01
EDGE = DAY + 9
BEGIN, AT_EDGE, END = (format_instant(hour * HOUR_US) for hour in (24 * DAY, 24 * EDGE, 24 * EDGE + 50))


@pytest.fixture(scope="module")
def behind() -> Iterator[Backstage]:
    """Yield a service with days and the hours after them, and with hours and the days after them."""
    found = Backstage()
    chains = {
        ("days", "then-hours"): ((9, DAY, DAY_US), (50, 24 * EDGE, HOUR_US)),
        ("hours", "then-days"): ((60, 24 * EDGE - 60, HOUR_US), (14, EDGE, DAY_US)),
    }
    for names, facts in chains.items():
        for name, (bins, first, bin_us) in zip(names, facts, strict=True):
            before = None if name == names[0] else names[0]
            stream = Published(
                found.store, name, "1", 64, first, bin_us, source=names[0], successor_of=before
            )
            found.run(stream.open())
            found.run(stream.close([20] * bins))
    yield found
    found.close()


@pytest.fixture(scope="module")
def address(behind: Backstage) -> str:
    """Return the service's address."""
    lines = (Line("then-hours"), Line("then-days"))
    panels = (Panel("both", "bins", lines), Panel("running", "running", lines))
    return behind.start(AccessRules(boards={"both": Board("both", "Both", panels)}))


def refusal(address: str, stream: str, what: str) -> str:
    """Return the line with which a question is refused."""
    with pytest.raises(HTTPError) as refused:
        told(address, stream, what=what)
    assert refused.value.code == 400
    return str(json.load(refused.value)["error"])


def test_a_range_may_begin_at_any_edge_of_the_bins_that_it_lies_in(address: str) -> None:
    days = told(address, "days", what="/count")
    whole = told(address, "then-hours", what="/count")
    assert (whole["start"], whole["end"]) == (BEGIN, END)
    late = told(address, "then-hours", what=f"/count?start={AT_EDGE}")
    assert whole["value"] == pytest.approx(days["value"] + late["value"])
    assert whole["stderr"] ** 2 == pytest.approx(days["stderr"] ** 2 + late["stderr"] ** 2)
    inside = format_instant((24 * DAY + 5) * HOUR_US)
    assert "is inside a bin; the nearest edges are" in refusal(
        address, "then-hours", f"/count?start={inside}"
    )
    [part] = told(address, "then-hours")["history"]
    assert (part["bin"], part["bin_seconds"], part["timezone"]) == ("1 day", 86_400.0, None)
    [mark] = told(address, "then-hours")["annotations"]
    assert (mark["start"], "bins 1 day until then, 1 hour from then on" in mark["text"]) == (AT_EDGE, True)


def test_a_finer_step_is_refused_with_one_that_fits(address: str) -> None:
    for what in ("/series?kind=bin", "/preview?epsilon=0.5&step=6"):
        assert refusal(address, "then-hours", what) == (
            f"step: a bin is 1 day before {AT_EDGE}, and a step must fit; write 24 or begin there or later"
        )
    bins = told(address, "then-hours", what="/series?kind=bin&step=24")
    assert len(bins["value"]) == 11
    assert bins["value"][:9] == told(address, "days", what="/series?kind=bin")["value"]
    assert f"{format_instant((24 * EDGE + 48) * HOUR_US)} to {END} is left out" in bins["note"]
    assert len(told(address, "then-hours", what="/series?kind=bin&days=1")["value"]) == 11
    assert len(told(address, "then-hours", what="/series")["value"]) == 9 + 50
    assert len(told(address, "then-days", what="/series?kind=bin")["value"]) == 2 + 14
    preview = told(address, "then-hours", what="/preview?epsilon=0.5&aligned=true")
    assert len(preview["half_width"]) == 12


@pytest.mark.browser
@pytest.mark.parametrize(
    ("path", "points"),
    [
        ("/streams/then-hours", "11"),
        ("/streams/then-days", "16"),
        (f"/streams/then-hours?from={BEGIN.replace('T00', 'T07')}&to={AT_EDGE.replace('T00', 'T09')}", "9"),
        ("/streams/then-hours?tz=Europe/Paris", "11"),
    ],
)
def test_all_panels_of_a_page_ask_for_steps_that_fit(
    browser: Browser, address: str, path: str, points: str
) -> None:
    with opened(browser, address + path) as page:
        for name in ("bins", "running", "rate", "preview"):
            page.locator(f"#{name}").scroll_into_view_if_needed()
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", points)
        expect(page.locator("#preview-chart")).to_have_attribute("data-points", NUMBER)
        assert page.locator(".failed").count() == 0


@pytest.mark.browser
def test_a_board_asks_for_steps_that_fit_all_its_lines(browser: Browser, address: str) -> None:
    with opened(browser, address + "/boards/both") as page:
        eventually(page, lambda: page.locator("[data-points]").count() == 2)
        assert page.locator(".failed").count() == 0
