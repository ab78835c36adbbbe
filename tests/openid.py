"""An OpenID provider for tests: real HTTP on loopback, tokens by client credentials, and its public keys."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT, SECRET = "counter", "hunter2"
AUDIENCE = "kafka"


def _plain(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _number(number: int) -> str:
    return _plain(number.to_bytes((number.bit_length() + 7) // 8, "big"))


class Provider:
    """The provider's state: its key, its answers, and the forms that clients sent."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        self.url = ""
        self.life_s = 300
        self.asked: list[dict[str, list[str]]] = []
        self.broken: tuple[int, Any] | None = None  # a status and an answer instead of tokens

    @property
    def token_url(self) -> str:
        """Where tokens are given."""
        return f"{self.url}/token"

    @property
    def keys_url(self) -> str:
        """Where the public keys are."""
        return f"{self.url}/keys"

    def token(self, subject: str = CLIENT, life_s: float | None = None) -> str:
        """Return a signed token."""
        now = int(time.time())
        claims = {"sub": subject, "aud": AUDIENCE, "iat": now, "exp": int(now + (life_s or self.life_s))}
        head = {"alg": "RS256", "kid": "one", "typ": "JWT"}
        said = ".".join(_plain(json.dumps(part).encode()) for part in (head, claims))
        return f"{said}.{_plain(self.key.sign(said.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def keys(self) -> dict[str, Any]:
        """Return the public keys, as brokers read them."""
        public = self.key.public_key().public_numbers()
        one = {"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256"}
        return {"keys": [one | {"n": _number(public.n), "e": _number(public.e)}]}

    def answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, Any]:
        """Return status and answer of a request for a token."""
        self.asked.append(form)
        if self.broken is not None:
            return self.broken
        if form.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        expected = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if authorization != f"Basic {expected}":
            return 401, {"error": "invalid_client"}
        return 200, {"access_token": self.token(), "token_type": "Bearer", "expires_in": self.life_s}


@contextmanager
def providing(provider: Provider) -> Iterator[Provider]:
    """Serve a provider during the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, provider.keys())

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self._answer(*provider.answer(self.headers.get("Authorization", ""), form))

        def _answer(self, status: int, answer: Any) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
