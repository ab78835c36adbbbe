"""Streams of several units over one source: the promise is for an event, and a user's epochs still add up."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from stream_app.core.budget import Total, left
from stream_app.core.ledger import statement
from stream_app.core.records import LedgerEntry

USER = LedgerEntry("file:a", "u", 0, 0, 10, "1", "user", "h", user="who", time="at s")
BESIDE = {
    "events": LedgerEntry("file:a", "e", 0, 0, 10, "1/10", "event", "i", time="at s"),
    "other users": LedgerEntry("file:a", "o", 0, 0, 10, "1/10", "user", "i", user="account", time="at s"),
    "a user's day": LedgerEntry(
        "file:a",
        "d",
        0,
        0,
        10,
        "1/10",
        "user",
        "i",
        user="who",
        time="at s",
        per="1d",
        period_us=0,
        periods=1,
    ),
}


def epochs(number: int) -> list[LedgerEntry]:
    return [
        replace(USER, epoch=epoch, start_us=10 * epoch, end_us=10 * epoch + 10) for epoch in range(number)
    ]


@pytest.mark.parametrize("other", BESIDE.values(), ids=BESIDE)
def test_total_ends_for_the_user_whatever_stands_beside(other: LedgerEntry) -> None:
    total = Total(Fraction(3))
    assert total.allows("u", [*epochs(3), other]) == (other.unit == "event" or total.allows("u", [other]))
    assert not total.allows("u", [*epochs(4), other])
    found = left(total, [*epochs(1), other], "u")
    assert found is not None
    assert found.epochs is not None
    assert found.epochs <= 2


@pytest.mark.parametrize("other", BESIDE.values(), ids=BESIDE)
def test_large_sum_of_a_user_is_not_private_beside_another_unit(other: LedgerEntry) -> None:
    assert not statement("file:a", epochs(21)).private
    assert not statement("file:a", [*epochs(21), other]).private
    assert statement("file:a", [*epochs(5), other]).private


def test_epochs_that_share_a_cap_window_are_both_charged_for_an_event() -> None:
    """After a set-back one event may change which events of a user count in both epochs."""
    first, again, later = epochs(3)
    ended_early = replace(again, start_us=4, end_us=10)
    beside = BESIDE["events"]
    assert statement("file:a", [first, again, later, beside]).epsilon == 2 + Fraction(1, 10)
    assert statement("file:a", [first, ended_early, later, beside]).epsilon == 4 + Fraction(1, 10)
    # Events fall into one epoch, and for the user all epochs add up as before.
    assert statement("file:a", [beside, replace(beside, epoch=1, start_us=4)]).epsilon == Fraction(1, 10)
    assert statement("file:a", [first, ended_early, later]).epsilon == 3
