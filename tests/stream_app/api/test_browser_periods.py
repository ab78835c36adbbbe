"""The panel of protection names caps on keys, a user's day, and what a whole epoch costs."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from stream_app.core.counting.bounding import PerUser
from tests.stream_app.api.browsing import Backstage, opened

pytestmark = pytest.mark.browser


def test_user_s_day_is_named_beside_the_cost_of_a_whole_epoch(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([30, 40, 50], user=PerUser("visitor", 10, 5, 2, per="1d"))
    with opened(browser, backstage.start() + "/streams/departures") as page:
        expect(page.locator("#meaning")).to_contain_text("per user and UTC day, at most 2 in each of at most")
        expect(page.locator("#privacy-numbers")).to_contain_text(
            "one user within one UTC day, of whom at most 10 events count, at most 2 in each of at most 5"
        )
        expect(page.locator("#promise")).to_contain_text("within any one UTC day")
        expect(page.locator("#also")).to_contain_text("All events of a user in one epoch of")
