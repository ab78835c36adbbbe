"""The check of ``stream-app doctor`` that this worker has the keys of users' hashes of open cap windows."""

from __future__ import annotations

from stream_app.config import Settings
from stream_app.core.user_keys import mark_of_users
from stream_app.ports import NoiseKeys, OperatorError
from stream_app.shell.doctor.findings import Finding
from stream_app.state.redis_store import RedisStore
from stream_app.state.user_keys import StoredUserKeys


async def users_findings(settings: Settings, store: RedisStore, keys: NoiseKeys) -> list[Finding]:
    """Return, for each stream with caps per user, whether this worker could count its users. Raises: OSError.

    It draws no key: without ``secrets.key_file`` the first start does.
    """
    drawn = settings.noise_key_file is not None or (settings.state_dir / "noise_keys" / "users.key").exists()
    found = []
    for stream in settings.streams:
        if stream.declared.privacy.per_user is None:
            continue
        state, counted = await store.load(stream.name), await StoredUserKeys(store).counted(stream.name)
        if state is not None and state.has_ended:
            continue  # it counts nothing more, and rotate-key does not keep its keys
        noted = () if state is None else state.user_keys.since(state.released_bin).marks
        wanted = {*(counted or {}).values(), *noted} - {b""}
        held = [drawn and _holds(keys, stream.name, mark) for mark in wanted]
        finding = Finding(f"streams.{stream.name} users", "ok", "this machine has the key of users' hashes")
        if not all(held):
            said = "this machine lacks a key of users' hashes, so its worker would end with a line"
            remedy = "give all workers one secrets.key_file, or the state.dir with which the stream began"
            finding = Finding(finding.what, "fail", f"{said}; {remedy}")
        found.append(finding)
    return found


def _holds(keys: NoiseKeys, stream: str, mark: bytes) -> bool:
    try:
        return mark_of_users(keys.user_key(stream, mark)) == mark
    except OperatorError:
        return False
