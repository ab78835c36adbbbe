"""A file that grows while the service follows it: bins close by the clock, bad lines become dead letters."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path

import pytest

from deploy.ports import free_port
from tests.e2e.service import Service, get

pytestmark = [pytest.mark.redis, pytest.mark.slow]

CONFIGURATION = """
redis: {{url: "embedded:./redis"}}
state: {{dir: ./state}}
api: {{port: {port}}}
publish_every: 250ms
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: meta.at, format: ms, bin: 1s, grace: 4s, epoch: 1h, max_ahead: 60s}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
"""


def test_a_growing_file_is_followed_and_closed_by_the_clock(tmp_path):
    port = free_port()
    (tmp_path / "app.yaml").write_text(CONFIGURATION.format(port=port))
    events = tmp_path / "clicks.ndjson"
    events.touch()
    written: dict[int, int] = {}
    with Service(["run", "--config", "app.yaml"], tmp_path) as service, events.open("a", buffering=1) as log:
        service.until("bins closed")
        for step in range(30):
            now = time.time()
            written[int(now)] = written.get(int(now), 0) + 3
            log.write(f'{{"meta":{{"at":{int(now * 1000)}}}}}\n' * 3)
            if step % 10 == 0:
                log.write('not json\n{"meta":{}}\n{"meta":{"at":null}}\n{"meta":{"at":"noon"}}\n')
                log.write(f'{{"meta":{{"at":{int((now + 7200) * 1000)}}}}}\n{{"meta":{{"at":1000}}}}\n')
            if step == 15:
                # Another worker continues from the position in the store.
                assert service.kill_child("stream_app.shell.child worker")
            time.sleep(0.1)
        # Half a line is not an event until its end is written.
        log.write('{"meta":{"at":')
        last = max(written)
        service.until_true(lambda: _until(port) > last + 1, "the last second is released")
        series = get(port, "/v1/streams/clicks/series", kind="bin")
        counted = zip(series["start"], series["value"], strict=True)
        assert {int(second): count for second, count in counted if count} == written
        assert service.interrupt() == 0
    [refused] = (tmp_path / "state" / "dead_letters" / "clicks").iterdir()  # dead letters of both workers
    letters = [json.loads(line) for line in refused.read_text().splitlines()]
    # After a crash a letter may be written twice, so letters with the same position count once.
    reasons = sorted(reason for _, reason in {(letter["position"], letter["reason"]) for letter in letters})
    expected = ["undecodable", "missing_field", "null", "bad_time", "future", "before_first_bin"]
    assert reasons == sorted(expected * 3)
    assert not any("record" in letter for letter in letters)
    assert refused.stat().st_mode & 0o777 == 0o600
    page = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text()
    assert [
        entry.name for entry in (tmp_path / "state").iterdir() if f"`state.dir/{entry.name}`" not in page
    ] == []


def _until(port: int) -> float:
    until = get(port, "/v1/streams/clicks")["released_until"]
    return datetime.fromisoformat(until).timestamp() if until else 0.0
