"""What a load needs: the law of memory, and the form of the sizing page computes what the model does."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from playwright.sync_api import Browser

from benchmarks.scale.model import check, fit
from benchmarks.scale.page import PAGE, QUANTITIES, written
from benchmarks.scale.queueing import BUSY, Deployment, needed
from benchmarks.scale.sizing import LOADS, Load, sized
from tests.services import REPOSITORY
from tests.test_scale_model import COSTS


def measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((REPOSITORY / "benchmarks" / "results" / "scale.json").read_text())
    return found


def test_the_page_has_the_table_of_the_measured_costs() -> None:
    text, found = PAGE.read_text(), measured()
    costs = found["costs"]
    assert costs == fit(found["fitted"], found["kept"])
    assert found["check"] == {name: check(costs, found[name]) for name in ("known", "fresh")}
    assert text == written(text, found), "python -m benchmarks.scale --fit writes it"


def test_the_page_marks_each_ratio_that_misses_the_goal() -> None:
    text, found = PAGE.read_text(), measured()
    kept = [row | dict.fromkeys(QUANTITIES, 1.25) for row in found["check"]["fresh"]]
    good = written(text, found | {"check": {"fresh": kept, "known": kept}})
    assert "**" not in good.split("## How good")[1]
    worse = [kept[0] | {"redis_mb": 0.74, "cpu_s": 1.3}, *kept[1:]]
    missed = written(text, found | {"check": {"fresh": worse, "known": kept}})
    assert "0.74 to 1.25 times the memory of Redis" in missed
    assert f"2 of {4 * len(kept)} ratios miss the goal" in missed
    assert (missed.count("**0.74**"), missed.count("**1.30**")) == (1, 1)


def test_the_page_says_how_much_repeats_differ_and_when_there_are_none() -> None:
    text, found = PAGE.read_text(), measured()
    sets = ("fitted", "known", "fresh")
    once = {
        name: [row | {"repeats": [{"cpu_s": 1.0, "delay_s": 1.0}]} for row in found[name]] for name in sets
    }
    assert "Each load was measured once" in written(text, found | once)
    twice = [dict.fromkeys((*QUANTITIES, "delay_s"), times) for times in (1.0, 1.2)]
    spread = {name: [row | {"repeats": twice} for row in found[name]] for name in sets}
    spread["fresh"][0]["repeats"] = [*twice, *twice]
    said = written(text, found | spread)
    assert "Each of these loads was measured 2 to 4 times" in said
    assert "| 1.00 s, 1.20 s |" in said
    assert "13% for the processor time of the workers" in said  # log(1.2) / sqrt(2)


def test_the_page_says_how_fast_waiting_events_are_read_and_what_that_costs() -> None:
    text, found = PAGE.read_text(), measured()
    waited = {"read": 900_000, "seconds": 2.0, "cpu_s": 1.8, "redis_cpu_s": 0.09}
    rows = [row | waited if not row["bin_s"] and row["workers"] == 4 else row for row in found["fitted"]]
    said = written(text, found | {"fitted": rows})
    line = "| 4 workers, 20 streams, 1 key, 1,000,000 events, 12 partitions | 450,000 | 2.00 s | 0.10 s |"
    assert line in said.splitlines()
    costs = found["costs"] | {"cpu_s": COSTS["cpu_s"]}
    each = "1.0 s on a million events of a stream without keys, 1.3 s with keys, 3.0 ms on a release"
    assert each in written(text, found | {"costs": costs})


def test_the_page_says_which_loads_did_not_keep_up() -> None:
    text, found = PAGE.read_text(), measured()
    row = found["check"]["fresh"][0] | {"workers": 1}
    late = {"fresh": [row | {"behind": 3.0}], "known": [row | {"behind": 0.5}]}
    said = written(text, found | {"check": late, "missing": [row | {"streams": 777}]})
    assert said.split("| measured |")[-1].count("released 3 bins late") == 1
    assert said.split("| measured |")[-1].count("bins late") == 1
    assert "Not measured, because the machine did not keep up: 1 worker, 777 streams" in said


def test_a_page_without_a_place_for_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="0 blocks begin with"):
        written("# Size a deployment\n", measured())


def test_memory_follows_from_rows_streams_and_keys() -> None:
    size = sized(COSTS, Load(100, 4, 10, 60, 1_440, 2))
    rows = 4 * (2 * 24 * 60 + 1_440)  # the oldest epoch is kept until two days after its end
    assert size.redis_mb == pytest.approx(
        6.0 + 0.2 + 4 * 0.01 + 4 * 12 * 0.002 + 40 * 1e-4 + rows * (1e-3 + 10 * 1e-5) + 2 * 57_600 * 4e-6
    )
    assert size.worker_mb == pytest.approx(100 + 0.4 + 40 * 1e-3 + 57_600 * 8e-6 + 57_600 * 3e-5)


def test_one_stream_cannot_use_two_shards() -> None:
    costs = COSTS | {"redis_cpu_s": COSTS["redis_cpu_s"] | {"cut": 0.9}}
    with pytest.raises(ValueError, match="is enough"):
        needed(costs, Deployment(10, 1, 1, 1.0, 60, 12))


@pytest.mark.browser
def test_the_form_computes_what_the_model_does(browser: Browser) -> None:
    noise = random.Random(11)
    own = [
        Load(
            10 ** noise.uniform(0, 7),
            noise.randrange(1, 2_000),
            int(10 ** noise.uniform(0, 5)),
            60.0,
            1_440,
            30.0,
            noise.randrange(1, 200),
        )
        for _ in range(60)
    ]
    page = browser.new_page()
    page.set_content("<p></p>")
    page.add_script_tag(path=REPOSITORY / "docs" / "site.js")
    asked = [
        {"eventsPerS": o.events_per_s, "streams": o.streams, "keys": o.keys, "binS": o.bin_s}
        | {"epochBins": o.epoch_bins, "days": o.days, "partitions": o.partitions}
        for o in (*LOADS, *own)
    ]
    found = page.evaluate("([costs, loads]) => loads.map((load) => sized(costs, load))", [COSTS, asked])
    too_much = 0
    for load, shown in zip((*LOADS, *own), found, strict=True):
        try:
            size = sized(COSTS, load)
        except ValueError:
            assert shown is None
            too_much += 1
            continue
        one, law = size.deployment, size.projection
        assert (shown["workers"], shown["shards"]) == (one.workers, one.shards)
        assert [shown["busy"], shown["lagS"], shown["workerMb"], shown["redisMb"]] == (
            pytest.approx([law.busy, law.lag_s, size.worker_mb, size.redis_mb])
        )
        assert max(law.busy, law.redis_busy) <= BUSY
    assert 0 < too_much < len(found) / 2
    page.close()


@pytest.mark.browser
def test_the_form_answers_while_one_types(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content(f"<div class='sizing' data-costs='{json.dumps(COSTS)}'></div>")
    page.add_script_tag(path=REPOSITORY / "docs" / "site.js")
    page.evaluate("document.dispatchEvent(new Event('DOMContentLoaded'))")
    answer = page.locator(".sizing output")
    first = answer.inner_text()
    assert "worker" in first
    page.get_by_label("events a second").fill("1000000")
    assert answer.inner_text() != first
    page.get_by_label("keys of each").fill("0")
    assert answer.inner_text() == "Every field needs a number above 0."
    page.close()
