"""Real processes: topics that differ by one hostile record give the same releases at the same instants."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.differential import NEW_KEYS, pairs_of, tried
from tests.e2e.same_records import KILLS
from tests.simulator.hostile import Form, Hostile

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_hostile_record_changes_nothing_else(tmp_path: Path, bootstrap_servers: str) -> None:
    """This tries a few kinds of hostile record; ``python -m tests.e2e.differential`` tries all."""
    pairs = [
        *pairs_of(Form(), [Hostile.FUTURE_YEAR, Hostile.HUGE]),
        *pairs_of(Form(avro=True), [Hostile.EARLY_SCHEMA, Hostile.SLOW_LOOK_UP]),
        *pairs_of(Form(max_events=4), [Hostile.OVER_CAP]),
        *pairs_of(Form(max_events=4, where=True), [Hostile.LEFT_OUT]),
    ]
    found = {str(kind): words for (_, kind), words, _ in tried(tmp_path, bootstrap_servers, pairs)}
    assert found == {str(kind): [] for _, kind in pairs if kind is not None}


def test_a_new_key_of_one_record_changes_nothing_else_and_is_named_nowhere(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    """The worker is killed (kill -9) after that record, and again when it goes on."""
    found = tried(tmp_path, bootstrap_servers, NEW_KEYS, KILLS)
    assert [words for _, words, _ in found] == [[], []]
