"""The wiring of those who see released values only: the API, and the watcher of alert rules.

Neither gets the worker's store, the noise or the keys.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from stream_app.addresses import once_free
from stream_app.config import Settings
from stream_app.loops.alert_delivery import deliver
from stream_app.loops.alert_watch import AlertWatcher
from stream_app.outage import Outage
from stream_app.ports import AlertTarget, OperatorError, PublicReader
from stream_app.state.alert_store import RedisAlertStore
from stream_app.state.reader import RedisReader
from stream_app.state.safety import Unreachable, check_reading
from stream_app.together import until_all_end
from stream_app.wiring.event_logs import cluster_of

log = logging.getLogger(__name__)

_AGAIN_S = 1.0
_OTHER_FILES = 100  # open beside connections: the store's, the pages'
# How long a thread that computes may keep the loop waiting for the interpreter; Python's own is 5 ms.
# A thread that waits asks for the interpreter only when nobody has let go of it for so long. Numpy lets go of
# it and takes it back every few tens of microseconds: with 1 ms the loop waited for up to half a second.
_SWITCH_S = 0.000_02


@asynccontextmanager
async def open_reader(settings: Settings) -> AsyncIterator[PublicReader]:
    """Yield a reader of what is visible. A store that is away is told and waited for: it may start later.

    Raises: OperatorError for an embedded Redis of another command, or one that lets nobody read.
    """
    if settings.redis.api_url is None:
        raise OperatorError(
            "redis.url: an embedded server belongs to one command; use stream-app run, or a server of its own"
        )
    try:
        await check_reading("redis.api_url", settings.redis.api_url)
    except Unreachable as failure:
        log.warning("%s; nothing can be answered before, trying again", failure)
    reader = RedisReader(settings.redis.api_url)
    try:
        yield reader
    finally:
        await reader.close()


async def run_api(settings: Settings) -> None:
    """Serve released values until cancelled or told to stop by a signal.

    Raises: OperatorError where the address cannot be had.
    """
    # Here and not above: alerts start a second sooner without the web's packages. The first is there for
    # the first answer that is made consistent, which would wait until it is loaded.
    import scipy.optimize  # noqa: F401

    from stream_app.api.admission.access import AccessRules, ApiKey
    from stream_app.api.admission.connections import Limits
    from stream_app.api.admission.hosts import Hosts
    from stream_app.api.app import listen, serve_on
    from stream_app.config.access import is_loopback
    from stream_app.config.key_file import follow_keys, read_keys

    host, port = settings.api.host, settings.api.port
    try:
        listener = await once_free(lambda: listen(host, port))
    except OSError as failure:
        raise OperatorError(
            f"api.port: {host}:{port} cannot be served ({os.strerror(failure.errno or 0)}); free it"
        ) from None
    api = settings.api
    rules = AccessRules(
        keys=None if api.keys is None else read_keys(api.keys),
        proxy_header=api.proxy_header,
        proxies=frozenset(api.proxies),
        origins=api.origins,
        requests_per_s=api.requests_per_s,
        hosts=Hosts(
            names=api.hosts,
            addresses=not is_loopback(host),
            # Without names: where nobody is let in unasked, a page that was rebound has nothing to show.
            any_name=not api.hosts and (api.keys is not None or api.proxy_header is not None),
        ),
        limits=Limits(
            connections=_open_files(api.limits.connections),
            connections_per_address=api.limits.per_address,
            followers=api.limits.followers,
            idle_s=api.limits.idle_us / 1e6,
            slow_s=api.limits.slow_us / 1e6,
        ),
    )
    sys.setswitchinterval(_SWITCH_S)
    # What is loaded by now stays: to look through it for garbage stops every answer for a tenth of a second.
    gc.collect()
    gc.freeze()
    tls = None if api.tls is None else (api.tls.certificate, api.tls.key)

    def take_keys(keys: tuple[ApiKey, ...]) -> None:
        rules.keys = keys

    with listener:
        following = asyncio.create_task(follow_keys(api.keys, take_keys)) if api.keys is not None else None
        try:
            await serve_on(listener, lambda: open_reader(settings), rules, tls)
        finally:
            if following is not None:
                following.cancel()


def _open_files(connections: int) -> int:
    """Return how many connections there may be, after asking the system for as many open files."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        allowed = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
        return max(1, min(connections, allowed - _OTHER_FILES))
    return connections


async def run_alerts(settings: Settings) -> None:
    """Watch the rules and tell their transitions until cancelled, from released values only.

    Raises: OperatorError where the store cannot be named.
    """
    import httpx  # here and not above: the API needs no client

    from stream_app.sinks.alert_targets import AlertmanagerTarget, LogTarget, WebhookTarget
    from stream_app.sinks.alert_topic import TopicTarget

    if settings.redis.alerts_url is None:
        raise OperatorError("redis.alerts_url: it is missing; name the store that keeps the alerts' states")
    store = RedisAlertStore(settings.redis.alerts_url)
    async with AsyncExitStack() as resources:
        resources.push_async_callback(store.close)
        reader = await resources.enter_async_context(open_reader(settings))
        client = await resources.enter_async_context(httpx.AsyncClient())
        alerts = settings.alerts
        targets: list[AlertTarget] = [
            LogTarget(),
            *(WebhookTarget(url, client) for url in alerts.webhooks),
            *(AlertmanagerTarget(url, client) for url in alerts.alertmanagers),
        ]
        if alerts.topic is not None:
            assert settings.kafka is not None  # the configuration was refused without it
            topic = TopicTarget(cluster_of(settings.kafka), alerts.topic)
            resources.push_async_callback(topic.close)
            targets.append(topic)
        await _begin_telling(store, targets)
        await until_all_end(deliver(store, targets), AlertWatcher(alerts.rules, reader, store).run())


async def _begin_telling(store: RedisAlertStore, targets: Sequence[AlertTarget]) -> None:
    """Have new targets told what is decided from now on; a store that is away is waited for."""
    outage = Outage(log, "alerts")
    while True:
        try:
            for target in targets:
                await store.told(target.name)
            return outage.over()
        except (ConnectionError, TimeoutError) as failure:
            outage.failed(f"redis.alerts_url: {failure}")
        await asyncio.sleep(_AGAIN_S)
