"""Shared test set-up: Hypothesis draws the same examples on every run; what waits longest starts first."""

import pytest
from hypothesis import HealthCheck, settings

from tests.brokers import bootstrap_servers  # noqa: F401  (a fixture for whoever asks)

settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=25)  # make check
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests with a time limit of their own first, whole services next: none is left for the end."""

    def patience(item: pytest.Item) -> tuple[float, bool]:
        limit = item.get_closest_marker("timeout")
        return -(limit.args[0] if limit else 0.0), "e2e" not in item.nodeid

    items.sort(key=patience)
