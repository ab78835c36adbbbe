"""The demo over Kafka: past events of a file are moved to now, sent to a topic and counted live."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deploy.ports import free_port
from tests.e2e.service import Service, answers, get

pytestmark = [pytest.mark.redis, pytest.mark.kafka, pytest.mark.slow]


def test_the_year_happens_now(tmp_path: Path, flights: Path, bootstrap_servers: str) -> None:
    port, state = free_port(), tmp_path / "state"
    state.mkdir(mode=0o700)
    shutil.copy(flights, state / "flights.ndjson")
    environment = {"STREAM_APP_KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers}
    arguments = ["demo", "--kafka", "--port", str(port), "--state", str(state)]
    with Service(arguments, tmp_path, environment) as service:
        service.until("their times moved to now")
        service.until_true(lambda: answers(port, "/v1/streams/departures"), "the API answers")
        service.until_true(lambda: _bins(port) >= 8, "a day of 2013 has passed in eight seconds")
        counted = get(port, "/v1/streams/departures")["running"]
        assert service.interrupt() == 0
    assert counted["interval"][0] > 100  # about 900 flights leave per day


def _bins(port: int) -> int:
    return int(get(port, "/v1/streams/departures")["seq"])
