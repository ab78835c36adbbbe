"""Shared test set-up: Hypothesis draws the same examples on every run, and the longest tests start first."""

import gc
import importlib
import os
from collections.abc import Generator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, given, settings, strategies

from tests.brokers import bootstrap_servers  # noqa: F401  (a fixture for whoever asks)
from tests.browsers import browser, shared_browser  # noqa: F401
from tests.ending import end_all_with_this_run, pass_hang_ups_on
from tests.examples import MOST
from tests.kinds import KIND, kind_of

# A test that talks to one of these depends on a machine that others use: it runs once more before it fails,
# and the summary names it. A test that computes never does.
SERVICES = ("browser", "kafka", "redis")

settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
for name, most in MOST.items():
    settings.register_profile(name, settings.get_profile("ci"), max_examples=most)
settings.load_profile("ci")


class _OnlyFilesWithDoctests:
    """Leaves files without a doctest out of the search for them, which each process would repeat."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        collectors = yield
        return [
            one
            for one in collectors
            if not isinstance(one, DoctestModule) or b">>> " in file_path.read_bytes()
        ]


@pytest.fixture
def anyio_backend() -> str:
    """Run every ``async def test_...`` with asyncio."""
    return "asyncio"


def pytest_configure(config: pytest.Config) -> None:
    """Let no server outlive the run; register the hook for files outside this folder, too."""
    if "PYTEST_XDIST_WORKER" not in os.environ:  # those are children of the first process
        end_all_with_this_run()
    pass_hang_ups_on()
    config.pluginmanager.register(_OnlyFilesWithDoctests())


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a test by the length of bytes that are not plain text: those of gzip differ between processes."""
    return f"{len(val)} bytes" if isinstance(val, bytes) and not val.isascii() else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests of services run once more, and sort the tests.

    Each process begins with its share of the files with the longest tests.

    The other tests follow. The tests of one file stay together, because they share what its fixtures made:
    servers, browsers, pages.
    """
    for item in items:
        item.user_properties.append((KIND, kind_of(item.nodeid, (mark.name for mark in item.iter_markers()))))
        if any(item.get_closest_marker(service) for service in SERVICES):
            item.add_marker(pytest.mark.flaky(reruns=1))
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    by_file: dict[str, list[pytest.Item]] = {}
    for item in filter(_limit_s, items):
        by_file.setdefault(item.nodeid.partition("::")[0], []).append(item)
    files = sorted(by_file.values(), key=lambda file: max(map(_limit_s, file)), reverse=True)
    others = iter(sorted((item for item in items if not _limit_s(item)), key=_is_short))
    dealt: list[pytest.Item] = []
    for process in range(processes):
        # pytest-xdist first gives each process an equal stretch of the list.
        stretch = (len(items) - len(dealt)) // (processes - process)
        first = list(chain(*files[process::processes]))
        dealt += [*first, *islice(others, max(0, stretch - len(first)))]
    items[:] = [*dealt, *others]


def _limit_s(item: pytest.Item) -> float:
    """Return how long a test may take, in seconds, to start the longest first; 0.0 if it is not a long test.

    A test is long if it has a ``timeout`` mark, or stands under tests/e2e/; 1.0 for the latter.
    """
    limit = item.get_closest_marker("timeout")
    return float(limit.args[0]) if limit else 1.0 if "tests/e2e/" in item.nodeid else 0.0


def _is_short(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is None


@given(strategies.none())
def _first_example(_none: None) -> None:
    """Let Hypothesis make its random generator; old versions warn if only a frozen object holds it."""


def _import_share(config: pytest.Config) -> None:
    """Import this process's share of the test files first, so that each file is compiled by one process.

    Pytest rewrites each assertion, which takes as long as all the rest of collecting, and stores the result.
    Without shares the processes of a fresh clone meet at the same files and each compiles all of them.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    root = Path(__file__).parent
    if processes == 1 or root not in [config.rootpath / place for place in config.args]:
        return
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    for path in sorted(root.rglob("test_*.py"))[number::processes]:
        if not config.hook.pytest_ignore_collect(collection_path=path, config=config):
            with suppress(Exception):  # pytest imports the file again, and says what is wrong
                importlib.import_module(".".join(path.relative_to(root.parent).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without Python's garbage collector; then make it skip what is loaded, and run seldom.

    Collecting makes a million objects and frees few. To look among them for garbage costs a tenth of the
    time. By default Python looks again after every 700 new objects.
    """
    _first_example()  # it searches for garbage, which is quick before there are a million objects
    gc.disable()
    _import_share(session.config)
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()
