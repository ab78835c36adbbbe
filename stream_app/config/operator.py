"""The section ``operator``: the endpoint of a worker's secret metrics, and its token."""

from __future__ import annotations

import re
from collections.abc import Mapping

from stream_app.config import values
from stream_app.config.access import is_loopback
from stream_app.config.document import ConfigError, Section
from stream_app.config.settings import OperatorSettings

OPERATOR_TOKEN = "STREAM_APP_OPERATOR_TOKEN"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,}")  # characters that a header carries unchanged
_NO_TOKEN = "must be at least 16 letters, digits or .-_~+/=, for example from openssl rand -hex 32"


def read_operator(section: Section, environment: Mapping[str, str]) -> OperatorSettings | None:
    """Read the section; None if it is not written: the endpoint is then closed.

    Raises: ConfigError. ``check_operator`` checks that there is a token when the endpoint opens, because a
        process that does not serve it need not know the token.
    """
    host = section.take("host", values.text, "127.0.0.1")
    port = section.take("port", values.port, 0)
    token = section.take_written("token", str, None)
    section.finish()
    if not section.written:
        return None
    if not port:
        raise section.error(
            "port", "is missing; say where the operator's figures are served, or take operator out"
        )
    if token is not None and not _TOKEN.fullmatch(token):
        raise section.error("token", _NO_TOKEN)
    if (given := environment.get(OPERATOR_TOKEN)) is not None and not _TOKEN.fullmatch(given):
        raise ConfigError(f"environment: {OPERATOR_TOKEN} {_NO_TOKEN}")
    return OperatorSettings(host, port, given or token)


def check_operator(operator: OperatorSettings | None) -> None:
    """Check that only the operator can read the metrics.

    Raises: ConfigError for an endpoint beyond loopback without a token.
    """
    if operator is not None and operator.token is None and not is_loopback(operator.host):
        raise ConfigError(
            f"operator.host: {operator.host} is not loopback, and a worker's metrics are secret; put a token "
            f"into {OPERATOR_TOKEN} (openssl rand -hex 32) and let the scraper send it as its bearer token"
        )
