"""Checks of ``stream-app doctor`` on stored noise: whether this worker can continue the current epochs."""

from __future__ import annotations

import secrets

from dphist import SystemNoise
from stream_app.config import Settings, StreamSettings, TopicSettings
from stream_app.loops.noise_ahead import NoiseAhead
from stream_app.ports import NoiseKeys, OperatorError
from stream_app.shell.doctor.findings import Finding
from stream_app.state.connection import batch, connect
from stream_app.state.keys import StreamKeys
from stream_app.state.redis_store import RedisStore
from stream_app.wiring.workers import noise_keys


def key_file_findings(settings: Settings) -> list[Finding]:
    """Return whether the workers' shared secret is usable, if the configuration names one."""
    if settings.noise_key_file is None:
        return []
    try:
        noise_keys(settings)
    except OperatorError as refusal:
        return [Finding("secrets.key_file", "fail", str(refusal).removeprefix("secrets.key_file: "))]
    return [Finding("secrets.key_file", "ok", f"{settings.noise_key_file} holds a secret")]


async def noise_findings(settings: Settings, url: str) -> list[Finding]:
    """Return, for each stream, whether this worker has the keys of its current epoch's noise.

    Args: url, of the external store. An embedded store needs no check: its keys are on this machine too.
    """
    try:
        keys = noise_keys(settings)
    except OperatorError:
        return []  # ``key_file_findings`` reports it
    store = RedisStore(url)
    try:
        return [await _running_epoch(store, keys, url, stream) for stream in settings.streams]
    except OSError as failure:
        said = f"the state of streams cannot be read ({failure}); grant this user all commands"
        return [Finding("redis.url", "fail", said)]
    finally:
        await store.close()


async def _running_epoch(store: RedisStore, keys: NoiseKeys, url: str, stream: StreamSettings) -> Finding:
    """Return whether this worker could close a stream with its current epoch's noise."""
    what = f"streams.{stream.name} noise"
    # Only asked whether it can read the noise; it draws and destroys nothing.
    ahead = NoiseAhead(store, keys, SystemNoise(), stream.name, lambda: secrets.token_hex(16))
    if await ahead.shares_keys():
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
