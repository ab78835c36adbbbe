"""What every process of the service has: small memory, enough open files, an endpoint for the operator."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import resource
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

TRIM_EVERY_S = 60.0


def exempt_live_objects() -> None:
    """Exempt all live objects from later searches for garbage, in place of those exempted before.

    The second collection finds next to nothing to search. Python searches its oldest objects only once those
    that have come to them since the last full collection exceed a quarter of those which that collection
    left, and ``gc.freeze`` does not reset this number. Without it, tens of thousands of objects would come
    to wait as garbage, with all that they hold: megabytes, in a service that runs for an hour.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.collect()


@asynccontextmanager
async def freed_memory_returned(every_s: float = TRIM_EVERY_S) -> AsyncIterator[None]:
    """Give freed memory back to the system now and then during the block, where the C library can.

    Buffers of some 100 kB come and go between small objects that stay, so the C library's heap is full of
    holes. It returns the end of its heap only: the heap would grow by megabytes an hour while the memory in
    use stays the same. The clock decides when, not the records.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it

    async def trim_always() -> None:
        while trim is not None:
            await asyncio.sleep(every_s)
            await asyncio.to_thread(trim, 0)

    trimming = asyncio.create_task(trim_always())
    try:
        yield
    finally:
        trimming.cancel()


_OTHER_FILES = 100  # open files beside client connections, for the store, the pages and the spools


def possible_connections(wanted: int) -> int:
    """Raise the limit of open files for this many connections; return how many connections are possible."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + _OTHER_FILES
    if allowed != resource.RLIM_INFINITY and allowed < files:
        allowed = files if most == resource.RLIM_INFINITY else min(files, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
        return max(1, min(wanted, allowed - _OTHER_FILES))
    return wanted


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
