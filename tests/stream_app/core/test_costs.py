"""What epochs of one source cost together, and which streams measure the same events again."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_app.audit.added_up import added_up
from stream_app.core.budget import Total, left
from stream_app.core.costs import measured_before
from stream_app.core.ledger import ACCEPTED, check_measurement, statement
from stream_app.core.records import LedgerEntry
from stream_app.core.segments.names import generation
from tests.stream_app.core.test_ledger import entry, users_of


def replay(stream: str, start_us: int, until_us: int) -> LedgerEntry:
    """Return a replay's first epoch. It is longer than some replays and shorter than others."""
    return entry(stream, start_us=start_us, end_us=start_us + 10, strategy=stream, until_us=until_us)


def live(stream: str, start_us: int) -> LedgerEntry:
    return entry(stream, start_us=start_us, end_us=start_us + 10, strategy=stream)


@pytest.mark.parametrize(
    ("before", "new", "is_again"),
    [
        # Live streams do not end. So from the later start on both count the same events, whichever begins
        # first.
        (live("a", 0), live("b", 10), True),
        (live("a", 10), live("b", 0), True),
        (live("a", 0), live("b", 10**9), True),
        # A replay of a time before a live stream's first bin counts none of its events.
        (live("a", 30), replay("b", 0, 30), False),
        (live("a", 30), replay("b", 0, 31), True),
        (live("a", 30), replay("b", 40, 50), True),
        (replay("a", 0, 30), live("b", 30), False),
        (replay("a", 0, 30), live("b", 20), True),
        # Replays count from their first bin to their last, however long an epoch is.
        (replay("a", 0, 30), replay("b", 20, 50), True),
        (replay("a", 20, 50), replay("b", 0, 30), True),
        (replay("a", 0, 30), replay("b", 30, 50), False),
        (replay("a", 30, 50), replay("b", 0, 30), False),
        (replay("a", 0, 5), replay("b", 5, 9), False),
    ],
)
def test_streams_that_can_count_the_same_event_measure_it_again(
    before: LedgerEntry, new: LedgerEntry, is_again: bool
) -> None:
    assert bool(measured_before([before], new)) == is_again
    # The epoch that the earlier stream has reached makes no difference.
    later = replace(before, epoch=7, start_us=before.start_us + 70, end_us=before.start_us + 80)
    assert bool(measured_before([before, later], new)) == is_again
    assert bool(measured_before([later, before], new)) == is_again


@pytest.mark.parametrize(
    ("before", "later", "is_again"),
    [
        ("ordered_at iso8601", "ordered_at iso8601", False),
        ("ordered_at iso8601", "paid_at iso8601", True),  # an order from January may be paid in February
        ("at s", "at ms", True),  # the same number means two instants
        ("at iso8601 Asia/Tokyo", "at iso8601 Asia/Tokyo", False),
        ("at iso8601 Asia/Tokyo", "at iso8601 UTC", True),  # so does the same text
        ("at iso8601", "at iso8601 UTC", True),
        (None, "ordered_at iso8601", True),  # an older version did not write which time it read
        ("ordered_at iso8601", None, True),
        (None, None, True),
    ],
)
def test_periods_are_disjoint_only_if_both_streams_read_the_same_time(
    before: str | None, later: str | None, is_again: bool
) -> None:
    january = replace(replay("a", 0, 31), time=before)
    february = replace(replay("b", 31, 59), time=later)
    assert bool(measured_before([january], february)) == is_again


def test_a_successor_that_reads_times_in_another_zone_adds_up() -> None:
    old = replace(live("a", 0), time="at iso8601 UTC")
    for zone, cost in (("UTC", Fraction(1, 2)), ("Asia/Tokyo", Fraction(1))):
        entries = [old, replace(live("b", 10), time=f"at iso8601 {zone}", successor_of="a")]
        stated = statement("file:a", entries)
        assert stated.epsilon == added_up(stated, entries).epsilon == cost


@pytest.mark.parametrize(
    ("facts", "together"),
    [
        ({}, None),
        ({"unit": "user", "user": "who"}, "3"),  # the new stream's cap costs an event twice as much
        ({"neighbours": "substitute"}, "3"),  # the old stream costs twice as much
    ],
)
def test_a_successor_that_protects_something_else_needs_consent(
    facts: dict[str, str], together: str | None
) -> None:
    old = replace(live("a", 0), epsilon="1")
    new = replace(live("b", 10), epsilon="1", successor_of="a", **facts)  # type: ignore[arg-type]
    assert bool(measured_before([old], new)) == (together is not None)
    if together is None:
        check_measurement([old], new, accept=None)
        return
    with pytest.raises(ValueError, match=rf"all together cost epsilon {together}; write accept"):
        check_measurement([old], new, accept=None)
    check_measurement([old], new, ACCEPTED)
    with pytest.raises(ValueError, match=r"cost epsilon 45, which protects nobody"):
        check_measurement([replace(old, epsilon="15")], replace(new, epsilon="15"), ACCEPTED)
    # A third stream that counts only after the old one's end is asked about both, too.
    assert [one.stream for one in measured_before([old, new], replace(live("c", 20), **facts))] == ["a", "b"]  # type: ignore[arg-type]


def test_a_stream_that_began_in_an_older_version_has_the_time_of_its_newer_epochs() -> None:
    old = replace(replay("a", 0, 31), time=None)
    new = replace(replay("a", 0, 31), epoch=1, start_us=10, end_us=20)
    assert measured_before([old, new], replay("b", 31, 59)) == ()


def test_epochs_of_one_stream_are_never_a_second_measurement() -> None:
    assert measured_before([entry()], entry(epoch=1, start_us=5, end_us=15)) == ()


def test_second_measurement_needs_the_words_of_consent() -> None:
    again = entry("t", epsilon="1/4", strategy="i")
    with pytest.raises(ValueError, match=r'epsilon 0\.75.*accept: "measured again"'):
        check_measurement([entry()], again, accept=None)
    with pytest.raises(ValueError, match="already measured by s"):
        check_measurement([entry()], again, accept="yes")
    check_measurement([entry()], again, accept=ACCEPTED)


def test_consent_does_not_accept_a_sum_that_protects_nobody() -> None:
    again = entry("t", epsilon="19.6", strategy="i")
    with pytest.raises(ValueError, match=r"all together cost epsilon 20\.1, which protects nobody"):
        check_measurement([entry()], again, ACCEPTED)
    at_the_edge = entry("t", epsilon="19.6", strategy="i", start_us=10, end_us=20)
    with pytest.raises(ValueError, match=r"all together cost epsilon 20\.1, which protects nobody"):
        check_measurement([entry()], at_the_edge, ACCEPTED)
    check_measurement([entry()], entry("t", epsilon="19.5", strategy="i"), ACCEPTED)


@given(
    st.lists(
        st.builds(
            entry,
            stream=st.sampled_from("abcd"),
            epoch=st.integers(0, 2),
            epsilon=st.sampled_from(["1/3", "2", "5", "9.9", "10", "20"]),
            unit=st.sampled_from(["event", "event", "user"]),
            neighbours=st.sampled_from(["add_remove", "add_remove", "substitute"]),
        ),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
    st.booleans(),
)
def test_an_accepted_measurement_is_refused_exactly_if_all_together_protects_nobody(
    entries: list[LedgerEntry], uniform: bool, approximate: bool
) -> None:
    if uniform:
        entries = [replace(one, unit="event", neighbours="add_remove") for one in entries]
    if approximate:
        entries[0] = replace(entries[0], delta="1/1000000", mu="2")
    *before, new = entries
    told = statement(new.source, entries)
    others = measured_before(before, new)
    if others and told.total_epsilon > 20:
        with pytest.raises(ValueError, match="protects nobody"):
            check_measurement(before, new, ACCEPTED)
    else:
        check_measurement(before, new, ACCEPTED)


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.booleans()),  # each epoch's strategy, and whether it ended early
        min_size=1,
        max_size=7,
    )
)
def test_a_cap_window_costs_what_its_epochs_cost_together(epochs: list[tuple[str, bool]]) -> None:
    """Brute force: try every window. With a cap, an epoch that follows an early end shares its window."""
    epsilon_of = {"a": Fraction(1, 2), "b": Fraction(2), "c": Fraction(1, 3)}
    entries, sums, start_us, before = [], [Fraction(0)], 0, None
    for number, (name, early) in enumerate(epochs):
        one = entry(
            "s", number, start_us, start_us + 10, str(epsilon_of[name]), name, "user", neighbours="substitute"
        )
        entries.append(replace(one, changed_from=before if before != name else None))
        sums[-1] += epsilon_of[name]
        if early:
            start_us += 5
        else:
            start_us += 10
            sums.append(Fraction(0))
        before = name
    other = entry("t", epsilon="1/7", neighbours="substitute")  # the promise is then about an event
    assert statement("file:a", [*entries, other]).epsilon == 2 * max(sums) + Fraction(1, 7)


@settings(max_examples=60)
@given(
    st.lists(
        # Of each epoch: its epsilon, how much of ten hours it counts, and whether a generation ends with it.
        st.tuples(st.integers(1, 4), st.sampled_from([10, 10, 1, 3, 7]), st.booleans()),
        min_size=1,
        max_size=7,
    )
)
def test_generations_that_cut_epochs_short_cost_what_one_unit_meets(
    epochs: list[tuple[int, int, bool]],
) -> None:
    """Brute force: all epochs that can count an event, one cap window's events, a user, or a user's day.

    An epoch that ends early was lost, or a generation that ends cuts it short.
    """
    day, begins_us, number = 6, 0, 1
    entries, until, windows = list[LedgerEntry](), list[int](), [0]
    for epsilon, hours, ends in epochs:
        name, before = generation("s", number), generation("s", number - 1) if number > 1 else None
        one = entry(name, len(entries), begins_us, begins_us + 10, str(epsilon), name)
        # A strategy of each generation; within one, the epochs have its first epsilon.
        own = [other for other in entries if other.stream == name]
        one = replace(one, epsilon=own[0].epsilon if own else one.epsilon, successor_of=before)
        windows[-1] += int(one.epsilon)
        begins_us += hours
        entries.append(one)
        until.append(begins_us)
        if ends or hours == 10:
            windows.append(0)
        number += ends
    costs = [int(one.epsilon) for one in entries]
    assert statement("file:a", entries).epsilon == max(costs)
    users = [replace(one, unit="user", user="id", time="at us") for one in entries]
    assert statement("file:a", users).epsilon == sum(costs)
    assert statement("file:a", [*users, entry("t", epsilon="1/7")]).epsilon == 2 * max(windows) + Fraction(
        1, 7
    )
    days = [
        replace(one, per="1d", period_us=one.start_us // day * day, periods=-(-one.end_us // day))
        for one in users
    ]
    sums = [
        sum(
            cost
            for cost, one, end_us in zip(costs, days, until, strict=True)
            if one.start_us < first + day and first < end_us
        )
        for first in range(0, begins_us, day)
    ]
    assert statement("file:a", days).epsilon == max(sums)
    for ledger in (entries, users, [*users, entry("t", epsilon="1/7")], days):
        stated = statement("file:a", ledger)
        assert added_up(stated, ledger).epsilon == stated.epsilon


BESIDE = {
    "events": entry("e", epsilon="1/10", strategy="i"),
    "other users": replace(users_of("account", "o"), epsilon="1/10"),
    "a user's day": replace(users_of("who", "d"), epsilon="1/10", per="1d", period_us=0, periods=1),
}


def epochs(number: int) -> list[LedgerEntry]:
    return [users_of("who", "u", epoch) for epoch in range(number)]


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


def test_an_epoch_shares_the_cap_window_of_every_earlier_one_that_was_to_end_later() -> None:
    first, short, later = epochs(3)
    short, later = replace(short, start_us=4, end_us=6), replace(later, start_us=8, end_us=10)
    assert statement("file:a", [first, short, later, BESIDE["events"]]).epsilon == 6 + Fraction(1, 10)
