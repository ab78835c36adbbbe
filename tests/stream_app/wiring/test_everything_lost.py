"""State and store are both deleted: the same events get new noise only with the operator's consent.

The worker is the real one, with its own real Redis and, for a topic, a real broker.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from stream_app.config import load
from stream_app.ports import OperatorError
from stream_app.wiring.storage import new_ledger
from stream_app.wiring.workers import run_worker

pytestmark = pytest.mark.redis


def configured(directory: Path, text: str, stream: str = "clicks", privacy: str = "epsilon: 1") -> Path:
    """Write a few events of two days, and a configuration that replays them."""
    directory.mkdir(exist_ok=True)
    lines = [json.dumps({"at": f"2024-01-0{1 + n // 20}T{n % 20:02}:30:00Z"}) for n in range(40)]
    (directory / "events.ndjson").write_text("\n".join(lines) + "\n")
    config = directory / "app.yaml"
    config.write_text(f"""{text}
redis: {{url: "embedded:./redis"}}
publish_every: 250ms
streams:
  {stream}:
    source: {{file: events.ndjson, replay: {{from: 2024-01-01T00:00:00Z, to: 2024-01-03T00:00:00Z}}}}
    time: {{field: at, format: iso8601, bin: 1h, epoch: 2d}}
    privacy: {{{privacy}}}
""")
    return config


def count(config: Path) -> None:
    """Count until the replay has ended."""
    asyncio.run(run_worker(load(config)))


def lose_everything(directory: Path) -> None:
    """Delete the state directory and the store."""
    for lost in ("state", "redis"):
        shutil.rmtree(directory / lost)


def released(directory: Path, stream: str) -> int:
    file = directory / "state" / "witness" / f"{stream}.ndjson"
    return len(file.read_bytes().splitlines()) if file.exists() else 0


@pytest.mark.parametrize("kind", ["file", pytest.param("topic", marks=pytest.mark.kafka)])
def test_with_a_ledger_elsewhere_the_same_file_is_not_noised_again_without_a_word(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = "ledger: {file: ../elsewhere/ledger.ndjson}"
    if kind == "topic":
        servers = request.getfixturevalue("bootstrap_servers")
        text = f"kafka: {{bootstrap_servers: '{servers}'}}\nledger: {{topic: ledger-{uuid4().hex[:8]}}}"
    directory = tmp_path / "service"
    config = configured(directory, text)
    with pytest.raises(OperatorError, match=rf"^ledger\.{kind}: .* it is unknown what was measured before"):
        count(config)
    asyncio.run(new_ledger(load(config)))
    with caplog.at_level(logging.WARNING):
        count(config)
    assert [line for line in caplog.messages if "no earlier run is known" in line] == []
    assert released(directory, "clicks") == 48

    lose_everything(directory)
    said = rf"^stream clicks: ledger\.{kind}: .* knows that it measured file:events\.ndjson \(epoch 0, from"
    for _ in range(2):
        with pytest.raises(OperatorError, match=said):
            count(config)
        assert released(directory, "clicks") == 0

    # Under another name the stream needs consent, and the sum includes both streams.
    config = configured(directory, text, "again")
    with pytest.raises(OperatorError, match=r"streams\.again\.privacy\.accept is missing: .* epsilon 2;"):
        count(config)
    count(configured(directory, text, "again", 'epsilon: 1, accept: "measured again"'))
    assert released(directory, "again") == 48
