"""``stream-app alerts test`` sends one notification to every target, and prints what each answered."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deploy.ports import free_port
from stream_app.shell.commands import main

CONFIGURATION = """
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: ms, bin: 1m, grace: 5s, epoch: 1d}}
    privacy: {{epsilon: 1}}
alerts:
{targets}
"""


class Receivers(ThreadingHTTPServer):
    """Answers like several receivers; notes the bodies that each got, by path."""

    def __init__(self) -> None:
        self.got: dict[str, list[dict[str, object]]] = {}
        super().__init__(("127.0.0.1", 0), _Answer)

    @property
    def url(self) -> str:
        """Where they listen."""
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: Receivers

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.got.setdefault(self.path, []).append(body)
        status, text = {
            "/slack": (200, b"ok") if "text" in body else (400, b"no_text\x1b[2J"),
            "/busy": (503, b""),
            "/gone": (404, b"no_service"),
        }.get(self.path, (200, b""))
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_arguments: object) -> None: ...


@pytest.fixture
def receivers() -> Iterator[Receivers]:
    """Yield receivers that listen."""
    with Receivers() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def tried(folder: Path, targets: str) -> Result:
    """Run the command with these targets."""
    (folder / "clicks.ndjson").touch()
    (folder / "app.yaml").write_text(CONFIGURATION.format(targets=targets))
    return CliRunner().invoke(main, ["alerts", "test", "--config", str(folder / "app.yaml")])


def test_every_target_gets_one_test_notification(tmp_path: Path, receivers: Receivers) -> None:
    at = receivers.url
    webhooks = f'["{at}/pager?token=x", {{url: "{at}/slack", format: slack}}]'
    result = tried(tmp_path, f'  webhooks: {webhooks}\n  alertmanagers: ["{at}"]')
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "log: written into the log",
        f"alerts.webhooks[0] ({at}): status 200",
        f"alerts.webhooks[1] ({at}): status 200",
        f"alerts.alertmanagers[0] ({at}): status 200",
    ]
    assert {path: len(bodies) for path, bodies in receivers.got.items()} == {
        "/pager?token=x": 1,
        "/slack": 1,
        "/api/v2/alerts": 1,
    }
    assert "This is a test" in json.dumps(receivers.got["/slack"])


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        ("slack", "refused: status 400 no_text[2J"),  # Alertmanager's body; no control character is printed
        ("busy", "not delivered: it answered 503"),
        ("gone", "refused: status 404 no_service"),
    ],
)
def test_a_target_that_does_not_accept_it_is_named(
    tmp_path: Path, receivers: Receivers, target: str, answer: str
) -> None:
    result = tried(tmp_path, f'  webhooks: ["{receivers.url}/{target}"]')
    assert (result.exit_code, result.stdout.splitlines()[1:]) == (
        2,
        [f"alerts.webhooks[0] ({receivers.url}): {answer}"],
    )


def test_a_target_that_does_not_listen_is_named(tmp_path: Path) -> None:
    result = tried(tmp_path, f'  webhooks: ["http://127.0.0.1:{free_port()}/x"]')
    assert result.exit_code == 2
    assert "not delivered: not reached: ConnectError" in result.output
