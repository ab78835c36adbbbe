"""Every panel of a stream's page in headless Chromium shows the service's answers."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import Rule
from tests.stream_app.api.browsing import (
    Backstage,
    asked,
    eventually,
    holds,
    in_address,
    inked,
    opened,
    panel,
    table,
    whole,
)
from tests.stream_app.published import FIRST_BIN
from tests.stream_app.published_axes import PublishedAxes, delays

pytestmark = pytest.mark.browser

BINS = 15 * 24
PANELS = ("bins", "running", "rate", "keys", "quantiles", "heat", "cdf", "preview")
WEEK = "?from=2013-01-08T00:00:00Z&to=2013-01-15T00:00:00Z"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve two weeks of departures by carrier and delay; return the page's address."""
    behind = Backstage()
    stream = PublishedAxes(behind.store, epsilon="2", epoch_bins=BINS, buckets=30)
    behind.fill(stream, delays(stream, BINS))
    yield behind.start() + "/streams/delays"
    behind.close()


def test_every_panel_asks_once_when_the_page_loads(browser: Browser, address: str) -> None:
    asked = Counter[str]()

    def count(page: Page) -> None:
        page.clock.install()
        page.on(
            "request", lambda one: asked.update([one.url.removeprefix(address.rpartition("/streams")[0])])
        )

    with opened(browser, address, before=count) as page:
        first = PANELS[:3]
        for name in (*first, *first):
            panel(page, name)
            page.clock.run_for(1_100)  # the page looks for releases every second
            page.evaluate("fetch('/v1/streams').then((answer) => answer.text())")
        of_panels = {path: times for path, times in asked.items() if re.search(r"/delays/\w+\?", path)}
        assert len(of_panels) >= len(first)
        assert not {path: times for path, times in of_panels.items() if times > 1 and "/events" not in path}
        assert asked["/v1/streams/delays"] == 1


def test_every_panel_draws_a_chart_and_a_table(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        for name in PANELS:
            panel(page, name)
            inked(page, f"#{name} canvas")
            assert len(table(page, name)) >= 3, name
        assert [one.get_attribute("id") for one in page.locator("#panels > section").all()] == list(PANELS)


def test_tables_equal_the_answers_of_the_service(browser: Browser, address: str) -> None:
    with opened(browser, address + WEEK) as page:
        edges = "start=2013-01-08T00:00:00Z&end=2013-01-15T00:00:00Z"
        for row, one in zip(table(page, "keys"), asked(page, f"keys?{edges}&step=3")["keys"], strict=True):
            assert (row[0], whole(row[1])) == (one["key"], round(one["value"]))
            assert whole(row[2]) <= one["interval"][0] <= one["value"] <= one["interval"][1] <= whole(row[3])
        cdf = asked(page, f"cdf?{edges}")
        shown = table(page, "cdf")
        assert [whole(row[1]) for row in shown] == list(reversed(cdf["consistent"]))
        days = asked(page, f"quantiles?{edges}&step=24&q=0.5&q=0.9")["quantiles"]
        for row, median, upper in zip(
            table(page, "quantiles"), reversed(days[0]["value"]), reversed(days[1]["lower"]), strict=True
        ):
            assert float(row[1]) == pytest.approx(median, rel=0.01)
            assert float(row[5]) == pytest.approx(upper, rel=0.01)
        heat = asked(page, f"heat?{edges}&step=3&rows=30")
        newest = [int(re.sub(r" \(.*|,", "", row[1])) for row in table(page, "heat")]
        assert newest == [round(value) for value in heat["counts"][-1]]


def test_pointer_shows_value_interval_and_how_many_noisy_counts(browser: Browser, address: str) -> None:
    with opened(browser, address + WEEK) as page:
        panel(page, "bins")
        plot = page.locator("#bins-chart .u-over").bounding_box()
        assert plot is not None
        page.mouse.move(plot["x"] + plot["width"] * 12.5 / 168, plot["y"] + 50)
        expect(page.locator("#bins-readout")).to_contain_text("8 Jan 2013, 12:00–13:00")
        series = asked(page, "series?kind=bin&start=2013-01-08T12:00:00Z&end=2013-01-08T13:00:00Z")
        text = page.locator("#bins-readout").inner_text()
        found = re.search(r"00\s+(-?[\d,]+) \((-?[\d,]+) to ([\d,]+)\)", text)
        assert found is not None, text
        value, lower, upper = (whole(part) for part in found.groups())
        assert value == round(series["value"][0])
        made = f"From {series['nodes'][0]:,} released counts"
        expect(page.locator("#bins-readout")).to_have_attribute("title", made)
        assert lower <= series["lower"][0] <= lower + 1
        assert upper - 1 <= series["upper"][0] <= upper


def test_dragged_range_is_in_the_address_and_in_every_panel(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        panel(page, "rate")
        plot = page.locator("#rate-chart .u-over").bounding_box()
        assert plot is not None
        page.mouse.move(plot["x"] + plot["width"] * 0.41, plot["y"] + 40)
        page.mouse.down()
        page.mouse.move(plot["x"] + plot["width"] * 0.59, plot["y"] + 60, steps=4)
        page.mouse.up()
        expect(page.locator("#ranges input[value=closer]")).to_be_checked()
        address_now = page.url
        edges = re.search(r"from=(\d{4}-\d\d-\d\d)T\d\d%3A00%3A00Z&to=(\d{4}-\d\d-\d\d)", address_now)
        assert edges is not None
        assert edges.groups() == ("2013-01-07", "2013-01-09")
        panel(page, "cdf")
        expect(page.locator("#cdf .tools")).to_contain_text("7 Jan 2013")
        page.reload()
        expect(page.locator("#ranges input[value=closer]")).to_be_checked()
        panel(page, "cdf")
        expect(page.locator("#cdf .tools")).to_contain_text("7 Jan 2013")
        assert page.url == address_now
        page.locator("#exact summary").click()
        page.locator("#exact-from").fill("2013-01-02T00:00:00")
        page.locator("#exact-to").fill("2013-01-03T00:00:00")
        page.get_by_role("button", name="Show").click()
        panel(page, "bins")
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "24")


def test_week_before_is_drawn_and_the_difference_has_an_interval(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        panel(page, "bins")
        expect(page.get_by_label("Week before")).to_be_disabled()  # nothing lies before
        page.goto(address + WEEK)
        panel(page, "bins")
        alone = inked(page, "#bins canvas")
        page.get_by_label("Week before").check()
        expect(page.locator("#difference")).to_be_visible()
        in_address(page, "compare=1")
        holds(page, "document.querySelector('#bins-readout').textContent.includes('week before')")
        inked(page, "#bins canvas", alone)
        week = [
            asked(page, f"count?confidence=0.975&start=2013-01-{day}T00:00:00Z&end=2013-01-{end}T00:00:00Z")
            for day, end in (("08", "15"), ("01", "08"))
        ]
        text = page.locator("#difference").inner_text()
        assert text.startswith(f"{round(week[0]['value']):,} events with a number in delay here, ")
        low = week[0]["interval"][0] - week[1]["interval"][1]
        high = week[0]["interval"][1] - week[1]["interval"][0]
        certain = low > 0 or high < 0
        assert ("more by" in text or "fewer by" in text) == certain


def test_chosen_key_applies_to_every_panel(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        panel(page, "keys").get_by_role("button", name="B6").click()
        expect(page.locator("#stream-name")).to_have_text("delays · B6")
        in_address(page, "key=B6")
        count = asked(page, "count?key=B6")
        expect(page.get_by_test_id("value")).to_have_text(f"{round(count['value']):,}")
        expect(page.get_by_label("First", exact=True)).to_be_disabled()
        median = asked(page, "quantiles?key=B6&step=24&q=0.5")["quantiles"][0]["value"]
        assert [float(row[1]) for row in table(page, "quantiles")] == pytest.approx(median[::-1], rel=0.01)
        page.locator("#key-picker summary").click()
        page.get_by_role("button", name="All keys").click()
        expect(page.locator("#stream-name")).to_have_text("delays")
        in_address(page, "key=", is_there=False)


def test_reader_chooses_consistent_or_first_published_values(browser: Browser, address: str) -> None:
    with opened(browser, address + "?range=24+hours") as page:
        known = [whole(row[1]) for row in table(page, "bins")]
        for label, view in (("First", "first_published"), ("Whole", "consistent")):
            page.get_by_label(label, exact=True).check()
            panel(page, "bins")
            expect(page.locator("#bins-chart")).to_have_attribute("data-view", view)
            in_address(page, f"view={view}")
            assert [whole(row[1]) for row in table(page, "bins")] != known
        assert all(whole(row[1]) >= 0 for row in table(page, "bins"))


def test_preview_panel_shows_errors_at_another_epsilon(browser: Browser, address: str) -> None:
    with opened(browser, address + WEEK + "&epsilon=0.2") as page:
        panel(page, "preview")
        expect(page.locator("#epsilon-chosen")).to_have_text("0.2")
        page.locator("#preview .ask").click()
        preview = asked(
            page, "preview?epsilon=0.2&step=3&start=2013-01-08T00:00:00Z&end=2013-01-15T00:00:00Z"
        )
        for row, one in zip(
            page.locator("#preview .questions tbody tr").all(), preview["questions"], strict=True
        ):
            now, then = (
                float(cell.strip("±\u00a0").replace(",", "")) for cell in row.inner_text().split("\t")[1:]
            )
            assert now == pytest.approx(one["half_width"], rel=0.01)
            assert then == pytest.approx(one["preview_half_width"], rel=0.01)
            assert then > 5 * now
        page.locator("#epsilon-slider").focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#epsilon-chosen")).to_have_text("0.22")
        expect(page.locator("#preview th").nth(2)).to_have_text("at ε = 0.22")
        in_address(page, "epsilon=0.22")


def test_reader_chooses_the_window_of_the_rate(browser: Browser, address: str) -> None:
    with opened(browser, address + WEEK) as page:
        panel(page, "rate")
        page.locator("#rate-window").select_option("6 hours")
        expect(page.locator("#rate-title")).to_have_text(
            "Counted events per hour, average of the last 6 hours"
        )
        in_address(page, "window=21600")
        series = asked(
            page,
            "series?kind=window&window=6&start=2013-01-14T00:00:00Z&end=2013-01-15T00:00:00Z",
        )
        newest = table(page, "rate")[0]
        assert float(newest[1]) == pytest.approx(series["value"][-1] / 6, rel=0.01)
        assert float(newest[4]) == pytest.approx(series["stderr"][-1] / 6, rel=0.01)


def test_choice_updates_a_panel_that_is_not_visible(browser: Browser, address: str) -> None:
    with opened(browser, address + WEEK) as page:
        panel(page, "rate")
        page.evaluate("window.scrollTo(0, 0)")
        page.set_viewport_size({"width": 1280, "height": 300})
        out = "document.getElementById('rate').getBoundingClientRect().top > innerHeight + 400"
        assert page.evaluate(out)
        page.wait_for_timeout(300)  # until the page knows that the panel is out of sight
        page.locator("#rate-window").select_option("6 hours")
        expect(page.locator("#rate-title")).to_have_text(
            "Counted events per hour, average of the last 6 hours"
        )
        assert page.evaluate(out)


@pytest.mark.parametrize("names", [PANELS[:3], PANELS[3:6], PANELS[6:]])
def test_every_panel_saves_its_files(
    browser: Browser, address: str, tmp_path: Path, names: tuple[str, ...]
) -> None:
    """Each page saves the files of a few panels only, because Chromium allows ten downloads per page."""
    with opened(browser, address) as page:
        for name in PANELS:
            panel(page, name)  # until all panels are there, buttons move
        for name in names:
            _save(page, name, tmp_path)


def _save(page: Page, name: str, tmp_path: Path) -> None:
    for form in ("CSV", "JSON", "PNG"):
        with page.expect_download() as download:
            panel(page, name).get_by_role("button", name=f"as {form}").click()
        assert download.value.suggested_filename == f"delays-{name}.{form.lower()}"
        file = tmp_path / download.value.suggested_filename
        download.value.save_as(file)
        if form == "PNG":
            assert file.read_bytes().startswith(b"\x89PNG")
            assert file.stat().st_size > 4_000
        elif form == "JSON":
            assert json.loads(file.read_text())["stream"] == "delays"
        else:
            heads, *rows = csv.reader(file.read_text().splitlines())
            assert len(rows) >= 10, name
            assert heads[-2:] == ["private", "meaning"]
            assert rows[0][-2:] == ["true", "Counts events with a number in delay."]
    if name == "bins":
        saved = list(csv.DictReader((tmp_path / "delays-bins.csv").read_text().splitlines()))
        answer = json.loads((tmp_path / "delays-bins.json").read_text())
        assert [float(row["value"]) for row in saved] == answer["value"]
        assert saved[0]["start"] == "2013-01-01T00:00:00.000Z"


def test_ends_of_a_value_say_that_they_hold_what_is_beyond(browser: Browser, address: str) -> None:
    with opened(browser, address + WEEK) as page:
        rows = [row[0] for row in table(page, "heat")]
        assert (rows[0], rows[1], rows[-1]) == ("below -25", "-25 to -20", "115 or more")
        for name in ("quantiles", "heat", "cdf"):
            expect(panel(page, name).locator(".note")).to_contain_text(
                "A value below -30 counts as -30, and one above 120 as 120."
            )


def test_arrow_keys_move_along_the_heat_map(browser: Browser, address: str) -> None:
    with opened(browser, address + WEEK) as page:
        panel(page, "heat")
        page.locator("#heat-chart").focus()
        for key in ("ArrowLeft", "ArrowLeft", "ArrowUp"):
            page.keyboard.press(key)
        heat = asked(page, "heat?start=2013-01-08T00:00:00Z&end=2013-01-15T00:00:00Z&step=3&rows=30")
        expect(page.locator("#spoken")).to_have_text(
            re.compile(rf"14 Jan 2013, 18:00–21:00, -25 to -20: {round(heat['counts'][-2][1])}, standard")
        )


def test_heat_map_colours_only_cells_that_stand_out_from_noise(browser: Browser, address: str) -> None:
    with opened(browser, address + WEEK) as page:
        panel(page, "heat")
        heat = asked(page, "heat?start=2013-01-08T00:00:00Z&end=2013-01-15T00:00:00Z&step=3&rows=30")
        clear = np.array(heat["counts"]) >= 2 * np.array(heat["stderr"])
        assert 0 < clear.sum() < clear.size
        expect(page.locator("#heat-chart")).to_have_attribute("data-coloured", str(clear.sum()))


# How many pixels of a column of the chart of quantiles are drawn. Its place: 0 is left, 1 right.
INK_AT = """place => {
  const [canvas, over] = ["canvas", ".u-over"].map((one) => document.querySelector(`#quantiles ${one}`));
  const [at, plot] = [canvas.getBoundingClientRect(), over.getBoundingClientRect()];
  const { width, height } = canvas;
  const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const x = Math.round((plot.left - at.left + place * plot.width) * width / at.width);
  const { data } = copy.getImageData(x, 0, 1, height);
  return data.filter((one, i) => i % 4 === 3 && one > 0).length;
}"""


def test_slices_whose_events_tell_no_quantile_leave_a_gap(browser: Browser, backstage: Backstage) -> None:
    stream = PublishedAxes(backstage.store, epsilon="0.1", epoch_bins=8, buckets=4)
    backstage.run(stream.open())
    cells = np.zeros((8, stream.keys, 4), np.int64)
    cells[:4, 0, 1] = 100_000
    backstage.run(stream.close_cells(cells))
    with opened(browser, backstage.start() + "/streams/delays") as page:
        medians = [row[1:4] for row in table(page, "quantiles")]
        assert medians[:4] == [["too few events", "", ""]] * 4
        assert all(7 <= float(low) <= float(median) <= float(high) <= 45 for median, low, high in medians[4:])
        assert [page.evaluate(INK_AT, place) > 20 for place in (0.31, 0.44, 0.56)] == [True, True, False]
        expect(page.locator("#quantiles .note")).to_contain_text("A line has gaps where a slice has too few")


def test_alerts_have_thresholds_and_marks(browser: Browser, backstage: Backstage) -> None:
    stream = backstage.stream([40] * 48, epoch_bins=128)
    texts = {
        "busy": "sum(departures, 1h) > 100",
        "slow": "rate(departures, 6h) < 10/h",
        "full": "count(departures) > 2000",
    }
    watcher = backstage.watch([Rule(name, text, parse_condition(text)) for name, text in texts.items()])
    backstage.run(stream.close([40, 200, 200]))
    backstage.run(watcher.look())
    start = backstage.start()
    with opened(browser, start + "/streams/departures") as page:
        rules = panel(page, "alerts").locator("li")
        expect(rules).to_have_count(3)
        expect(rules.first).to_contain_text("busy")
        expect(rules.first.locator(".chip")).to_have_text("firing")
        expect(rules.first).to_contain_text("Since 3 Jan 2013, 02:00")
        expect(page.locator("#alerts h2")).to_have_text("Alerts, 3 Jan 2013, 03:00 UTC")
        expect(page.locator("#bins .mark-keys span")).to_have_text(["firing"])
        for name in ("bins", "running"):
            panel(page, name)
            assert _red(page, f"#{name}-chart canvas") > 100, name
    with opened(browser, start) as page:
        chip = page.get_by_role("article", name="departures").locator(".chip")
        expect(chip).to_have_text("2 firing")
        expect(page.locator("#summary")).to_contain_text("2 alerts fire.")
        backstage.run(stream.close([40] * 2))
        backstage.run(watcher.look())
        expect(chip).to_have_text("1 firing")
    assert stream.first_bin == FIRST_BIN


def test_every_change_of_an_alert_is_drawn_spoken_and_in_the_tables(
    browser: Browser, backstage: Backstage
) -> None:
    stream = backstage.stream([40] * 24, epoch_bins=256)
    text = "sum(departures, 1h) > 100"
    watcher = backstage.watch([Rule("busy", text, parse_condition(text))])
    for _ in range(3):
        backstage.run(stream.close([40, 200, 40, 40, 40, 40, 40, 40]))
        backstage.run(watcher.look())
    asked_for: list[str] = []
    with opened(browser, backstage.start() + "/streams/departures") as page:
        page.on("request", lambda one: asked_for.append(one.url) if "/transitions" in one.url else None)
        marked = [row for row in table(page, "bins") if row[-1]]
        assert [row[-1] for row in marked] == [
            "busy resolved at 2 Jan 2013, 19:00",
            "busy firing at 2 Jan 2013, 18:00",
            "busy resolved at 2 Jan 2013, 11:00",
            "busy firing at 2 Jan 2013, 10:00",
            "busy resolved at 2 Jan 2013, 03:00",
            "busy firing at 2 Jan 2013, 02:00",
        ]
        assert [row[0] for row in marked][-1] == "2 Jan 2013, 01:00–02:00"  # the bin that made it fire
        changes = panel(page, "alerts").locator("details")
        changes.locator("summary").click()
        rows = changes.locator("table").nth(1).locator("tbody tr")
        expect(rows).to_have_count(6)
        expect(rows.first.locator("td").nth(1)).to_have_text("resolved")
        expect(rows.first.locator("td").nth(2)).to_have_text("2 Jan 2013, 19:00")
        # The pointer near a mark shows its text, and so do the arrow keys.
        panel(page, "bins")
        plot = page.locator("#bins-chart .u-over").bounding_box()
        assert plot is not None
        page.mouse.move(plot["x"] + plot["width"] * 26 / 48 + 3, plot["y"] + 60)
        expect(page.locator("#bins-readout .change")).to_have_text("busy firing at 2 Jan 2013, 02:00")
        page.mouse.move(plot["x"] + plot["width"] * 8.5 / 48, plot["y"] + 60)
        expect(page.locator("#bins-readout .change")).to_have_count(0)
        page.locator("#bins-chart").focus()
        page.keyboard.press("End")
        for _ in range(5):
            page.keyboard.press("ArrowLeft")
        expect(page.locator("#spoken")).to_contain_text("busy resolved at 2 Jan 2013, 19:00")
        backstage.run(stream.close([40, 200, 40]))
        backstage.run(watcher.look())
        panel(page, "alerts")
        expect(rows).to_have_count(8)
        questions = []
        for seq in (52, 53):  # releases that change no rule, so the page does not ask for the list again
            backstage.run(stream.close([40]))
            backstage.run(watcher.look())
            expect(panel(page, "bins")).to_have_attribute("data-seq", str(seq))
            questions.append(len(asked_for))
        assert questions[1] == questions[0]


def test_hundreds_of_alert_changes_do_not_hide_the_counts(browser: Browser, backstage: Backstage) -> None:
    stream = backstage.stream([40] * 2, epoch_bins=512)
    text = "sum(departures, 1h) > 100"
    watcher = backstage.watch([Rule("busy", text, parse_condition(text))])
    backstage.run(stream.close([40, 200] * 150))
    backstage.run(watcher.look())
    start = backstage.start() + "/streams/departures"
    with opened(browser, start) as page:
        expect(panel(page, "bins")).to_have_attribute("data-seq", "302")
        eventually(page, lambda: _red(page, "#bins-chart canvas") > 300)
        assert _red(page, "#bins-chart canvas") < 8_000  # 150 lines of full height would be more than 30,000
        assert _red_lines(page) == 0
    with opened(browser, start + "?range=24+hours") as page:
        panel(page, "bins")
        eventually(page, lambda: _red_lines(page) >= 12)


def _red_lines(page: Page) -> int:
    """Return how many lines of firing alerts reach the bottom of the chart of bins, below all counts."""
    return int(
        page.evaluate(
            """() => {
              const canvas = document.querySelector("#bins-chart canvas");
              const whole = canvas.getBoundingClientRect();
              const plot = document.querySelector("#bins-chart .u-over").getBoundingClientRect();
              const scale = canvas.width / whole.width;
              const copy = new OffscreenCanvas(canvas.width, canvas.height);
              const drawn = copy.getContext("2d", { willReadFrequently: true });
              drawn.drawImage(canvas, 0, 0);
              const y = Math.round((plot.bottom - whole.top - 8) * scale);
              const { data } = drawn.getImageData(0, y, canvas.width, 1);
              let [lines, before] = [0, false];
              for (let i = 0; i < data.length; i += 4) {
                const red = data[i + 3] > 30 && data[i] > data[i + 1] + 40;
                lines += red && !before;
                before = red;
              }
              return lines;
            }"""
        )
    )


def _red(page: Page, selector: str) -> int:
    """Return how many pixels have the colour of firing alerts."""
    return int(
        page.evaluate(
            """selector => {
              const canvas = document.querySelector(selector);
              // Chromium warns of a canvas of the page that is read again and again.
              const copy = new OffscreenCanvas(canvas.width, canvas.height);
              const drawn = copy.getContext("2d", { willReadFrequently: true });
              drawn.drawImage(canvas, 0, 0);
              const { data } = drawn.getImageData(0, 0, canvas.width, canvas.height);
              let red = 0;
              for (let i = 0; i < data.length; i += 4) {
                red += data[i] > 150 && data[i + 1] < 90 && data[i + 3] > 128;
              }
              return red;
            }""",
            selector,
        )
    )
