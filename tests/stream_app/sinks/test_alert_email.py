"""Alerts as e-mail: a real client and a small server, which answers as it is told."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest

from deploy.ports import free_port
from stream_app.core.alerts.targets import Email
from stream_app.ports.alerts import NotDelivered, Refused
from stream_app.sinks.alert_targets import EmailTarget
from tests.certificates import write_certificates
from tests.stream_app.sinks.test_alert_targets import TOLD

pytestmark = pytest.mark.slow


@dataclass
class MailServer:
    """A mail server. Args: answers, by the beginning of a command; offers, its extensions; tls, for it."""

    answers: dict[str, str] = field(default_factory=dict)
    offers: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None
    at_once: bool = False  # TLS from the first byte
    said: list[str] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    port: int = 0

    def serve(self, listener: socket.socket) -> None:
        """Serve one connection after another until the listener is closed."""
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            try:
                with ExitStack() as open:
                    self.converse(open.enter_context(connection), open)
            except OSError:
                continue  # the client did not trust the certificate

    def secured(self, connection: socket.socket, open: ExitStack) -> socket.socket:
        assert self.tls is not None
        wrapped = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        open.enter_context(wrapped).do_handshake()
        return wrapped

    def converse(self, connection: socket.socket, open: ExitStack) -> None:
        if self.at_once:
            connection = self.secured(connection, open)
        lines = connection.makefile("rb")
        connection.sendall(b"220 ready\r\n")
        while line := lines.readline():
            command = line.decode().strip()
            self.said.append(command)
            verb = command.split(" ")[0].upper()
            planned = (answer for begin, answer in self.answers.items() if command.startswith(begin))
            answer = next(planned, None) or {"EHLO": "250", "DATA": "354 go on", "QUIT": "221 bye"}.get(
                verb, "250 ok"
            )
            if verb == "EHLO":
                names = ["mail.example.org", *self.offers]
                answer = "\r\n".join([*(f"250-{name}" for name in names[:-1]), f"250 {names[-1]}"])
            if verb == "STARTTLS" and self.tls:
                connection.sendall(b"220 go on\r\n")
                connection = self.secured(connection, open)
                lines, self.offers = connection.makefile("rb"), ("AUTH PLAIN",)
                continue
            if verb == "AUTH":
                answer = self.answers.get("AUTH", "235 welcome")
            connection.sendall(f"{answer}\r\n".encode())
            if verb == "DATA" and answer.startswith("354"):
                body = b"".join(iter(lines.readline, b".\r\n"))
                after = self.answers.get("body", "250 queued")
                if after.startswith("250"):
                    self.messages.append(body)
                connection.sendall(f"{after}\r\n".encode())


@contextmanager
def running(**options: Any) -> Iterator[MailServer]:
    """Run a mail server on a free port during the block."""
    server = MailServer(**options)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        server.port = listener.getsockname()[1]
        thread = threading.Thread(target=server.serve, args=(listener,), daemon=True)
        thread.start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def sent(url: str, site: str | None = None, **told: Any) -> str:
    """Send one transition and return the answer."""
    email = Email(url, "counts@example.org", ("ops@example.org", "boss@example.org"))
    return asyncio.run(EmailTarget(email, site).send(TOLD | told))


def test_a_message_has_the_text_and_the_key() -> None:
    with running() as server:
        url = f"smtp://127.0.0.1:{server.port}"
        assert sent(url, "https://counts.example.org", rule="busy[a\r\nBcc: x@y.z]", reach=1.0) == (
            "accepted for 2 receiver(s)"
        )
        assert sent(url, kind="pending") == ""
    [raw] = server.messages
    message = message_from_bytes(raw, policy=policy.default)
    assert message["Bcc"] is None
    assert message["Subject"] == "FIRING: busy[aBcc: x@y.z] (clicks)"
    assert message["Message-ID"] == f"<{TOLD['key']}@example.org>"
    assert message["To"] == "ops@example.org, boss@example.org"
    assert message["Date"] == "Thu, 01 Jan 1970 01:01:40 +0000"
    text = message.get_content()
    assert "Estimate: 9.5 (95 % interval 8.5 to 10.5)" in text
    assert "https://counts.example.org/streams/clicks" in text


@pytest.mark.parametrize("key", ["\ud800", "é\x00", "x" * 5_000, "\r\n.\r\n", "名", "=?utf-8?q?=0ABcc:?="])
def test_any_key_is_sent(key: str) -> None:
    with running() as server:
        assert sent(f"smtp://127.0.0.1:{server.port}", rule=f"busy[{key}]").startswith("accepted")
    [raw] = server.messages
    message = message_from_bytes(raw, policy=policy.default)
    assert "Condition: sum(clicks, 1h)" in message.get_content()
    assert set(message.keys()) >= {"From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"}
    assert message["Bcc"] is None


FINAL, LATER = Refused, NotDelivered


@pytest.mark.parametrize(
    ("answers", "error", "said"),
    [
        ({"rcpt": "550 no such user"}, FINAL, "status 550"),
        ({"rcpt TO:<boss": "550 no such user"}, FINAL, "status 550"),
        ({"rcpt": "450 greylisted"}, LATER, "it answered 450"),
        ({"mail": "553 not yours"}, FINAL, "status 553"),
        ({"mail": "451 later"}, LATER, "it answered 451"),
        ({"data": "554 no"}, FINAL, "status 554"),
        ({"body": "552 too large"}, FINAL, "status 552"),
        ({"body": "452 disk is full"}, LATER, "it answered 452"),
    ],
)
def test_an_answer_from_500_is_final_and_others_are_tried_again(
    answers: dict[str, str], error: type[Exception], said: str
) -> None:
    with running(answers=answers) as server, pytest.raises(error, match=said):
        sent(f"smtp://127.0.0.1:{server.port}")
    assert len(server.messages) == (1 if "rcpt TO:<boss" in answers else 0)


def test_a_server_that_does_not_listen_is_tried_again() -> None:
    with pytest.raises(NotDelivered, match="not reached: ConnectionRefusedError"):
        sent(f"smtp://127.0.0.1:{free_port()}")


def test_a_password_is_sent_by_tls_only() -> None:
    with running(offers=("AUTH PLAIN",)) as server, pytest.raises(NotDelivered, match="offers no STARTTLS"):
        sent(f"smtp://counts:word@127.0.0.1:{server.port}")
    assert not [command for command in server.said if command.startswith("AUTH")]


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_a_trusted_server_gets_the_password_and_others_get_nothing(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_certificates(tmp_path, "server")
    trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trusted.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    offers = ("STARTTLS",) if scheme == "smtp" else ("AUTH PLAIN",)
    options = {"tls": trusted, "at_once": scheme == "smtps", "offers": offers}
    with running(**options) as server:
        url = f"{scheme}://counts:p%40ss@127.0.0.1:{server.port}"
        with pytest.raises(NotDelivered, match="not reached: SSL"):
            sent(url)
        assert not [command for command in server.said if command.startswith("AUTH")]
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        server.offers = offers
        assert sent(url).startswith("accepted")
        assert "AUTH PLAIN AGNvdW50cwBwQHNz" in server.said  # counts, p@ss
        server.offers, server.answers["AUTH"] = offers, "535 wrong"
        with pytest.raises(NotDelivered, match="it answered 535"):
            sent(url)
