"""Shared test set-up: Hypothesis draws the same examples on every run; what takes longest starts first."""

import gc
import os
from itertools import islice

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
    """Give each process its share of the longest tests first, then whole files in their order.

    A time limit of its own says that a test is long. The tests of one file stay together, because they share
    what its fixtures made: servers, browsers, pages.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = sorted(filter(_limit_s, items), key=_limit_s, reverse=True)
    others = iter(sorted((item for item in items if not _limit_s(item)), key=_is_short))
    dealt: list[pytest.Item] = []
    for process in range(processes):
        # pytest-xdist first gives each process an equal stretch of the list.
        stretch = (len(items) - len(dealt)) // (processes - process)
        first = long[process::processes][:stretch]
        dealt += [*first, *islice(others, stretch - len(first))]
    items[:] = dealt


def _limit_s(item: pytest.Item) -> float:
    """Return the test's own time limit, 0.0 if it has none."""
    limit = item.get_closest_marker("timeout")
    return float(limit.args[0]) if limit else 0.0


def _is_short(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is None


def pytest_collection_finish() -> None:
    """Tell Python's garbage collector that tests and modules stay, so that it never looks at them again."""
    gc.collect()
    gc.freeze()
