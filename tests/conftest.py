"""Shared test set-up: Hypothesis draws the same examples on every run; what waits longest starts first."""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.brokers import bootstrap_servers  # noqa: F401  (a fixture for whoever asks)
from tests.examples import QUICK, QUICK_MOST

settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(QUICK, settings.get_profile("ci"), max_examples=QUICK_MOST)  # make check
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests with a time limit of their own first, whole services next: none is left for the end."""

    def patience(item: pytest.Item) -> tuple[float, bool]:
        limit = item.get_closest_marker("timeout")
        return -(limit.args[0] if limit else 0.0), "e2e" not in item.nodeid

    items.sort(key=patience)
    # Each of pytest's processes begins with a stretch of its own: deal the long ones to all of them.
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = [item for first in range(processes) for item in items[first::processes]]
