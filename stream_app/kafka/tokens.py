"""Access tokens for Kafka's mechanism OAUTHBEARER: from an OpenID provider, or from a file."""

from __future__ import annotations

import math
import ssl
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stream_app.ports import OperatorError

if TYPE_CHECKING:
    import httpx  # else imported when a token is fetched: it takes a while, and few need it

ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID = "sasl.oauthbearer.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.secret"
SCOPE = "sasl.oauthbearer.scope"
EXTENSIONS = "sasl.oauthbearer.extensions"
TOKEN_FILE = "sasl.oauthbearer.token.file"
AUTHORITY = "https.ca.location"

ANSWER_WITHIN_S = 10.0
_PART_OF_LIFE = 0.8  # then a new token is fetched, so that no connection begins with one that is about to end
_SHORT_LIFE_S = 60.0  # of a token whose answer states no life
_REFUSALS = (400, 401, 403)  # RFC 6749, 5.2; others are failures of the provider, which end by themselves


class Tokens:
    """The tokens of one client; any thread may ask.

    A file is read each time, because its writer replaces it before its token ends. A provider is asked
    by client credentials (RFC 6749, 4.4), again when most of the last token's life is over.
    Args: settings, librdkafka's names and values. SECRET: tokens and the client's secret are never shown.
    """

    def __init__(self, settings: Mapping[str, str], where: str = "kafka") -> None:
        self._given, self._where = settings, where
        self._lock = threading.Lock()
        self._token, self._until_s = "", 0.0

    def current(self) -> str:
        """Return a token that is valid now.

        Raises: OperatorError if the provider refuses this client, or the file holds no token; ConnectionError
            if the provider does not answer.
        """
        if (file := self._given.get(TOKEN_FILE)) is not None:
            return _read(Path(file), self._where)
        with self._lock:
            if time.monotonic() >= self._until_s:
                self._token, life_s = self._ask()
                self._until_s = time.monotonic() + _PART_OF_LIFE * life_s
            return self._token

    def extensions(self) -> dict[str, str]:
        written = [item for item in self._given.get(EXTENSIONS, "").split(",") if item]
        return {name.strip(): value for name, _, value in (item.partition("=") for item in written)}

    def _ask(self) -> tuple[str, float]:
        """Ask the provider; return a token and the seconds of its life."""
        import httpx

        client = self._given[CLIENT_ID]
        place = self._given[ENDPOINT].partition("?")[0]  # what messages show: a query may hold a secret
        form = {"grant_type": "client_credentials"}
        if scope := self._given.get(SCOPE):
            form["scope"] = scope
        try:
            answer = httpx.post(
                self._given[ENDPOINT],
                data=form,
                auth=(client, self._given[CLIENT_SECRET]),
                timeout=ANSWER_WITHIN_S,
                verify=self._trusted(),
            )
        except httpx.HTTPError as failure:
            raise ConnectionError(
                f"{ENDPOINT} {place}: no answer ({str(failure) or type(failure).__name__}); see that it runs"
            ) from None
        body = _json(answer)
        if answer.status_code in _REFUSALS:
            said = "".join(letter for letter in str(body.get("error", "no reason")) if letter.isprintable())
            raise OperatorError(
                f"{ENDPOINT} {place}: refuses client {client} ({said[:60]}); correct "
                f"{self._where}.{CLIENT_ID}, its secret, or {self._where}.{SCOPE}"
            )
        token, life_s = body.get("access_token"), body.get("expires_in", _SHORT_LIFE_S)
        if answer.is_error or not isinstance(token, str) or not token:
            raise ConnectionError(f"{ENDPOINT} {place}: gives no token (HTTP {answer.status_code}); mend it")
        stated = isinstance(life_s, int | float) and math.isfinite(life_s) and life_s > 0
        return token, float(life_s) if stated else _SHORT_LIFE_S

    def _trusted(self) -> ssl.SSLContext | bool:
        authority = self._given.get(AUTHORITY)
        if authority is None or not self._given[ENDPOINT].startswith("https:"):
            return True
        try:
            return ssl.create_default_context(cafile=authority)
        except OSError as failure:
            said = failure.strerror or "it holds no certificates"
            raise OperatorError(
                f"{self._where}.{AUTHORITY}: {authority}: {said}; name a PEM file of certificates"
            ) from None


def _read(file: Path, where: str) -> str:
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as failure:
        said = getattr(failure, "strerror", None) or "is not text"
        raise OperatorError(f"{where}.{TOKEN_FILE}: {file}: {said}; name a file that holds a token") from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise OperatorError(f"{where}.{TOKEN_FILE}: {file}: holds no token; write one token into it")
    return token


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
