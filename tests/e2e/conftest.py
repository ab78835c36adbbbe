"""The year of flights, made once for all end-to-end tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_app.shell.demo.flights import write_flights


@pytest.fixture(scope="session")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the event file of the demo."""
    file = tmp_path_factory.mktemp("events") / "flights.ndjson"
    write_flights(file)
    return file
