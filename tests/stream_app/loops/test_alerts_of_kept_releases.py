"""A watcher that was down while old epochs left goes on with the first release that is kept."""

from __future__ import annotations

from stream_app.loops.alert_watch import AlertWatcher
from tests.models.memory import MemoryStore
from tests.models.memory_alerts import MemoryAlertStore
from tests.stream_app.loops.test_alert_watch import EXACT, rule, told_by
from tests.stream_app.published import Published

RULES = [rule("busy", "sum(departures, 2h) > 10"), rule("quiet", "rate(departures, 3h) < 1/h")]
FOR_EVER_US = 10**18


async def test_a_watcher_goes_on_after_releases_that_left() -> None:
    stream = Published(MemoryStore(), epsilon=EXACT, epoch_bins=4)
    await stream.open()
    stores = [MemoryAlertStore() for _ in range(2)]
    steady, late = (AlertWatcher(RULES, stream.store.reader(), store) for store in stores)
    await stream.close([1, 1])
    for watcher in (steady, late):
        await watcher.look()
    await stream.close([20, 20])  # fires, but the second watcher is down until this has left
    await steady.look()
    await stream.open(1, stream.first_bin + 4)
    await stream.close([3, 3])
    assert await stream.store.trim("departures", FOR_EVER_US) == 1
    await steady.look()
    await late.look()
    await AlertWatcher(RULES, stream.store.reader(), stores[1]).look()
    await stream.close([20, 20])
    for watcher in (steady, late):
        await watcher.look()
    first, second = [await told_by(store) for store in stores]
    # Windows of the kept epoch are decided alike; the one that left is unknown to the second watcher.
    assert [one for one in first if one[2] > 6] == [one for one in second if one[2] > 6]
    assert ("busy", "firing", 3) in first
    assert all(seq > 4 for _, _, seq in second)
