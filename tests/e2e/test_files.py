"""A growing file and a list of files are counted live, over rotations and a killed worker."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from deploy.ports import free_port
from tests.e2e.service import Service, answers, get

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]

STREAMS = ("clicks", "history")
PAST_S, PAST_BINS, PAST_FILES = 9_000, 8_960, 10  # three epochs
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
  history:
    source: {{file: history-*.ndjson}}
    time: {{field: at, format: ms, bin: 1s, grace: 4s, epoch: 1h, first: "{first}"}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
"""
REFUSED = ["undecodable", "missing_field", "null", "bad_time", "future", "before_first_bin"]


class Written:
    """The files of both streams, and the events of each second that were written into them."""

    def __init__(self, folder: Path, first_s: int) -> None:
        self.seconds = {stream: Counter[int]() for stream in STREAMS}
        self.folder, self.number = folder, PAST_FILES - 1
        (folder / "clicks.ndjson").touch()
        for number in range(PAST_FILES):
            lines = []
            for bin in range(number * PAST_BINS // PAST_FILES, (number + 1) * PAST_BINS // PAST_FILES):
                self.seconds["history"][first_s + bin] = 1 + bin % 7
                lines += [_line((first_s + bin) * 1000 + 500)] * (1 + bin % 7)
            path = self._file(number)
            path.write_text("".join(lines))
            if number < PAST_FILES - 1:
                self._compress(path)

    def add(self, events: int) -> None:
        """Append events dated now to both logs."""
        now_ms = int(time.time() * 1000)
        self._append("clicks.ndjson", f'{{"meta":{_line(now_ms).strip()}}}\n' * events)
        self._append(self._file(self.number).name, _line(now_ms) * events)
        for counter in self.seconds.values():
            counter[now_ms // 1000] += events

    def add_refused(self) -> None:
        """Append a record for each reason to refuse one."""
        text = 'not json\n{"meta":{}}\n{"meta":{"at":null}}\n{"meta":{"at":"noon"}}\n'
        text += "".join(f'{{"meta":{{"at":{at}}}}}\n' for at in (int((time.time() + 7200) * 1000), 1000))
        self._append("clicks.ndjson", text)

    def rotate(self) -> None:
        """Begin a new file of the list, and compress the one before the last."""
        self.number += 1
        self._file(self.number).touch()
        if (before := self._file(self.number - 2)).exists():
            self._compress(before)

    def end_in_half_a_line(self) -> None:
        """Half a line is not an event until its end is written."""
        self._append("clicks.ndjson", '{"meta":{"at":')

    def _append(self, name: str, text: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(text)

    def _file(self, number: int) -> Path:
        return self.folder / f"history-{number:04}.ndjson"

    def _compress(self, path: Path) -> None:
        path.with_suffix(".ndjson.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


def _line(at_ms: int) -> str:
    return json.dumps({"at": at_ms}) + "\n"


def is_released(port: int, stream: str) -> bool:
    path = f"/v1/streams/{stream}"
    return answers(port, path) and get(port, path)["released_until"] is not None


def released(port: int, stream: str) -> Counter[int]:
    """Return the released seconds of a stream that have events."""
    detail = get(port, f"/v1/streams/{stream}")
    if detail["released_until"] is None:
        return Counter()
    series = get(port, f"/v1/streams/{stream}/series", kind="bin", end=detail["released_until"])
    return +Counter({int(start): int(v) for start, v in zip(series["start"], series["value"], strict=True)})


def all_are_released(service: Service, port: int, written: Written) -> None:
    """Wait until the last second is released; check that each second has the events written in it."""
    for stream, seconds in written.seconds.items():
        end = datetime.fromtimestamp(max(seconds) + 1, UTC).isoformat()
        service.until_true(
            lambda of=stream, end=end: (get(port, f"/v1/streams/{of}")["released_until"] or "") >= end[:19],
            f"the last second of {stream} is released",
        )
        assert released(port, stream) == seconds, stream


def reasons(folder: Path) -> list[str]:
    """Return the reason of each dead letter. After a crash a letter may be written twice: it counts once."""
    files = (folder / "state" / "dead_letters" / "clicks").glob("*")
    letters = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert not any("record" in letter for letter in letters)
    return sorted(reason for _, reason in {(letter["position"], letter["reason"]) for letter in letters})


def test_files_are_followed_and_closed_by_the_clock_over_a_kill(tmp_path: Path) -> None:
    port, first_s = free_port(), int(time.time()) - PAST_S
    first = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first_s))
    (tmp_path / "app.yaml").write_text(CONFIGURATION.format(port=port, first=first))
    written = Written(tmp_path, first_s)
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until_true(lambda: all(map(partial(is_released, port), STREAMS)), "both streams are released")
        for step in range(30):
            written.add(3)
            if step % 10 == 0:
                written.add_refused()
            if step % 8 == 7:
                written.rotate()
            if step == 15:  # another worker continues from the position in the store
                assert service.kill_child("stream_app.shell.child worker")
            time.sleep(0.1)
        written.end_in_half_a_line()
        all_are_released(service, port, written)
        assert len(get(port, "/v1/streams/history")["epochs"]) == 3
        assert service.interrupt() == 0
    assert reasons(tmp_path) == sorted(REFUSED * 3)
    [letters] = (tmp_path / "state" / "dead_letters" / "clicks").iterdir()
    assert letters.stat().st_mode & 0o777 == 0o600
    page = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text()
    kept = [entry.name for entry in (tmp_path / "state").iterdir()]
    assert [name for name in kept if f"`state.dir/{name}`" not in page] == []
