"""Caps on people's contacts under faults of real processes: a few here, many with the script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.contacts_under_faults import PEOPLE, Contact, check_caps, draw_contacts, run


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nobody_counts_more_than_the_caps_and_others_never_move(tmp_path: Path) -> None:
    run(tmp_path, faults=3, seed=1, seconds=12)


def test_the_contacts_fill_the_caps() -> None:
    """Some people exceed each of the caps, and some meet one person only."""
    contacts = draw_contacts(1)
    assert contacts == draw_contacts(1) == sorted(contacts)
    assert {contact.person for contact in contacts} == set(range(PEOPLE))


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
