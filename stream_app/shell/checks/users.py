"""The check of ``stream-app doctor`` that this worker has the keys of users' hashes of open cap windows."""

from __future__ import annotations

from stream_app.config import Settings
from stream_app.ports import NoiseKeys
from stream_app.state.redis_store import RedisStore
from stream_app.wiring.checks import Finding
from stream_app.wiring.storage import holds_users_keys


async def users_findings(settings: Settings, store: RedisStore, keys: NoiseKeys) -> list[Finding]:
    """Return, for each stream with caps per user, whether this worker could count its users. Raises: OSError.

    It draws no key.
    """
    found = []
    for stream in settings.streams:
        if stream.declared.capped is None:
            continue
        state = await store.load(stream.name)
        if state is not None and state.has_ended:
            continue  # it counts nothing more, and rotate-key does not keep its keys
        finding = Finding(f"streams.{stream.name} users", "ok", "this machine has the key of users' hashes")
        if not await holds_users_keys(settings, store, keys, stream.name):
            said = "this machine lacks a key of users' hashes, so its worker would end with a line"
            remedy = "give all workers one secrets.key_file, or the state.dir with which the stream began"
            finding = Finding(finding.what, "fail", f"{said}; {remedy}")
        found.append(finding)
    return found
