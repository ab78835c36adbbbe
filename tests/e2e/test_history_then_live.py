"""A log of many files is counted from its beginning and then followed: one stream, several epochs."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
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
    source: {{file: clicks-*.ndjson}}
    time: {{field: at, format: ms, bin: {bin}, grace: {grace}, epoch: {epoch}, first: "{first}"}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
"""


def _configure(folder: Path, bin: str, grace: str, epoch: str, first_s: int) -> int:
    port = free_port()
    first = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first_s))
    text = CONFIGURATION.format(port=port, bin=bin, grace=grace, epoch=epoch, first=first)
    (folder / "app.yaml").write_text(text)
    return port


def _line(at_s: float) -> str:
    return json.dumps({"at": int(at_s * 1000)}) + "\n"


def _write_history(folder: Path, first_s: int, bin_s: int, bins: int, files: int) -> Counter[int]:
    """Write ``bins`` bins into files; all but the last are compressed. Return the count of each bin."""
    counted: Counter[int] = Counter()
    for number in range(files):
        lines = []
        for bin in range(number * bins // files, (number + 1) * bins // files):
            start_s = first_s + bin * bin_s
            counted[start_s] = 1 + bin % 7
            lines += [_line(start_s + 0.5)] * counted[start_s]
        path = folder / f"clicks-{number:04}.ndjson"
        if number < files - 1:
            path.with_suffix(".ndjson.gz").write_bytes(gzip.compress("".join(lines).encode()))
        else:
            path.write_text("".join(lines))
    return counted


def _released(port: int, start_s: int) -> dict[int, int]:
    """Return the released bins that are not empty, from a start on."""
    until = get(port, "/v1/streams/clicks")["released_until"]
    if until is None or datetime.fromisoformat(until).timestamp() <= start_s:
        return {}
    series = get(port, "/v1/streams/clicks/series", kind="bin", start=start_s, end=until)
    return {int(start): v for start, v in zip(series["start"], series["value"], strict=True) if v}


@pytest.mark.timeout(600)
def test_history_is_counted_and_then_followed(tmp_path: Path) -> None:
    """Three epochs of past seconds in ten files, then seconds that happen now, over rotations and a kill."""
    first_s = int(time.time()) - 9000
    port = _configure(tmp_path, "1s", "4s", "1h", first_s)
    written = _write_history(tmp_path, first_s, 1, 8960, 10)
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until("bins closed")
        number = 9
        current = (tmp_path / "clicks-0009.ndjson").open("a", buffering=1)
        for step in range(40):
            now_s = time.time()
            written[int(now_s)] += 3
            current.write(_line(now_s) * 3)
            if step % 8 == 7:
                current.close()
                number += 1
                finished = tmp_path / f"clicks-{number - 1:04}.ndjson"
                current = (tmp_path / f"clicks-{number:04}.ndjson").open("a", buffering=1)
                if step == 23:
                    assert service.kill_child("stream_app.shell.child worker")
                if step >= 15:
                    time.sleep(0.3)
                    packed = finished.with_suffix(".ndjson.gz")
                    packed.write_bytes(gzip.compress(finished.read_bytes()))
                    finished.unlink()
            time.sleep(0.1)
        current.close()
        last = max(written)
        service.until_true(lambda: max(_released(port, last - 5), default=0) >= last, "all is released")
        assert _released(port, first_s) == dict(written)
        assert len(get(port, "/v1/streams/clicks")["epochs"]) == 3
        assert service.interrupt() == 0
