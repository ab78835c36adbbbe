"""The real service changes grace and late policy under one name, from an epoch's end that it announces."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from deploy.ports import free_port
from stream_app.core.instants import format_instant, parse_instant
from stream_app.shell.commands import main
from tests.e2e.service import Service
from tests.e2e.test_successor import Writer
from tests.patience import eventually

CONFIG = """
redis: {{url: "embedded:./redis"}}
api: {{port: {port}}}
publish_every: 250ms
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: ms, bin: 1s, grace: 1s, epoch: 6s, first: "{first}"}}
    privacy: {{epsilon: 1000000000, not_private: true}}
    late: next_bin
"""
SAID = "with a new epoch: late dead_letter instead of next_bin, time.grace 2s instead of 1s"


@pytest.mark.redis
def test_a_running_stream_takes_other_settings_and_counts_every_event(tmp_path: Path) -> None:
    port, first_s, file = free_port(), int(time.time()) - 2, tmp_path / "app.yaml"
    text = CONFIG.format(port=port, first=format_instant(first_s * 10**6))
    changed = text.replace("grace: 1s", "grace: 2s").replace("next_bin", "dead_letter")
    writer = Writer(tmp_path / "clicks.ndjson")
    writer.file.touch()
    writer.start()

    def told(what: str = "") -> dict[str, Any]:
        with urlopen(f"http://127.0.0.1:{port}/v1/streams/clicks{what}") as answer:
            return dict(json.load(answer))

    def is_counted(until_us: int) -> bool:
        released = told()["released_until"]
        return bool(released) and parse_instant(released) >= until_us

    file.write_text(text)
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until("released until")
        file.write_text(changed)
        checked = CliRunner().invoke(main, ["check-config", "--config", str(file)])
        assert checked.exit_code == 0
        assert "clicks: from " in checked.output
        assert SAID in checked.output
        assert service.interrupt() == 0
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until(SAID)
        said = service.output.split(SAID)[0].rpartition("from ")[2]
        switch_us = parse_instant(said.split(" on,")[0])
        assert (switch_us // 1_000_000 - first_s) % 6 == 0
        service.until("its settings change with epoch")
        eventually(lambda: is_counted(switch_us + 3_000_000), "the changed settings have released")
        writer.ends.set()
        writer.join()
        until = told()["released_until"]
        count = told(f"/count?end={until}")
        own = [at for at in writer.times_ms if first_s * 1000 <= at < parse_instant(until) // 1000]
        assert count["value"] == len(own)
        assert service.interrupt() == 0
