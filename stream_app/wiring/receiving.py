"""The wiring of the listener for events, and of the deletion of stored events."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stream_app.config import Settings
from stream_app.config.access import check_operator, field_warnings, is_loopback
from stream_app.config.key_file import follow_keys, read_keys
from stream_app.config.settings import IngestSettings
from stream_app.durable import locked, secret_directory, state_directory
from stream_app.listening import once_free
from stream_app.ports import OperatorError
from stream_app.ports.access import ApiKey
from stream_app.receiving.known_keys import KnownKeys
from stream_app.receiving.spool_writer import SpoolWriter
from stream_app.receiving.standard_input import store_lines
from stream_app.spool import Kept
from stream_app.stored_format import mark_directory
from stream_app.together import until_all_end
from stream_app.wiring.process import operator_endpoint, possible_connections

if TYPE_CHECKING:
    from stream_app.receiving.listener import WriteRules
    from stream_app.vault.visitor_keys import VisitorKeys

_KEYS = "ingest.keys"

log = logging.getLogger(__name__)


async def run_ingest(settings: Settings, on_ready: Callable[[], None] = lambda: None) -> None:
    """Receive events until cancelled.

    Args: on_ready, called when it listens.
    Raises: OperatorError if the address or a spool cannot be used.
    """
    # Imported here so that standard input needs no web packages.
    from stream_app.monitoring.ingest_metrics import ReceivingMetrics
    from stream_app.receiving.group_commit import GroupCommit
    from stream_app.receiving.listener import Listener
    from stream_app.receiving.server import ServerRules, serve
    from stream_app.vault.visitor_keys import VisitorKeys
    from stream_app.wiring.deleting import destroy_visitor_keys, today

    ingest = _ingest(settings)
    check_operator(ingest.operator)
    for line in chain.from_iterable(field_warnings(ingest, stream) for stream in settings.streams):
        log.warning("%s", line)
    keys = VisitorKeys(ingest.directory / "@visitors")
    rules = _write_rules(ingest, keys)
    metrics = ReceivingMetrics(
        {name: Kept(directory) for name, directory in settings.spools.items()}, ingest.most_bytes
    )
    served = ServerRules(
        replace(ingest.limits, connections=possible_connections(ingest.limits.connections)),
        ingest.origins,
        None if ingest.tls is None else (ingest.tls.certificate, ingest.tls.key),
        metrics.refused,
    )

    def take_keys(keys: tuple[ApiKey, ...]) -> None:
        rules.keys = keys

    async with AsyncExitStack() as resources:
        commits = {}
        for name, directory in settings.spools.items():
            writer = _writer(directory, ingest)
            resources.callback(writer.close)
            resources.callback(os.close, _only_listener(directory))
            commits[name] = GroupCommit(writer)
        listener = await _listen(ingest)
        resources.callback(listener.close)
        on_ready()
        disks = {"ingest.dir": ingest.directory}
        shown = {"ingest.tls.certificate": ingest.tls.certificate} if ingest.tls else {}
        endpoint = operator_endpoint("ingest.operator_port", metrics, ingest.operator, disks, shown)
        await resources.enter_async_context(endpoint)
        is_over = asyncio.Event()
        loops = [_outliving(commit.run(), is_over) for commit in commits.values()]
        if ingest.sites:
            loops.append(destroy_visitor_keys(keys, today))
        if ingest.keys is not None:
            loops.append(follow_keys(ingest.keys, take_keys, _KEYS))
        application = Listener(commits, rules, metrics)
        await until_all_end(_until_over(serve(listener, application, served), is_over), *loops)


def _write_rules(ingest: IngestSettings, visitors: VisitorKeys) -> WriteRules:
    from stream_app.api.admission.hosts import Hosts
    from stream_app.receiving.listener import WriteRules
    from stream_app.receiving.page_scripts import Sites

    sites = None
    if ingest.sites:
        sites = Sites(ingest.sites, visitors.key, ingest.proxy_header, ingest.proxies, origins=ingest.origins)
    return WriteRules(
        maps=ingest.maps,
        sites=sites,
        keys=None if ingest.keys is None else read_keys(ingest.keys, _KEYS),
        most_body_bytes=ingest.most_body_bytes,
        origins=ingest.origins,
        hosts=Hosts(
            names=ingest.hosts,
            addresses=not is_loopback(ingest.host),
            any_name=not ingest.hosts and ingest.keys is not None,
        ),
    )


async def _until_over(work: Coroutine[Any, Any, None], is_over: asyncio.Event) -> None:
    """Do some work, then set an event, however the work ends."""
    try:
        await work
    finally:
        is_over.set()


async def _outliving(loop: Coroutine[Any, Any, None], is_over: asyncio.Event) -> None:
    """Run a loop; when cancelled, go on until an event: requests in progress are still stored."""
    running = asyncio.create_task(loop)
    try:
        await asyncio.shield(running)
    finally:
        if not running.done():
            await is_over.wait()
            running.cancel()
            await asyncio.wait([running])


def _only_listener(directory: Path) -> int:
    """Return a lock that one listener of a spool holds while it runs. Raises: OperatorError."""
    lock = os.open(directory / "listener.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not locked(lock):
        os.close(lock)
        raise OperatorError(f"{directory}: another process receives events for it; stop that one first")
    return lock


def receive_lines(settings: Settings, name: str, descriptor: int) -> tuple[int, int]:
    """Store the lines of an open file, such as standard input, in a spool. Returns: as ``store_lines``.

    Raises: OperatorError if there is no such spool, or it cannot be written.
    """
    ingest = _ingest(settings)
    if name not in settings.spools:
        known = ", ".join(settings.spools)
        raise OperatorError(f"--stdin {name}: no stream has this source.http; use one of {known}")
    writer = _writer(settings.spools[name], replace(ingest, remember_us=0))  # a line has no key
    try:
        return store_lines(writer, descriptor)
    except OSError as failure:
        raise OperatorError(f"{settings.spools[name]}: lines cannot be stored ({failure})") from None
    finally:
        writer.close()


def _ingest(settings: Settings) -> IngestSettings:
    if settings.ingest is None:
        raise OperatorError(f"{settings.file}: no stream has source.http; add source: {{http: NAME}} to one")
    return settings.ingest


def _writer(directory: Path, ingest: IngestSettings) -> SpoolWriter:
    state_directory("ingest.dir", ingest.directory)
    mark_directory("ingest.dir", secret_directory(directory))
    return SpoolWriter(directory, ingest.most_bytes, KnownKeys(ingest.remember_us, ingest.most_keys))


async def _listen(ingest: IngestSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in ingest.host else socket.AF_INET
    address = (ingest.host, ingest.port)
    try:
        listener = await once_free(lambda: socket.create_server(address, family=family, backlog=512))
    except OSError as failure:
        raise OperatorError(
            f"ingest.port: {ingest.host}:{ingest.port} cannot be served ({os.strerror(failure.errno or 0)}); "
            "free it or choose another one"
        ) from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
