"""The year of flights, made once for all end-to-end tests of a run."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from stream_app.shell.flights import write_flights


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
