"""From an access log to a page: what nobody tuned for is counted exactly, and no address stays anywhere."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deploy.ports import free_port
from tests.blocks.pages import block
from tests.e2e.service import Service, answers, get
from tests.stream_app.web_traffic import SITE, Truth, made

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]

LINES, DAYS = 6_000, 2
STREAM_APP = [sys.executable, "-m", "stream_app"]
EXACTLY = {"epsilon: 1,": "epsilon: 1e9, not_private: true,", "epsilon: 0.5,": "epsilon: 5e8,"}


@pytest.fixture
def site(tmp_path: Path) -> tuple[Path, Truth, datetime]:
    """Make a log of two days until today, the first half of it rotated and compressed."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    lines, truth = made(LINES, DAYS, first := today - timedelta(days=DAYS))
    whole = list(lines)
    (tmp_path / "access.log").write_bytes(b"".join(whole[LINES // 2 :]))
    (tmp_path / "access.log.1").write_bytes(b"".join(whole[: LINES // 2]))
    subprocess.run(["gzip", tmp_path / "access.log.1"], check=True)
    return tmp_path, truth, first


def counts(port: int, stream: str, first: datetime) -> dict[str, Any]:
    """Return the released count of each key since an instant, and of all others."""
    keys = {*get(port, f"/v1/streams/{stream}/keys/list", limit=1000)["keys"], "other"}
    since = first.isoformat()
    return {key: get(port, f"/v1/streams/{stream}/count", key=key, start=since)["value"] for key in keys}


def test_page_from_a_log_is_exact_and_keeps_no_address(site: tuple[Path, Truth, datetime]) -> None:
    folder, truth, first = site
    port = free_port()
    options = ["--site", SITE, "--first", first.strftime("%Y-%m-%d")]
    init, run = block("docs/how-to/web-log.md: $ stream-app init access.log").commands
    command = [*STREAM_APP, *init.split()[1:], *options]
    subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL)
    configuration = folder / "stream-app.yaml"
    text = configuration.read_text()
    for private, exact in EXACTLY.items():
        assert private in text
        text = text.replace(private, exact)
    configuration.write_text(f"api: {{port: {port}}}\ndead_letters: {{content: true}}\n{text}")
    with (folder / "access.log").open("ab") as log:
        log.write(b"198.51.1.1 no request\n")
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    released = (now - timedelta(hours=1)).strftime("%Y-%m-%dT%H")

    with Service(run.split()[1:], folder) as service:

        def is_released() -> bool:
            if not answers(port, "/v1/streams"):
                return False
            streams = get(port, "/v1/streams")["streams"]
            return len(streams) == 3 and all((one["released_until"] or "") >= released for one in streams)

        service.until_true(is_released, "all streams have released what the log holds", 300)
        visitors = counts(port, "visitors", first)
        assert visitors == {
            **{one: truth.count_of(one) for one in ("desktop", "mobile", "tablet")},
            "other": 0,
        }
        pages = counts(port, "pages", first)
        shown = {page: count for page, count in truth.pages.items() if page in pages}
        assert len(shown) > 5
        assert pages == {**shown, "other": truth.pages.total() - sum(shown.values())}
        assert counts(port, "referrers", first) == {**truth.referrers, "other": 0}
        board = get(port, "/v1/boards/site")
        assert [panel["show"] for panel in board["panels"]] == ["bins", "keys", "keys", "keys"]
        keys = folder / "state" / "noise_keys" / "@visitors"
        service.until_true(lambda: len(list(keys.rglob("*.key"))) <= 1, "spent days' keys are destroyed", 120)
        output = service.output
    _assert_nowhere(folder, output, truth.addresses)


def _assert_nowhere(folder: Path, output: str, addresses: set[str]) -> None:
    """Check that no file but the log itself, and no output, has an address or an agent."""
    files = [path for path in (folder / "state").rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        content = path.read_bytes()
        assert b"Mozilla/" not in content, path
        assert b"198.51." not in content, path
    assert "198.51." not in output
    assert len(addresses) > 1000
