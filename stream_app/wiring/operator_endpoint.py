"""The operator's endpoint of a process, if the configuration opens one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from socket import gethostname
from types import MappingProxyType
from urllib.parse import parse_qs, urlsplit

from stream_app.config.kafka import CERTIFICATE
from stream_app.config.settings import OperatorSettings, Settings
from stream_app.monitoring.listener import serving
from stream_app.monitoring.machine import watch_machine
from stream_app.monitoring.registry import Registered


@asynccontextmanager
async def operator_endpoint(
    key: str,
    metrics: Registered,
    operator: OperatorSettings | None,
    directories: Mapping[str, Path] = MappingProxyType({}),
    certificates: Mapping[str, Path] = MappingProxyType({}),
) -> AsyncIterator[None]:
    """Serve metrics and health during the block, where the configuration says; nowhere if it says nothing.

    With ``operator.otlp`` the metrics are pushed, too.

    Args: key, which sets the port, for messages; directories, that the process writes to, and certificates,
        that it shows to others, by their keys.
    Raises: OperatorError if it cannot listen there.
    """
    if operator is None:
        yield
        return
    watch_machine(metrics.registry, directories, certificates)
    digest = operator.token_digest
    section = key.partition(".")[0]
    role = "worker" if section == "operator" else section
    about = {
        "service.name": f"private-counts-{role}",
        "service.instance.id": f"{gethostname()}:{operator.port}",
        "service.version": version("private-counts"),
    }
    async with AsyncExitStack() as resources:
        if operator.otlp is not None:
            from stream_app.monitoring.pushing import pushing  # its packages may not be installed

            await resources.enter_async_context(pushing(metrics.registry, operator.otlp, about))
        served = serving(metrics, operator.host, operator.port, operator.token, token_digest=digest, key=key)
        await resources.enter_async_context(served)
        yield


def client_certificates(settings: Settings) -> dict[str, Path]:
    """Return the certificates that a worker shows to Kafka and Redis, by the keys that name them."""
    found = {}
    for name, cluster in ({} if settings.kafka is None else settings.kafka.clusters).items():
        if file := cluster.security.get(CERTIFICATE):
            found[f"kafka.clusters.{name}.{CERTIFICATE}" if name else f"kafka.{CERTIFICATE}"] = Path(file)
    for file in parse_qs(urlsplit(settings.redis.url or "").query).get("ssl_certfile", []):
        found["redis.tls.certificate"] = Path(file)
    return found
