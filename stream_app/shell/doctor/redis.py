"""Checks of ``stream-app doctor`` on the store: durability, users' rights, and its clock."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from redis.exceptions import NoPermissionError, RedisError, ResponseError

from stream_app.config import Settings
from stream_app.ports import OperatorError
from stream_app.shell.doctor.findings import Finding
from stream_app.shell.doctor.noise import noise_findings
from stream_app.state.connection import connect, execute
from stream_app.state.embedded import find_server
from stream_app.state.keys import ALERT_PATTERN, ALERT_STATES, CLOCK_MARK, STREAM_NAMES
from stream_app.state.safety import check_safety

SKEW_S = 1.0
LARGEST_SKEW_S = 30.0


async def redis_findings(settings: Settings) -> list[Finding]:
    """Return findings about the store; for an embedded store, only whether it can start."""
    url = settings.redis.url
    try:
        if url is None:
            return [Finding("redis.url", "ok", f"embedded, durable by its own settings: {find_server()}")]
        await check_safety(url, settings.redis.accept)
    except OperatorError as refusal:
        return [Finding("redis.url", "fail", str(refusal).removeprefix("redis.url: "))]
    if settings.redis.accept is None:
        first = Finding("redis.url", "ok", "keeps acknowledged writes, evicts nothing")
    else:
        first = Finding(
            "redis.accept", "warn", "may lose acknowledged writes; a lost release would be made twice"
        )
    found = [first, await _clock(url)]
    found += [finding async for finding in _readers(settings, url)]
    if settings.alerts.rules:
        found.append(await _alerts(settings.redis.alerts_url, url))
    found += await noise_findings(settings, url)
    return found


async def _clock(url: str) -> Finding:
    """Return whether the store's clock, which closes the bins, agrees with this machine's."""
    redis = connect(url, connections=1)
    try:
        before_s = time.time()
        seconds, microseconds = await execute(redis, "TIME")
        skew_s = int(seconds) + int(microseconds) / 1e6 - (before_s + time.time()) / 2
    except (RedisError, OSError) as failure:
        return Finding("redis clock", "fail", f"its clock cannot be read ({failure}); grant +time")
    finally:
        await redis.aclose()
    said = f"the store's clock is {abs(skew_s):.2f} s {'ahead of' if skew_s > 0 else 'behind'} this machine's"
    if abs(skew_s) > LARGEST_SKEW_S:
        return Finding("redis clock", "fail", f"{said}; bins close by it: run an NTP client on both")
    if abs(skew_s) > SKEW_S:
        return Finding("redis clock", "warn", f"{said}; run an NTP client on both")
    return Finding("redis clock", "ok", said)


async def _readers(settings: Settings, url: str) -> AsyncIterator[Finding]:
    """Yield whether the API's user can read public keys but no secret ones."""
    api_url, what = settings.redis.api_url, "redis.api_url"
    if api_url is None or api_url == url:
        said = "the API has the worker's rights; name a user that reads dp:*:pub:* only (deploy/redis)"
        yield Finding(what, "warn", said)
        return
    redis = connect(api_url, connections=1)
    try:
        await execute(redis, "SMEMBERS", STREAM_NAMES)
        try:
            await execute(redis, "GET", CLOCK_MARK)
        except NoPermissionError:
            yield Finding(what, "ok", "reads the public keys and is refused the secret ones")
        else:
            yield Finding(what, "fail", "can read secret keys (sec:); restrict it to ~dp:*:pub:*")
    except (RedisError, OSError) as failure:
        said = (
            f"it cannot read the public keys ({str(failure).splitlines()[0]}); see deploy/redis/make_users.py"
        )
        yield Finding(what, "fail", said)
    finally:
        await redis.aclose()


async def _alerts(alerts_url: str | None, url: str) -> Finding:
    """Return whether the alerts' user can read its own keys but no secret ones."""
    what = "redis.alerts_url"
    if alerts_url is None or alerts_url == url:
        said = f"the alerts have the worker's rights; name a user of {ALERT_PATTERN} only (deploy/redis)"
        return Finding(what, "warn", said)
    redis = connect(alerts_url, connections=1)
    try:
        await execute(redis, "HGETALL", ALERT_STATES)
        await execute(redis, "EVAL", "return 0", 1, ALERT_STATES)  # as decisions are stored; changes nothing
        try:
            await execute(redis, "HGETALL", CLOCK_MARK)
        except NoPermissionError:
            return Finding(what, "ok", "reaches the alerts' keys and is refused the secret ones")
        except ResponseError:
            pass  # access was allowed; the key is only not a hash
        return Finding(what, "fail", f"can read secret keys (sec:); restrict it to ~{ALERT_PATTERN}")
    except (RedisError, OSError) as failure:
        said = f"it cannot keep the alerts' states ({str(failure).splitlines()[0]})"
        return Finding(what, "fail", f"{said}; see deploy/redis/make_users.py")
    finally:
        await redis.aclose()
