"""Boards and annotations in the configuration: what is read, and one line for what cannot be shown."""

from __future__ import annotations

from pathlib import Path

from stream_app.config import load_text
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
