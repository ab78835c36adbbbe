"""Without noise, delays per airport equal an independent recount: CDFs, quantiles and counts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from deploy.ports import free_port
from tests.e2e.flights import START, instant
from tests.e2e.service import Service, get

pytestmark = [pytest.mark.redis, pytest.mark.slow]

AIRPORTS = ("EWR", "JFK", "LGA")
HOURS, LOW, HIGH, MINUTES = 72, -60, 600, 10


def delays(file: Path) -> dict[tuple[int, str], list[int]]:
    """Return the delays, in minutes, of each hour and airport, without flights that never left."""
    found: dict[tuple[int, str], list[int]] = {}
    with file.open() as lines:
        for line in lines:
            event = json.loads(line)
            scheduled = datetime.strptime(event["scheduled"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            hour = (scheduled - START) // timedelta(hours=1)
            if hour >= HOURS:
                break  # the file is sorted by time
            if event["delay_minutes"] is not None:
                found.setdefault((hour, event["origin"]), []).append(event["delay_minutes"])
    return found


def test_distributions_of_any_day_equal_the_recount(tmp_path: Path, flights: Path) -> None:
    port = free_port()
    (tmp_path / "app.yaml").write_text(f"""
redis: {{url: "embedded:./redis"}}
api: {{port: {port}}}
publish_every: 250ms
streams:
  delays:
    source: {{file: "{flights}", replay: {{from: {instant(0)}, to: {instant(HOURS)}, speed: max}}}}
    time: {{field: scheduled, format: iso8601, bin: 1h, epoch: {HOURS}h}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
    keys: {{field: origin, list: [{", ".join(AIRPORTS)}], other: false, total: true}}
    value: {{field: delay_minutes, min: {LOW}, max: {HIGH}, buckets: {(HIGH - LOW) // MINUTES}}}
  daily:
    source: {{file: "{flights}", replay: {{from: {instant(0)}, to: {instant(HOURS)}, speed: max}}}}
    time: {{field: scheduled, format: iso8601, bin: 1h, epoch: {HOURS}h}}
    privacy: {{epsilon: 1.0e9, not_private: true, accept: "measured again"}}
    keys: {{field: origin, list: [{", ".join(AIRPORTS)}], other: false}}
    value: {{field: delay_minutes, min: {LOW}, max: {HIGH}, buckets: {(HIGH - LOW) // MINUTES},
      mode: window, window: 24h, mechanism: dawa}}
""")
    exact = delays(flights)
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until("the replay is complete")
        for first, stop in ((0, HOURS), (24, 48), (30, 31)):
            span = {"start": instant(first), "end": instant(stop)}
            for airport in (*AIRPORTS, None):
                key = {} if airport is None else {"key": airport}
                values = np.array([
                    delay
                    for (hour, origin), some in exact.items()
                    if first <= hour < stop and airport in (origin, None)
                    for delay in some
                ])  # fmt: skip
                found = get(port, "/v1/streams/delays/cdf", **span, **key)
                below = [int((values < edge).sum()) for edge in found["upto"][:-1]]
                assert found["consistent"] == [*below, len(values)]
                assert get(port, "/v1/streams/delays/count", **span, **key)["value"] == pytest.approx(
                    len(values)
                )
                p95 = get(port, "/v1/streams/delays/quantile", q=0.95, **span, **key)["quantiles"][0]
                true = int(np.sort(values)[-(-95 * len(values) // 100) - 1])
                low, high = p95["interval"]
                assert low <= true < high
                # If exactly 95 % are below an edge, the buckets up to the next flight are also right.
                assert 100 * int((values < high - MINUTES).sum()) <= 95 * len(values)
                assert 100 * int((values < low + MINUTES).sum()) >= 95 * len(values)
        for day in range(HOURS // 24):
            for airport in AIRPORTS:
                found = get(port, "/v1/streams/daily/window", end=instant(24 * day + 24), key=airport, q=0.95)
                some = [exact.get((hour, airport), []) for hour in range(24 * day, 24 * day + 24)]
                values = np.array([delay for hour in some for delay in hour])
                below = [int((values < edge).sum()) for edge in found["upto"][:-1]]
                assert found["consistent"] == [*below, len(values)]
                assert found["count"] == pytest.approx(np.diff([0, *below, len(values)]), abs=1e-2)
                assert found["quantiles"][0]["interval"] is None
        ledger = get(port, "/v1/streams/daily/privacy")
        assert ledger["source_epsilon"] == "2000000000"
        assert service.interrupt() == 0
