"""Spools, files and caps under faults of real processes: a few here, many with the script."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e import logs_under_faults
from tests.e2e.contacts_under_faults import (
    MOST_KEYS,
    MOST_PER_KEY,
    Contact,
    check_caps,
    draw_contacts,
    run,
)

pytestmark = pytest.mark.slow

SEED = 4  # its first faults do not start the whole service again, which takes long


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_event_of_logs_counts_once_whatever_is_killed_or_frozen(tmp_path: Path) -> None:
    logs_under_faults.run(tmp_path, faults=len(logs_under_faults.FAULTS), seed=1)


def test_lines_of_standard_input_are_stored(tmp_path: Path) -> None:
    logs_under_faults.configure(tmp_path)
    lines = (json.dumps({"at": int(time.time() * 1000)}) + "\n") * 1000

    def piped(command: tuple[str, ...], given: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, input=given, capture_output=True, text=True, check=False)

    assert piped(logs_under_faults.PIPE, lines[:-1]).stdout == "1,000 lines are stored\n"
    [records] = (tmp_path / "spool/pages").glob("*.ndjson")
    assert records.read_text() == lines
    refused = piped((*logs_under_faults.PIPE[:-1], "other"), "")
    assert refused.returncode == 2
    said = "stream-app: --stdin other: no stream has this source.http; use one of pages\n"
    assert refused.stderr == said


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nobody_counts_more_than_the_caps_and_others_never_move(tmp_path: Path) -> None:
    run(tmp_path, faults=3, seed=SEED, seconds=10)


def test_the_contacts_exceed_both_caps() -> None:
    contacts = draw_contacts(SEED)
    assert contacts == draw_contacts(SEED) == sorted(contacts)
    of_pairs = Counter((contact.day, contact.pair) for contact in contacts)
    keys = Counter((day, pair.split("-")[0]) for day, pair in of_pairs)
    assert len([number for number in keys.values() if number > MOST_KEYS]) > 5
    assert len([number for number in of_pairs.values() if number > MOST_PER_KEY]) > 5


def test_the_recount_finds_a_key_and_an_event_too_many() -> None:
    contacts = [Contact(hour, 0, 0, friend) for hour, friend in enumerate((0, 0, 0, 0, 1, 2))]
    good = {"p0-0": [1, 1, 1, 0, 0, 0], "p0-1": [0, 0, 0, 0, 1, 0], "p0-2": [0] * 6}
    padded = {key: counts + [0] * 18 for key, counts in good.items()}
    assert check_caps(contacts, padded) == 4
    for key, hour in (("p0-0", 3), ("p0-2", 5)):
        wrong = {name: list(counts) for name, counts in padded.items()}
        wrong[key][hour] += 1
        with pytest.raises(AssertionError, match="person 0, day 0"):
            check_caps(contacts, wrong)
