"""The year of flights with the noise plan off equals an independent recount: every bin, every range."""

from __future__ import annotations

import numpy as np
import pytest

from deploy.ports import free_port
from tests.e2e.flights import HOURS, configuration, instant, recount
from tests.e2e.service import Service, get

pytestmark = [pytest.mark.redis, pytest.mark.slow]


def test_every_bin_and_every_range_of_the_year_equals_the_recount(tmp_path, flights):
    exact = recount(flights)
    assert exact.sum() == 336_776
    port = free_port()
    (tmp_path / "app.yaml").write_text(configuration(flights, port))
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until("the replay is complete")
        year = {"start": instant(0), "end": instant(HOURS)}
        bins = get(port, "/v1/streams/departures/series", kind="bin", **year)
        running = get(port, "/v1/streams/departures/series", kind="running", **year)
        assert bins["value"] == exact.tolist()
        # A range is a difference of two running counts, so these decide all of them.
        assert running["value"] == np.cumsum(exact).tolist()
        for start, end in _some_ranges():
            answer = get(port, "/v1/streams/departures/count", start=instant(start), end=instant(end))
            assert answer["value"] == exact[start:end].sum()
            assert answer["interval"] == [answer["value"], answer["value"]]
            assert answer["private"] is False
        assert service.interrupt() == 0


def _some_ranges() -> list[tuple[int, int]]:
    drawn = np.random.default_rng(20_130_101).integers(0, HOURS + 1, size=(200, 2))
    return [(int(low), int(high)) for low, high in np.sort(drawn, axis=1) if low < high]
