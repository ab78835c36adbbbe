"""Checks of ``stream-app doctor`` on the store: durability, users' rights, its clock, and stored noise."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

from dphist import SystemNoise
from stream_app.config import Settings, StreamSettings, TopicSettings
from stream_app.loops.clocks import LiveClock
from stream_app.loops.noise_ahead import NoiseAhead
from stream_app.ports import ACCEPT_MANAGED, ClockDoubt, NoiseKeys, OperatorError
from stream_app.shell.checks.free_space import redis_room
from stream_app.state.connection import batch, connect
from stream_app.state.embedded import find_server
from stream_app.state.keys import ALERT_PATTERN, PUBLIC_PATTERN, StreamKeys
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from stream_app.state.safety import check_alerting, check_reading, check_safety
from stream_app.wiring.checks import Finding
from stream_app.wiring.known_segments import of_all_segments
from stream_app.wiring.storage import noise_keys

SKEW_S = 1.0


async def redis_findings(settings: Settings) -> list[Finding]:
    """Return findings about the store; for an embedded store, only whether it can start."""
    url = settings.redis.url
    try:
        if url is None:
            return [Finding("redis.url", "ok", f"embedded, durable by its own settings: {find_server()}")]
        await check_safety(url, settings.redis.accept)
    except OperatorError as refusal:
        return [Finding("redis.url", "fail", str(refusal).removeprefix("redis.url: "))]
    if settings.redis.accept == ACCEPT_MANAGED:
        said = "may lose its last writes: then epochs end, and the witness puts their history back"
        first = Finding("redis.accept", "warn", f"{said}; deleted counts stay on its disks")
    elif settings.redis.accept is None:
        first = Finding("redis.url", "ok", "keeps acknowledged writes, evicts nothing")
    else:
        first = Finding(
            "redis.accept", "warn", "may lose acknowledged writes; a lost release would be made twice"
        )
    found = [
        first,
        *await redis_room(url),
        await _clock(settings, url),
        await _user("redis.api_url", settings.redis.api_url, url, PUBLIC_PATTERN, check_reading),
    ]
    if settings.alerts.rules:
        alerts_url = settings.redis.alerts_url
        found.append(await _user("redis.alerts_url", alerts_url, url, ALERT_PATTERN, check_alerting))
        found += await _refusals(url)
    found += await _noise_findings(settings, url)
    return found


async def _clock(settings: Settings, url: str) -> Finding:
    """Return whether a worker of this machine would close bins by the store's clock now."""
    what, skews = "redis clock", list[float]()
    store = RedisStore(url)
    try:
        largest_us = settings.redis.largest_clock_skew_us
        await LiveClock(
            store, largest_us, on_skew=lambda ahead_s, _: skews.append(ahead_s), notes=False
        ).now_us()
    except ClockDoubt as doubt:
        return Finding(what, "fail", f"{str(doubt).removeprefix('clocks: ')}; run an NTP client on both")
    except OSError as failure:
        return Finding(what, "fail", f"its clock cannot be read ({failure}); grant +time and +eval")
    finally:
        await store.close()
    [skew_s] = skews
    said = f"the store's clock is {abs(skew_s):.2f} s {'ahead of' if skew_s > 0 else 'behind'} this machine's"
    if abs(skew_s) > SKEW_S:
        return Finding(what, "warn", f"{said}; run an NTP client on both")
    return Finding(what, "ok", said)


async def _user(
    what: str, url: str | None, worker_url: str, keys: str, check: Callable[[str, str], Awaitable[str | None]]
) -> Finding:
    """Return whether a user reaches its own keys but no secret ones.

    Args: keys, a pattern of the user's own keys; check, the check that a start of the user's process makes.
    """
    if url is None or url == worker_url:
        said = f"its process has the worker's rights; name a user of {keys} only (deploy/redis)"
        return Finding(what, "warn", said)
    try:
        reads_secrets = await check(what, url) is not None
    except OperatorError as refusal:
        return Finding(what, "fail", str(refusal).removeprefix(f"{what}: "))
    if reads_secrets:
        return Finding(what, "fail", f"can read secret keys (sec:); restrict it to ~{keys}")
    return Finding(what, "ok", "reaches its own keys and is refused the secret ones")


async def _refusals(url: str) -> list[Finding]:
    """Return a warning for each rule whose last notification a target refused."""
    reader = RedisReader(url)
    try:
        _, refused = await reader.alerts()
    except OSError:
        return []  # other findings say so
    finally:
        await reader.close()
    remedy = "try it with stream-app alerts test"
    return [
        Finding(
            "alerts", "warn", f"the last notification of {rule} was refused by {', '.join(said)}; {remedy}"
        )
        for rule, said in sorted(refused.items())
    ]


async def _noise_findings(settings: Settings, url: str) -> list[Finding]:
    """Return, for each stream, whether this worker has the keys of its noise in an external store."""
    try:
        keys = noise_keys(settings)
    except OperatorError:
        return []  # the check of secrets.key_file reports it
    store = RedisStore(url)
    try:
        settings = await of_all_segments(settings, store)
        return [await _running_epoch(store, keys, url, stream) for stream in settings.streams]
    except OSError as failure:
        said = f"the state of streams cannot be read ({failure}); grant this user all commands"
        return [Finding("redis.url", "fail", said)]
    finally:
        await store.close()


async def _running_epoch(store: RedisStore, keys: NoiseKeys, url: str, stream: StreamSettings) -> Finding:
    """Return whether this worker could close a stream with its current epoch's noise."""
    what = f"streams.{stream.name} noise"
    # This only asks whether the noise can be read; nothing is drawn or destroyed.
    ahead = NoiseAhead(store, keys, SystemNoise(), stream.name, lambda: secrets.token_hex(16))
    try:
        shares = await ahead.shares_keys()
    except OperatorError as refusal:
        return Finding(what, "fail", str(refusal).removeprefix(f"stream {stream.name}: "))
    if shares:
        return Finding(what, "ok", "this machine can go on with the running epoch, or there is none")
    if isinstance(stream.source, TopicSettings) and await _is_closed_by_a_worker(url, stream.name):
        said = "another worker closes it, and this one has no keys of its stored noise: it would be refused"
        return Finding(what, "fail", f"{said}; give all workers one secrets.key_file")
    said = (
        "the keys of the running epoch are not on this machine: if this worker closed it, it would end early"
    )
    remedy = "start with the state.dir or secrets.key_file that it began with"
    return Finding(what, "warn", f"{said}; {remedy}")


async def _is_closed_by_a_worker(url: str, stream: str) -> bool:
    redis = connect(url, connections=1)
    try:
        [held] = await batch(redis, [("EXISTS", StreamKeys(stream).lease)])
        return bool(held)
    finally:
        await redis.aclose()
