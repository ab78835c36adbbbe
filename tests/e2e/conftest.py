"""What end-to-end tests share: the year of flights, made once for a run, and a cell over a topic."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_app.shell.flights import write_flights
from tests.e2e.topic_workers import Cell, running_cell


@pytest.fixture(scope="session")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the event file of the demo. The first test process that asks makes it for all."""
    base = tmp_path_factory.getbasetemp()
    # The processes of one run have neighbouring directories.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "events"
    folder.mkdir(exist_ok=True)
    file = folder / "flights.ndjson"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            write_flights(file)
    return file


@pytest.fixture
def cell(request: pytest.FixtureRequest, tmp_path: Path, bootstrap_servers: str) -> Iterator[Cell]:
    """Yield a topic, a Redis and a configuration of workers. Its parameter: the protocol of the group."""
    with running_cell(tmp_path, bootstrap_servers, getattr(request, "param", "classic")) as cell:
        yield cell
