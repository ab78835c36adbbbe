"""The wiring of the API and the watcher of alert rules: neither gets the worker's store, noise or keys."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from stream_app.config import Settings
from stream_app.config.access import check_operator
from stream_app.config.alerts import format_warnings
from stream_app.core.alerts.states import trial
from stream_app.core.answers.labels import AllLabels, Labels
from stream_app.listening import once_free
from stream_app.loops.alert_delivery import deliver
from stream_app.loops.alert_watch import AlertWatcher
from stream_app.loops.clocks import own_clock_us
from stream_app.outage import Outage
from stream_app.ports import OperatorError
from stream_app.ports.access import ApiKey
from stream_app.ports.alerts import AlertTarget, NotDelivered, Refused
from stream_app.ports.reader import PublicReader
from stream_app.state.alert_store import RedisAlertStore
from stream_app.state.reader import RedisReader
from stream_app.state.safety import Unreachable, check_alerting, check_reading
from stream_app.together import until_all_end
from stream_app.wiring.process import (
    exempt_live_objects,
    freed_memory_returned,
    operator_endpoint,
    possible_connections,
)

if TYPE_CHECKING:
    import httpx

    from stream_app.api.admission.access import AccessRules

# The thresholds of the garbage collector's three generations. Nothing is answered while it runs: with 500
# followers a collection takes 1, 1 and 50 ms. With a second threshold of 3 the second would take up to 8 ms.
GARBAGE = 700, 0, 400

log = logging.getLogger(__name__)


@asynccontextmanager
async def open_reader(settings: Settings) -> AsyncIterator[PublicReader]:
    """Yield a reader of visible values. If the store is unreachable, log it and wait: it may start later.

    Raises: OperatorError for an embedded Redis of another command, or a Redis that this user may not read.
    """
    if settings.redis.api_url is None:
        raise OperatorError(
            "redis.url: an embedded server belongs to one command; use stream-app run, or a server of its own"
        )
    try:
        if warning := await check_reading("redis.api_url", settings.redis.api_url):
            log.warning("%s", warning)
    except Unreachable as failure:
        log.warning("%s; nothing can be answered before, trying again", failure)
    reader = RedisReader(settings.redis.api_url)
    try:
        yield reader
    finally:
        await reader.close()


async def run_api(settings: Settings, on_ready: Callable[[], None] = lambda: None) -> None:
    """Serve released values until cancelled or stopped by a signal.

    Args: on_ready, called when it listens.
    Raises: OperatorError if the address cannot be used.
    """
    # Imported here so that alerts start a second sooner without the web packages.
    from stream_app.api.app import listen, serve_on
    from stream_app.config.key_file import follow_keys
    from stream_app.monitoring.api_metrics import ReadingMetrics

    check_operator(settings.api.operator)
    host, port = settings.api.host, settings.api.port
    try:
        listener = await once_free(lambda: listen(host, port))
    except OSError as failure:
        raise OperatorError(
            f"api.port: {host}:{port} cannot be served ({os.strerror(failure.errno or 0)}); free it"
        ) from None
    on_ready()
    api, rules = settings.api, _access_rules(settings)
    gc.set_threshold(*GARBAGE)
    tls = None if api.tls is None else (api.tls.certificate, api.tls.key)

    def take_keys(keys: tuple[ApiKey, ...]) -> None:
        rules.keys = keys

    metrics = ReadingMetrics()
    meter = None if api.operator is None else metrics
    with listener:
        following = asyncio.create_task(follow_keys(api.keys, take_keys)) if api.keys is not None else None
        try:
            every_us = settings.publish_every_us
            shown = {"api.tls.certificate": api.tls.certificate} if api.tls else {}
            endpoint = operator_endpoint("api.operator_port", metrics, api.operator, certificates=shown)
            async with endpoint, freed_memory_returned():
                await serve_on(
                    listener,
                    lambda: open_reader(settings),
                    rules,
                    tls,
                    _labels(settings),
                    every_us,
                    meter,
                    on_started=exempt_live_objects,  # to search them for garbage takes 0.1 s
                )
        finally:
            if following is not None:
                following.cancel()


def _access_rules(settings: Settings) -> AccessRules:
    from stream_app.api.admission.access import AccessRules
    from stream_app.api.admission.hosts import Hosts
    from stream_app.config.access import is_loopback
    from stream_app.config.key_file import read_keys

    api = settings.api
    return AccessRules(
        keys=None if api.keys is None else read_keys(api.keys),
        proxy_header=api.proxy_header,
        proxies=frozenset(api.proxies),
        origins=api.origins,
        requests_per_s=api.requests_per_s,
        hosts=Hosts(
            names=api.hosts,
            addresses=not is_loopback(api.host),
            # If every request needs a key or the proxy, any host name is safe: DNS rebinding reveals nothing.
            any_name=not api.hosts and (api.keys is not None or api.proxy_header is not None),
        ),
        limits=replace(api.limits, connections=possible_connections(api.limits.connections)),
        scrapes=api.scrapes,
        boards={board.name: board for board in settings.boards},
    )


def _labels(settings: Settings) -> AllLabels:
    zone = settings.api.timezone
    of_streams = {
        one.name: Labels(one.title, zone, one.total, one.annotations, one.until_us)
        for one in settings.streams
    }
    return AllLabels(of_streams, Labels(timezone=zone))


async def run_alerts(settings: Settings, on_ready: Callable[[], None] = lambda: None) -> None:
    """Watch the rules and send their transitions until cancelled, from released values only.

    Args: on_ready, called when it watches.
    Raises: OperatorError if the store of the alerts' states is not configured.
    """
    import httpx  # imported here because the API needs no client

    from stream_app.monitoring.alert_metrics import AlertingMetrics, WatchedTarget

    if settings.redis.alerts_url is None:
        raise OperatorError("redis.alerts_url: it is missing; name the store that keeps the alerts' states")
    check_operator(settings.alerts.operator)
    for line in format_warnings(settings.alerts):
        log.warning("%s", line)
    store, metrics = RedisAlertStore(settings.redis.alerts_url), AlertingMetrics()
    async with AsyncExitStack() as resources:
        # Before anything answers: a watcher that waits is alive, and says for what it waits.
        endpoint = operator_endpoint("alerts.operator_port", metrics, settings.alerts.operator)
        await resources.enter_async_context(endpoint)
        resources.push_async_callback(store.close)
        try:
            if warning := await check_alerting("redis.alerts_url", settings.redis.alerts_url):
                log.warning("%s", warning)
        except Unreachable as failure:
            log.info("%s", failure)  # ``_register_targets`` below waits for Redis, and logs that it waits
        reader = await resources.enter_async_context(open_reader(settings))
        client = await resources.enter_async_context(httpx.AsyncClient())
        targets = [WatchedTarget(target, metrics) for target in _targets(settings, client, resources)]
        await _register_targets(store, targets)
        metrics.waiting.detail = "no rule was compared with released values yet"
        on_ready()
        watcher = AlertWatcher(settings.alerts.rules, reader, store, metrics.looked)
        await until_all_end(deliver(store, targets), watcher.run())


def _targets(settings: Settings, client: httpx.AsyncClient, resources: AsyncExitStack) -> list[AlertTarget]:
    from stream_app.sinks.alert_targets import AlertmanagerTarget, EmailTarget, LogTarget, WebhookTarget

    alerts, site = settings.alerts, settings.api.url
    found: list[AlertTarget] = [LogTarget()]
    for number, hook in enumerate(alerts.webhooks):
        found.append(WebhookTarget(f"webhooks[{number}]", hook.url, client, site, hook.form))
    for number, url in enumerate(alerts.alertmanagers):
        found.append(AlertmanagerTarget(f"alertmanagers[{number}]", url, client, site))
    if alerts.email is not None:
        found.append(EmailTarget(alerts.email, site))
    if alerts.topic is not None:
        from stream_app.sinks.alert_topic import TopicTarget
        from stream_app.wiring.topics import cluster_of

        cluster = cluster_of(settings, alerts.cluster)
        found.append(topic := TopicTarget(cluster, alerts.topic, site, alerts.cluster))
        resources.push_async_callback(topic.close)
    return found


async def try_targets(settings: Settings) -> list[tuple[str, str, bool]]:
    """Send every target one test notification, once; return its name, its answer and whether it accepted."""
    import httpx

    now_us = own_clock_us()
    transition = trial(settings.streams[0].name, now_us)
    async with AsyncExitStack() as resources:
        client = await resources.enter_async_context(httpx.AsyncClient())

        async def answer(target: AlertTarget) -> tuple[str, str, bool]:
            try:
                return target.shown, await target.send(transition), True
            except Refused as refused:
                return target.shown, f"refused: {refused} {refused.said}".rstrip(), False
            except NotDelivered as failure:
                return target.shown, f"not delivered: {failure}", False

        return await asyncio.gather(*map(answer, _targets(settings, client, resources)))


async def _register_targets(store: RedisAlertStore, targets: Sequence[AlertTarget]) -> None:
    """Start new targets at the next decision; if the store is unreachable, wait for it."""
    outage = Outage(log, "alerts: redis.alerts_url")
    await outage.outlast(partial(store.begin, {target.identity: target.former for target in targets}))
    for target in targets:
        await outage.outlast(partial(store.register, target.identity))
    outage.over()
