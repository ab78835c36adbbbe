"""The operator's endpoint of a process, if the configuration opens one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

from stream_app.config.settings import OperatorSettings
from stream_app.monitoring.listener import Registered, serving
from stream_app.monitoring.machine import watch_machine


@asynccontextmanager
async def operator_endpoint(
    key: str,
    metrics: Registered,
    operator: OperatorSettings | None,
    directories: Mapping[str, Path] = MappingProxyType({}),
) -> AsyncIterator[None]:
    """Serve metrics and health during the block, where the configuration says; nowhere if it says nothing.

    Args: key, which sets the port, for messages; directories, that the process writes to, by their keys.
    Raises: OperatorError if it cannot listen there.
    """
    if operator is None:
        yield
        return
    watch_machine(metrics.registry, directories)
    digest = operator.token_digest
    async with serving(metrics, operator.host, operator.port, operator.token, token_digest=digest, key=key):
        yield
