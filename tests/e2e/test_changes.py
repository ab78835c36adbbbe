"""The real service, started again with another epsilon: the next epoch has it, readers see one history."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from deploy.ports import free_port
from tests.e2e.service import Service
from tests.patience import eventually

CONFIG = """
redis: {{url: "embedded:./redis"}}
api: {{port: {port}}}
publish_every: 250ms
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: s, bin: 1s, grace: 0s, epoch: 4s}}
    privacy: {{epsilon: 1}}
"""


@pytest.mark.redis
def test_a_start_with_another_epsilon_changes_the_next_epoch(tmp_path: Path) -> None:
    port = free_port()
    text = CONFIG.format(port=port)
    (tmp_path / "clicks.ndjson").write_text(json.dumps({"at": int(time.time())}) + "\n")
    witness = tmp_path / "state" / "witness" / "clicks.ndjson"

    def rows() -> list[dict[str, Any]]:
        return [json.loads(line) for line in witness.read_text().splitlines()] if witness.exists() else []

    def is_changed_and_visible() -> bool:
        changed = [row for row in rows() if "changed" in row]
        return bool(changed) and told("")["seq"] >= changed[0]["seq"]

    def told(what: str) -> dict[str, Any]:
        with urlopen(f"http://127.0.0.1:{port}/v1/streams/clicks{what}") as answer:
            return dict(json.load(answer))

    (tmp_path / "app.yaml").write_text(text)
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until("released until")
        assert service.interrupt() == 0
    (tmp_path / "app.yaml").write_text(text.replace("epsilon: 1", "epsilon: 2"))
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until("its settings change with epoch")
        service.until("page and API")
        eventually(is_changed_and_visible, "the changed epoch is visible")
        detail, privacy = told(""), told("/privacy")
        assert (detail["epsilon"], privacy["source_epsilon"]) == ("2", "2")
        assert {entry["epsilon"] for entry in privacy["ledger"]} == {"1", "2"}
        assert service.interrupt() == 0
    assert (tmp_path / "state" / "witness" / "format").read_text() == "4\n"
    assert len({row["strategy"] for row in rows()}) == 2
    assert [row["seq"] for row in rows()] == list(range(1, len(rows()) + 1))
