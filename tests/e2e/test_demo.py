"""``make demo``: what a new user sees in the first minutes, and what a second start prints."""

from __future__ import annotations

import socket
from datetime import datetime

import httpx
import pytest

from deploy.ports import free_port
from tests.e2e.service import Follower, Service, answers, get

pytestmark = [pytest.mark.redis, pytest.mark.slow]


def test_first_start_serves_while_it_replays_and_later_ones_go_on_or_serve_or_measure_again(tmp_path):
    port = free_port()
    arguments = ["demo", "--state", "demo", "--port", str(port)]
    with Service(arguments, tmp_path) as first:
        until = served_while_replayed(port, first)
        assert first.interrupt() == 0
    assert datetime.fromisoformat(until) > datetime.fromisoformat("2013-01-03T00:00:00Z")
    assert "nothing was released yet; starting" in first.output
    with Service([*arguments, "--speed", "max"], tmp_path) as second:
        second.until("the replay is complete")
        assert second.interrupt() == 0
    assert "departures: going on from 2013-" in second.output
    with Service([*arguments, "--speed", "max", "--seconds", "30"], tmp_path) as third:
        assert third.wait() == 0
    assert "departures: already complete; what was released is served" in third.output
    assert "30 seconds are over; ending" in third.output
    with Service([*arguments, "--speed", "9d/s", "--fresh"], tmp_path) as fresh:
        fresh.until("bins closed")
        assert "measurement 2 of the same events" in fresh.output
        fresh.until_true(lambda: answers(port, "/v1/streams/departures-2/privacy"), "it is served")
        assert get(port, "/v1/streams/departures-2/privacy")["source_epsilon"] == "2"
        assert [stream["stream"] for stream in get(port, "/v1/streams")["streams"]] == [
            "departures",
            "departures-2",
        ]
        assert fresh.interrupt() == 0


def served_while_replayed(port: int, demo: Service) -> str:
    """Check what a running demo serves; return the instant until which it has released."""
    demo.until_true(lambda: answers(port, "/v1/streams") and get(port, "/v1/streams")["streams"], "streams")
    follower = Follower(port, "departures")
    demo.until_true(lambda: len(follower.seen) > 50, "releases arrive by SSE")
    (stream,) = get(port, "/v1/streams")["streams"]
    assert (stream["stream"], stream["private"], stream["epsilon"]) == ("departures", True, "1")
    until = str(get(port, "/v1/streams/departures")["released_until"])
    count = get(port, "/v1/streams/departures/count", end=until)
    assert count["interval"][0] <= count["value"] <= count["interval"][1]
    series = get(port, "/v1/streams/departures/series", kind="bin", end=until)
    assert len(series["value"]) >= 50
    assert get(port, "/v1/streams/departures/privacy")["source_epsilon"] == "1"
    assert get(port, "/v1/streams/departures/nodes", epoch=0, level=4)["values"]
    page = httpx.get(f"http://127.0.0.1:{port}/", timeout=60, verify=False)
    assert "text/html" in page.headers["content-type"]
    for path in ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json"):
        assert answers(port, path), path
    follower.close()
    assert follower.changed == []
    return until


def test_replay_of_one_file_leaves_its_releases_and_ends(tmp_path):
    (tmp_path / "events.csv").write_text("id,at\n" + "".join(f"{n},{n * 60}\n" for n in (5, 1, 3, 2, 4, 0)))
    arguments = ["--field", "at", "--time-format", "s", "--format", "csv", "--bin", "1m"]
    span = ["--from", "1970-01-01T00:00:00Z", "--to", "1970-01-01T00:06:00Z"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        whole = ["replay", "events.csv", *arguments, *span, "--port", str(port)]
        with Service(whole, tmp_path) as replay:
            assert replay.wait() == 0  # no API is started, so another process may have the port
        with Service([*whole, "--serve"], tmp_path) as served:
            assert served.wait() == 2
    assert served.lines[-1].startswith(f"stream-app: --port: 127.0.0.1:{port} cannot be served")
    assert "--serve beside the same options serves it" in replay.output
    assert "6 of 6 bins closed, released until 1970-01-01T00:06:00Z" in replay.output
    witness = tmp_path / "state" / "replay" / "witness" / "replay.ndjson"
    assert len(witness.read_text().splitlines()) == 6
