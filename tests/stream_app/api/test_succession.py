"""Readers see where a stream ends and which stream goes on, if their key opens both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest
from msgspec import structs
from playwright.sync_api import Browser, expect

from stream_app.api.admission.access import AccessRules
from stream_app.core.answers.labels import AllLabels
from stream_app.core.declaration import Declaration
from stream_app.core.instants import format_instant
from stream_app.core.records import ENDED
from stream_app.ports.access import ApiKey, digest_of
from tests.patience import eventually
from tests.stream_app.api.browsing import Backstage, opened
from tests.stream_app.published import FIRST_BIN, HOUR_US, Published

EDGE = FIRST_BIN + 10
EDGE_TEXT = format_instant(EDGE * HOUR_US)
LABELS = AllLabels(ends={"departures": EDGE * HOUR_US})
KEYS = (
    ApiKey("all", digest_of("k-all"), None),
    ApiKey("new", digest_of("k-new"), frozenset({"later"})),
    ApiKey("old", digest_of("k-old"), frozenset({"departures"})),
)


class Later(Published):
    """A stream that goes on where ``departures`` ends."""

    def declared(self, **axes: Any) -> Declaration:
        """Return what the stream declares."""
        return structs.replace(super().declared(**axes), successor_of="departures")


@pytest.fixture
def behind() -> Iterator[Backstage]:
    """Yield a service with a stream that has ended and the one after it."""
    found = Backstage()
    found.stream([40] * 10)
    later = Later(found.store, name="later", first_bin=EDGE)
    found.run(later.open())
    found.run(later.close([30] * 5))
    yield found
    found.close()


def told(address: str, stream: str, key: str = "", what: str = "") -> dict[str, Any]:
    """Return what the service says of a stream."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with urlopen(Request(f"{address}/v1/streams/{stream}{what}", headers=headers)) as answer:
        return dict(json.load(answer))


def test_a_stream_names_the_one_before_and_after_it(behind: Backstage) -> None:
    address = behind.start()
    old, new = told(address, "departures"), told(address, "later")
    assert (old["successor"], old["ends"], old["next_release"]) == ("later", EDGE_TEXT, None)
    assert (new["successor_of"], new["start"], new["ends"]) == ("departures", EDGE_TEXT, None)
    assert "successor" not in new
    assert told(address, "later", what="/privacy")["source_epsilon"] == "1"


def test_a_stream_with_an_announced_end_is_live_until_then(behind: Backstage) -> None:
    behind.stream([40] * 5, name="ending", source="elsewhere")
    found = told(behind.start(labels=AllLabels(ends={"ending": EDGE * HOUR_US})), "ending")
    assert found["ends"] == EDGE_TEXT
    assert found["next_release"] is not None


def test_a_stream_that_has_ended_says_so_without_its_configuration(behind: Backstage) -> None:
    over = behind.stream([40] * 5, name="over", source="elsewhere")
    address = behind.start()
    assert told(address, "over")["ends"] is None
    state = behind.run(behind.store.load(over.name))
    assert state is not None
    behind.run(behind.store.end_epoch(over.name, state.epoch.epoch, state.seq, ENDED))
    eventually(lambda: told(address, "over")["ends"] is not None, "no end is told")
    found = told(address, "over")
    assert (found["ends"], found["next_release"]) == (format_instant((FIRST_BIN + 5) * HOUR_US), None)


def test_a_key_shows_no_name_of_a_stream_that_it_does_not_open(behind: Backstage) -> None:
    address = behind.start(AccessRules(keys=KEYS), LABELS)
    for _ in range(2):  # the second answer comes from memory
        assert told(address, "later", "k-all")["successor_of"] == "departures"
        assert "departures" not in json.dumps(told(address, "later", "k-new"))
        old = told(address, "departures", "k-old")
        assert "later" not in json.dumps(old)
        assert old["ends"] == EDGE_TEXT
        assert told(address, "departures", "k-all")["successor"] == "later"


@pytest.mark.browser
def test_pages_link_the_stream_before_and_after(browser: Browser, behind: Backstage) -> None:
    with opened(browser, behind.start(labels=LABELS) + "/streams/departures") as page:
        expect(page.locator("#stream-state")).to_have_text("Complete")
        expect(page.locator("#succession")).to_contain_text("on are counted by later.")
        page.locator("#succession a").click()
        expect(page.locator("#succession")).to_contain_text("are counted by departures.")
        expect(page.locator("#stream-name")).to_have_text("later")
