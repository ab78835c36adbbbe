"""Boards and annotations in the configuration: what is read, and one line for what cannot be shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_app.config import ConfigError, load_text
from stream_app.core.boards import Annotation, Line, Panel

STREAMS = """
streams:
  clicks:
    source: {file: clicks.ndjson}
    time: {field: at, format: s, bin: 5m, grace: 0s, epoch: 1d}
    privacy: {epsilon: 1}
    keys: {field: country, list: [FR, DE]}
    annotations: [{at: 2026-03-01T00:00:00Z, text: New shop}]
  sales:
    source: {file: sales.ndjson}
    time: {field: at, format: s, bin: 1h, grace: 0s, epoch: 1d}
    privacy: {epsilon: 1}
    sum: {field: amount, min: 0, max: 500, unit: 0.01}
  people:
    source: {file: people.ndjson}
    time: {field: at, format: s, bin: 1h, grace: 0s, epoch: 1d}
    privacy: {epsilon: 1, unit: {user: user}}
    count: users
  days:
    source: {file: days.ndjson}
    time: {field: at, format: s, bin: 1d, timezone: Europe/Paris, grace: 0s, epoch: 30d}
    privacy: {epsilon: 1}
    value: {field: seconds, min: 0, max: 10, buckets: 10}
boards:
  shop:
"""
WHOLE = """
    title: The shop
    range: 7d
    embed: [https://intranet.example.org]
    panels:
      visits: {show: bins, streams: [clicks, clicks/FR, sales], title: Visits, range: 1d}
      income: {show: number, streams: [sales], measure: sum}
      times: {show: cdf, streams: [days]}
    annotations:
      - {from: 2026-03-02T00:00:00Z, to: 2026-03-03T00:00:00Z, text: Sale, link: https://shop.example.org/sale}
      - {at: 2026-03-01T00:00:00Z, text: New prices}
"""


def test_a_board_is_read_as_it_is_written() -> None:
    settings = load_text(STREAMS + WHOLE, Path("app.yaml"), {})
    (board,) = settings.boards
    assert (board.name, board.title, board.range_us) == ("shop", "The shop", 7 * 86_400_000_000)
    assert board.embed == ("https://intranet.example.org",)
    lines = (Line("clicks"), Line("clicks", "FR"), Line("sales"))
    assert board.panels[0] == Panel("visits", "bins", lines, "count", "Visits", 86_400_000_000)
    assert [panel.measure for panel in board.panels] == ["count", "sum", "count"]
    assert [one.text for one in board.annotations] == ["New prices", "Sale"]
    assert board.annotations[1].link == "https://shop.example.org/sale"
    assert settings.streams[0].annotations == (Annotation(1_772_323_200_000_000, None, "New shop"),)


def test_a_key_of_a_board_opens_the_questions_of_its_panels_only() -> None:
    (board,) = load_text(STREAMS + WHOLE, Path("app.yaml"), {}).boards
    without_key = {path for path, key in board.questions() if key is None}
    assert without_key == {
        "/v1/boards/shop",
        "/v1/changes",
        *(f"/v1/streams/{stream}" for stream in ("clicks", "sales", "days")),
        *(f"/v1/streams/{stream}/{path}" for stream in ("clicks", "sales") for path in ("series", "count")),
        "/v1/streams/sales/sum",
        "/v1/streams/days/cdf",
    }
    of_a_key = {f"/v1/streams/clicks/{path}" for path in ("keys/list", "series", "count")}
    assert {(path, key) for path, key in board.questions() if key is not None} == {
        (path, "FR") for path in of_a_key
    }


@pytest.mark.parametrize(
    ("panel", "line"),
    [
        ("{show: pie, streams: [clicks]}", 'show "pie": must be one of number, bins,'),
        ("{show: bins}", "streams is missing; add it"),
        ("{show: bins, streams: clicks}", "must be a list of streams, for example [clicks, clicks/FR]"),
        ("{show: bins, streams: [click]}", "streams name click, which is not here; known: clicks, sales,"),
        ("{show: bins, streams: [clicks, clicks]}", "must name each stream, or each of its keys, once"),
        ("{show: bins, streams: [clicks/UK]}", "clicks/UK: 'UK' is not on the list of clicks: FR, DE, other"),
        ("{show: bins, streams: [sales/FR]}", "sales/FR: sales has no keys; write sales"),
        ("{show: cdf, streams: [clicks]}", "show cdf needs a value, and clicks has none; choose another"),
        ("{show: keys, streams: [sales]}", "show keys needs a stream with keys, and sales has none"),
        ("{show: cdf, streams: [days, days]}", "must name each stream, or each of its keys, once"),
        ("{show: rate, streams: [clicks, sales]}", "streams must be one for rate; give each stream its own"),
        ("{show: bins, streams: [clicks], measure: sum}", "measure sum needs a sum, and clicks has none"),
        (
            "{show: bins, streams: [sales, people]}",
            "sales counts events and people users, so they share no axis",
        ),
        ("{show: bins, streams: [sales, days]}", "sales and days have days of other time zones, or bins of"),
        ("{show: bins, streams: [clicks], range: 0s}", 'range "0s": must be longer than zero'),
        ("{show: bins, streams: [clicks], width: 2}", "width is not a known key; known here: measure,"),
        ("bins", "must hold keys with values, for example {show: bins, streams: [clicks]}"),
    ],
)
def test_a_panel_that_cannot_be_filled_is_refused_in_one_line(panel: str, line: str) -> None:
    refused(f"    panels: {{visits: {panel}}}", "boards.shop.panels.visits", line)


@pytest.mark.parametrize(
    ("rest", "line"),
    [
        ("    title: Shop", "panels has none; add one, for example {visits:"),
        ("    embed: ['*']", "must be a list of origins"),
        (
            "    annotations: [{text: x}]",
            "annotations[1].at is missing; write at for an instant, or from and",
        ),
        ("    annotations: [{at: 2026-01-01T00:00:00Z}]", "annotations[1].text is missing; add it"),
        (
            "    annotations: [{at: 2026-01-01T00:00:00Z, text: x, link: 'javascript:alert(1)'}]",
            'link "javascript:alert(1)": must be a URL that begins with http:// or https://',
        ),
        (
            "    annotations: [{from: 2026-01-02T00:00:00Z, to: 2026-01-01T00:00:00Z, text: x}]",
            "annotations[1].to is not later than from; exchange them",
        ),
    ],
)
def test_a_board_that_cannot_be_shown_is_refused_in_one_line(rest: str, line: str) -> None:
    refused(rest, "boards.shop", line)


def refused(rest: str, where: str, line: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_text(STREAMS + rest + "\n", Path("app.yaml"), {})
    message = str(raised.value)
    assert message.startswith("app.yaml:")
    assert where in message
    assert line in message
    assert "\n" not in message
