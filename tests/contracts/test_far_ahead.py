"""A late cut runs only short scripts, however many records of a partition are set aside.

While a script runs, Redis serves nobody. The tests count commands instead of time. Names must be scanned a
few at a time, in separate calls. The work of the script that decides must not grow with the number of refused
records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from stream_app.core.counting.bins import LARGEST_APPLY_CELLS
from stream_app.core.records import Cut, Reply
from stream_app.state.connection import batch
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from stream_app.state.taking_cuts import NAMES_PER_SCAN
from tests.contracts.conftest import SERVERS, Servers, Stores
from tests.contracts.examples import FIRST_BIN, HASH, WIDTH, setting_aside
from tests.contracts.test_ahead import FAR, counts, refused
from tests.contracts.test_store import opened

pytestmark = [pytest.mark.redis, pytest.mark.anyio]
PARTS = 8  # each with as many names as one call may set aside
_WHOLE_HASH = {"hgetall", "hkeys", "hvals"}  # a single such command would read everything that is set aside


@pytest.fixture(params=SERVERS)
async def real_stores(request: pytest.FixtureRequest, servers: Servers) -> AsyncIterator[Stores]:
    server = servers[request.param]
    store, reader = RedisStore(server.worker_url), RedisReader(server.api_url)
    yield Stores(store, reader, f"stream-{uuid4().hex}")
    await store.close()
    await reader.close()


async def commands_run(stores: Stores) -> Counter[str]:
    """Return how often each command was run so far, also inside scripts."""
    assert isinstance(stores.store, RedisStore)
    [told] = await batch(stores.store._redis, [("INFO", "commandstats")])
    return Counter({name.removeprefix("cmdstat_"): stat["calls"] for name, stat in told.items()})


async def set_far_aside(stores: Stores, parts: int) -> None:
    """Set aside records at ``FAR``, and then many more that are dated further ahead."""
    await opened(stores)
    assert await stores.store.apply(stores.stream, setting_aside(0, 8, FAR)) == Reply.DONE
    for part in range(parts):
        names = [
            (FIRST_BIN + 1_000 + number // WIDTH, number % WIDTH, 1)
            for number in range(part * LARGEST_APPLY_CELLS, (part + 1) * LARGEST_APPLY_CELLS)
        ]
        change = setting_aside(8 + part, 9 + part, names)
        assert await stores.store.apply(stores.stream, change) == Reply.DONE


async def commands_of_a_late_cut(stores: Stores, parts: int) -> Counter[str]:
    """Set records aside, and return the commands of the cut that decides about them."""
    anew = Stores(stores.store, stores.reader, f"{stores.stream}-{parts}")
    await set_far_aside(anew, parts)
    before = await commands_run(anew)
    cuts = [Cut(FIRST_BIN, 8 + parts, 2)]
    assert await anew.store.take_cuts(anew.stream, HASH, "0", FIRST_BIN - 1, cuts, 1) == Reply.DONE
    after = await commands_run(anew)
    after.subtract(before)
    assert await refused(anew) == (5 + parts * LARGEST_APPLY_CELLS, [])
    assert await counts(anew, FIRST_BIN + 9) == {FIRST_BIN + 3: [2, 0, 0], FIRST_BIN + 4: [0, 1, 0]}
    return +after


async def test_a_late_cut_looks_at_few_names_in_each_script(real_stores: Stores) -> None:
    few, many = [await commands_of_a_late_cut(real_stores, parts) for parts in (0, PARTS)]
    assert not _WHOLE_HASH & many.keys()
    # Each call scans about this many names. Names lie unevenly, so a call may scan twice as many.
    assert many["hscan"] >= PARTS * LARGEST_APPLY_CELLS / (2 * NAMES_PER_SCAN)
    scripts = {name: many[name] - few[name] for name in many if name in ("eval", "evalsha")}
    assert sum(scripts.values()) == many["hscan"] - few["hscan"]
    # All other commands are the same, however much is set aside.
    beside = {"hscan", "eval", "evalsha", "info"}
    assert {name: calls for name, calls in many.items() if name not in beside} == {
        name: calls for name, calls in few.items() if name not in beside
    }
