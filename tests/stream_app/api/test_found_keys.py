"""Every surface shows keys that nobody listed as a recount has them, and no key that is hidden."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from stream_app.client import questions
from tests.stream_app.declared import BIN_US, FIRST_BIN
from tests.stream_app.found_keys import APPROXIMATE, finding_world
from tests.stream_app.surfaces import every_path
from tests.world import World

pytestmark = pytest.mark.slow

PAGES = ("/blog/a", "/blog/b", "/shop", "/late")
FOUND = ["1970-01-01T00:16:50Z", "1970-01-01T00:16:50Z", "1970-01-01T00:17:10Z", "1970-01-01T00:17:30Z"]
BINS = 5  # of an epoch of six


def visits(bin: int) -> list[str]:
    """Return the pages of a bin: /shop is first visited in the third one, /late in the last one."""
    shop, late = (["/shop"] * 3 * (bin >= 2)), (["/late"] * 7 * (bin == 4))
    return ["/blog/a"] * 9 + ["/blog/b"] * 4 + shop + late + [f"/secret-{bin}"]


TRUTH = sum((Counter(visits(bin)) for bin in range(BINS)), Counter[str]())


@contextmanager
def visited(*, users: bool, approximate: bool = False) -> Iterator[World]:
    """Yield a world in which all pages were visited, each time by another user.

    Args: approximate, whether counts have a delta, and no sums.
    """
    privacy = APPROXIMATE if approximate else {}
    with finding_world(users=users, sums=not approximate, privacy=privacy) as one:
        numbers = iter(range(10**6))
        one.play(
            {
                FIRST_BIN + bin + 0.2: [
                    {
                        "at": int((FIRST_BIN + bin + 0.1) * BIN_US),
                        "page": page,
                        "user": f"u{next(numbers)}",
                        "amount": len(page) + bin - 10,
                    }
                    for page in visits(bin)
                ]
                for bin in range(BINS)
            },
            FIRST_BIN + BINS,
        )
        yield one


@pytest.fixture(scope="module", params=["event", "user", "approximate"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with visited(users=request.param != "event", approximate=request.param == "approximate") as one:
        yield one


with_sums = pytest.mark.parametrize("world", ["event", "user"], indirect=True)


@pytest.mark.parametrize(
    ("asked", "pages"),
    [
        ("key=/shop", ["/shop"]),
        ("key=/blog/*", ["/blog/a", "/blog/b"]),
        ("key=/blog/a&key=/late", ["/blog/a", "/late"]),
        ("key=other", [f"/secret-{bin}" for bin in range(BINS)]),
        ("not_key=/blog/*", ["/shop", "/late", *(f"/secret-{bin}" for bin in range(BINS))]),
        ("key=/blog/*&key=other", ["/blog/a", "/blog/b", *(f"/secret-{bin}" for bin in range(BINS))]),
    ],
)
def test_counts_and_series_equal_the_recount(world: World, asked: str, pages: list[str]) -> None:
    truth = sum(TRUTH[page] for page in pages)
    assert world.json(f"count?{asked}")["value"] == truth
    of_bins = [sum(page in pages for page in visits(bin)) for bin in range(BINS)]
    assert world.json(f"series?kind=bin&{asked}")["value"] == of_bins
    assert world.json(f"series?kind=running&{asked}")["value"][-1] == truth
    assert world.json(f"series?view=consistent&{asked}")["value"][-1] == truth


def amounts_of(pages: list[str] | None = None, bins: range = range(BINS)) -> int:
    """Return the sum of the amounts of pages; None: of all."""
    return sum(len(page) + bin - 10 for bin in bins for page in visits(bin) if pages is None or page in pages)


@with_sums
@pytest.mark.parametrize("asked", [[*PAGES[:2]], ["/shop"], ["/late"], None])
def test_sums_and_means_equal_the_recount(world: World, asked: list[str] | None) -> None:
    keys = "&".join(f"key={page}" for page in asked or ())
    truth, events = amounts_of(asked), sum(TRUTH[page] for page in asked or TRUTH)
    assert world.json(f"sum?{keys}")["value"] == truth
    assert world.json(f"mean?{keys}")["value"] == pytest.approx(truth / events)
    of_bins = [amounts_of(asked, range(bin, bin + 1)) for bin in range(BINS)]
    assert world.json(f"sum/series?kind=bin&{keys}")["value"] == of_bins
    assert world.json(f"mean/series?kind=running&{keys}")["value"][-1] == pytest.approx(truth / events)


@with_sums
def test_sums_of_all_keys_and_of_other_are_the_total(world: World) -> None:
    of_pages = {page: amounts_of([page]) for page in PAGES}
    assert {one["key"]: one["value"] for one in world.json("sum/keys")["keys"]} == of_pages
    other = amounts_of() - sum(of_pages.values())
    assert world.json("sum?key=other")["value"] == other
    events = sum(TRUTH[page] for page in TRUTH if page not in PAGES)
    assert world.json("mean?key=other")["value"] == pytest.approx(other / events)
    [metrics] = world.get("/metrics")
    for page, amount in of_pages.items():
        assert re.search(
            rf'^private_counts_key_sum_running{{.*key="{page}".*}} {amount}(\.0)?$', metrics.text, re.M
        )


def test_sums_and_means_by_key_are_of_the_epochs_that_show_the_keys_of_the_last_one() -> None:
    with finding_world(sums=True, epochs=0) as world:
        at = {bin: int((FIRST_BIN + bin + 0.1) * BIN_US) for bin in (0, 7)}  # of two epochs
        pages = {0: ["/a", "/a", "/b", "/b"], 7: ["/b", "/b", "/c", "/c", "/c"]}
        world.play(
            {
                FIRST_BIN + bin + 0.2: [
                    {"at": at[bin], "page": page, "amount": 10 + bin} for page in pages[bin]
                ]
                for bin in at
            },
            FIRST_BIN + 9,
        )
        for asked, truth in (("sum", {"/b": 34, "/c": 51}), ("mean", {"/b": 17, "/c": 17})):
            answer = world.json(f"{asked}/keys")
            assert {one["key"]: one["value"] for one in answer["keys"]} == truth


@pytest.mark.parametrize(
    ("first", "last", "truth"),
    [(["/a/1"] * 4, ["/a/*"] * 3, 3), (["/a/*"] * 2 + ["/a/1"] * 4, ["/a/2"] * 3, 2 + 4 + 3)],
    ids=["key", "pattern"],
)
def test_a_name_is_a_key_or_a_pattern_in_all_epochs(first: list[str], last: list[str], truth: int) -> None:
    """If the last epoch shows a key of this name, the name means this key in earlier epochs, too."""
    with finding_world(epochs=0) as world:
        at = {bin: int((FIRST_BIN + bin + 0.1) * BIN_US) for bin in (0, 7)}
        pages = {0: first, 7: last}
        world.play(
            {FIRST_BIN + bin + 0.2: [{"at": at[bin], "page": page} for page in pages[bin]] for bin in at},
            FIRST_BIN + 9,
        )
        assert world.json("count?key=/a/*")["value"] == truth


def test_keys_come_largest_first_with_the_instant_that_found_them(world: World) -> None:
    rows = world.json("keys")
    said = {one["key"]: (one["value"], one["found"]) for one in rows["keys"]}
    assert list(said) == sorted(PAGES, key=lambda page: -TRUTH[page])
    assert said == {page: (TRUTH[page], at) for page, at in zip(PAGES, FOUND, strict=True)}
    assert "released values" in rows["note"]
    listed = world.json("keys/list?contains=blog")
    assert (listed["keys"], listed["found"]) == (list(PAGES[:2]), FOUND[:2])
    looked_up = world.json(f"keys/list?key={PAGES[1]}&key=/blog/*&key=other")
    assert (looked_up["keys"], looked_up["found"]) == ([PAGES[1], "/blog/*", "other"], [FOUND[1], None, None])
    asked = questions.keys("pages", "blog")
    [reply] = world.get(str(httpx.URL(asked.path, params=asked.parameters)))
    assert asked.answer(reply) == dict(zip(PAGES[:2], FOUND[:2], strict=True))
    [refused] = world.get("keys?key=other")
    assert (refused.status_code, refused.json()["parameter"]) == (400, "key")


def test_every_statement_has_the_sum_of_both_deltas() -> None:
    """Names have 5e-10 of 1e-9."""
    own = {"epsilon": 6.0, "not_private": False, "delta": "1e-9"}
    with finding_world(users=True, privacy=own, epsilon=1.5, delta=5e-10) as world:
        world.play({}, FIRST_BIN + 2)
        assert [(one.epsilon, one.delta, one.mu) for one in world.ledger()] == [("6", "1/1000000000", None)]
        privacy, stream = world.json("privacy"), world.json("")
        assert {one["delta"] for one in (privacy, stream)} == {"1e-9"}
        assert privacy["source_delta"] == "1e-9"
        assert {one["epsilon"] for one in (privacy, stream)} == {"6"}


def test_other_says_under_which_key_its_events_are_now(world: World) -> None:
    meaning = world.json("count?key=other")["meaning"]
    assert f"7 (± 0) are under /late since {FOUND[3]}" in meaning
    assert f"3 (± 0) are under /shop since {FOUND[2]}" in meaning


def test_prometheus_and_grafana_read_found_keys(world: World) -> None:
    values, metrics = world.get("/api/v1/label/key/values", "/metrics")
    assert values.json()["data"] == sorted(PAGES)
    for page in PAGES:
        assert f'key="{page}"' in metrics.text


def test_no_hidden_name_is_on_any_surface_or_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A page of few people stays hidden, also if its events are late or cannot be read."""
    own: dict[str, Any] = {"epsilon": 2.0}
    with (
        caplog.at_level(logging.DEBUG),
        finding_world(users=True, privacy=own, epsilon=1.0, room=1_000) as world,
    ):
        world.start()
        for bin in range(8):
            world.until(FIRST_BIN + bin + 0.2)
            at = int((FIRST_BIN + bin + 0.1) * BIN_US)
            secret = f"/secret-{bin}"
            world.write(*({"at": at, "page": "/open", "user": f"u{bin}-{n}"} for n in range(60)))
            world.write({"at": at, "page": secret, "user": f"s{bin}"})
            world.write({"at": at - 10**12, "page": secret, "user": "late"})
            world.write({"at": at + 10**12, "page": secret, "user": "early"}, {"at": at, "page": secret})
            if bin == 4:  # more than there is room for
                flood = ({"at": at, "page": f"/secret-x{n}", "user": f"x{n}"} for n in range(3_000))
                world.write(*flood)
        world.until(FIRST_BIN + 10)
        assert "/open" in [key for one in world.public().epochs for key in one.names]
        assert world.public().epochs[0].thinned > 0
        assert world.letters.all
        paths = [*every_path(world.get("/openapi.json")[0].json(), "pages", "/secr")]
        answers = world.get(*paths)
        assert sum(one.status_code == 200 for one in answers) > len(paths) // 2
        logged = [line.getMessage() for line in caplog.records if not line.name.startswith("httpx")]
        said = [*(one.text for one in answers), *logged, json.dumps(world.rows())]
        said += [json.dumps(world.witnessed()), repr(world.ledger()), repr(world.public())]
        said += [repr(world.strategies), repr(world.operator_counts())]
        assert not [text for text in said if "/secret" in text]
