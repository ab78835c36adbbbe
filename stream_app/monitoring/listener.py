"""The operator's own door: a second HTTP listener, on loopback unless the configuration says otherwise."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import start_http_server

from stream_app.addresses import once_free
from stream_app.monitoring.metrics import Metrics
from stream_app.ports import OperatorError


@asynccontextmanager
async def serving(metrics: Metrics, host: str, port: int) -> AsyncIterator[None]:
    """Serve the metrics at ``http://host:port/metrics`` from a thread of their own, for the block.

    Raises: OperatorError where the address cannot be had.
    """
    try:
        server, thread = await once_free(
            lambda: start_http_server(port, addr=host, registry=metrics.registry)
        )
    except OSError as failure:
        raise OperatorError(
            f"operator.port: {host}:{port} cannot be served ({os.strerror(failure.errno or 0)}); free it or "
            "choose another: every worker on a machine needs its own"
        ) from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
