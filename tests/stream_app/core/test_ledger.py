"""The ledger of a source: how costs add up, what is refused, and what its statement says."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_app.audit.added_up import added_up
from stream_app.core.budget import Total, one_more_in_words, over_epochs_in_words, until_now_in_words
from stream_app.core.costs import measured_before
from stream_app.core.ledger import (
    ACCEPTED,
    check_measurement,
    entry_from_json,
    entry_of,
    entry_to_json,
    next_entry,
    statement,
)
from stream_app.core.promise import in_words, promise_in_words
from stream_app.core.records import EpochRecord, LedgerEntry
from stream_app.core.segments.names import generation
from tests.stream_app.declared import declared_of


def entry(
    stream: str = "s",
    epoch: int = 0,
    start_us: int = 0,
    end_us: int = 10,
    epsilon: str = "1/2",
    strategy: str = "h",
    unit: str = "event",
    neighbours: str = "add_remove",
    until_us: int | None = None,
) -> LedgerEntry:
    """Return a ledger entry of one source. Without ``until_us`` its stream is live."""
    return LedgerEntry(
        "file:a",
        stream,
        epoch,
        start_us,
        end_us,
        epsilon,
        unit,
        strategy,
        neighbours=neighbours,
        until_us=until_us,
        time="ts iso8601",
    )


def users_of(field: str | None, stream: str = "s", epoch: int = 0) -> LedgerEntry:
    """Return an entry whose unit is the user. Args: field, None for an entry of an older version."""
    one = entry(stream, epoch, 10 * epoch, 10 * epoch + 10, "1", stream, "user")
    return replace(one, user=field)


def approximate(epoch: int = 0, stream: str = "s") -> LedgerEntry:
    """Return an entry of a Gaussian epoch that is (1, 1e-6)-private by itself, for users."""
    one = entry(stream, epoch, 10 * epoch, 10 * epoch + 10, "1", stream, "user")
    return replace(one, delta="1/1000000", mu="2367/10000")


epsilons = st.fractions(min_value=Fraction(1, 100), max_value=20)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from("abc"), st.lists(epsilons, min_size=1, max_size=4)))
def test_streams_add_up_and_epochs_do_not(spent: dict[str, list[Fraction]]) -> None:
    entries = [
        entry(stream, epoch, 10 * epoch, 10 * epoch + 10, str(epsilon))
        for stream, epsilons in spent.items()
        for epoch, epsilon in enumerate(epsilons)
    ]
    expected = sum((max(epsilons) for epsilons in spent.values()), Fraction(0))
    assert statement("file:a", entries).epsilon == expected


UNPLANNED = replace(approximate(), mu=None)  # a configuration is checked before its strategy is planned
NAMED = replace(approximate(), user="name")
LINKED = replace(entry(epoch=2, start_us=20, end_us=30, strategy="third"), changed_from="second")
GAUSSIAN = replace(entry(epoch=1, start_us=10, end_us=20, strategy="new"), delta="1/1000", changed_from="h")
# Under a cap, one more event can displace another event of its user. Replacing an event takes one away and
# adds one.
ADDED_UP: dict[str, tuple[list[LedgerEntry], dict[str, object]]] = {
    "a stream anew under another strategy": (
        [entry(), entry(strategy="other", epoch=1)],
        {"unit": "event", "epsilon": 1},
    ),
    "strategies without a link": ([entry(epsilon="1"), LINKED], {"epsilon": Fraction(3, 2)}),
    "an event beside a user": (
        [entry(), entry("t", strategy="i", unit="user")],
        {"unit": "event", "neighbours": "add_remove", "epsilon": Fraction(3, 2)},
    ),
    "one more event beside another event": (
        [entry(), entry("t", strategy="i", neighbours="substitute")],
        {"unit": "event", "neighbours": "substitute", "epsilon": Fraction(3, 2)},
    ),
    "one more event beside another user": (
        [entry(), entry("t", strategy="i", unit="user", neighbours="substitute")],
        {"unit": "event", "neighbours": "substitute", "epsilon": 2},
    ),
    "a user's epochs": (
        [entry(epoch=n, start_us=10 * n, end_us=10 * n + 10, unit="user") for n in range(3)],
        {"unit": "user", "epsilon": Fraction(3, 2)},
    ),
    "the same users": ([users_of("passenger"), users_of("passenger", "t")], {"unit": "user", "epsilon": 2}),
    # Taking a passenger out changes many devices, so only single events have a promise.
    "other users": ([users_of("passenger"), users_of("device", "t")], {"unit": "event", "epsilon": 4}),
    "users, one of unknown field": (
        [users_of("passenger"), users_of(None, "t")],
        {"unit": "event", "epsilon": 4},
    ),
    "users of unknown fields": ([users_of(None), users_of(None, "t")], {"unit": "event", "epsilon": 4}),
    "one stream of an unknown field": ([users_of(None)], {"unit": "user", "epsilon": 1}),
    "older entries have the field of newer ones": (
        [users_of(None), users_of("passenger", epoch=1), users_of("passenger", "t")],
        {"unit": "user", "epsilon": 3},
    ),
    "pure and Gaussian streams of users": (
        [NAMED, users_of("name", "t")],
        {"unit": "user", "epsilon": 2, "delta": Fraction(1, 10**6)},
    ),
    "deltas of several strategies": (
        [entry(), GAUSSIAN, replace(GAUSSIAN, epoch=2, changed_from=None)],
        {"epsilon": 1, "delta": Fraction(1, 1000)},
    ),
    "deltas without mu": (
        [UNPLANNED, replace(UNPLANNED, epoch=1)],
        {"epsilon": 2, "delta": Fraction(2, 10**6)},
    ),
    "a delta without mu, of two changes": (  # 2 e delta, rounded up
        [UNPLANNED, entry("t")],
        {"epsilon": Fraction(5, 2), "delta": Fraction("5.44e-6")},
    ),
    "mu of an event beside a user": (
        [NAMED, entry("t")],
        {"unit": "event", "neighbours": "add_remove", "epsilon": Fraction(5, 2)},
    ),
    "mu of a replaced user": (
        [NAMED, replace(users_of("name", "t"), neighbours="substitute")],
        {"unit": "user", "neighbours": "substitute", "epsilon": 3},
    ),
}


@pytest.mark.parametrize(("entries", "facts"), ADDED_UP.values(), ids=ADDED_UP)
def test_entries_of_a_source_add_up(entries: list[LedgerEntry], facts: dict[str, object]) -> None:
    told = statement("file:a", entries)
    assert {name: getattr(told, name) for name in facts} == facts
    of_one = "any one event" if told.unit == "event" else "all events of any one user"
    assert f" {of_one} of file:a exist" in told.sentences()[0] or told.neighbours == "substitute"


@pytest.mark.parametrize("other", [entry("t"), replace(users_of("name", "t"), neighbours="substitute")])
def test_neighbours_twice_as_far_apart_double_mu(other: LedgerEntry) -> None:
    told = statement("file:a", [NAMED, other])
    assert told.cost.losses.mu_squared == (2 * Fraction("0.2367")) ** 2
    assert told.delta is not None
    assert told.delta > Fraction(1, 10**6)


def test_source_is_not_private_if_one_measurement_is_not() -> None:
    open_entry = LedgerEntry("file:a", "t", 0, 0, 10, "1000000000", "event", "i", private=False)
    told = statement("file:a", [entry(), open_entry])
    assert not told.private
    assert told.sentences()[0].startswith("Not private")


def test_a_sum_that_protects_nobody_is_not_called_private() -> None:
    epochs = [entry(epoch=epoch, epsilon="1", unit="user", start_us=10 * epoch) for epoch in range(21)]
    assert statement("file:a", epochs[:20]).private
    told = statement("file:a", epochs)
    assert not told.private
    assert told.sentences()[0].startswith("Not private: epsilon 21 ")
    assert "21 epochs, which add up for a user" in told.sentences()[1]
    named = statement("file:a", [users_of("passenger")]).sentences()[1]
    assert 'on users that the field "passenger" names, from' in named


@pytest.mark.parametrize("foreign", [{"source": "file:b"}, {"unit": "household"}])
def test_entries_that_the_rules_do_not_cover_are_refused(foreign: dict[str, str]) -> None:
    facts = {"source": "file:a", "unit": "event"} | foreign
    with pytest.raises(ValueError, match="cannot be composed"):
        statement("file:a", [LedgerEntry(facts["source"], "s", 0, 0, 1, "1", facts["unit"], "h")])


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


def test_an_entry_names_the_zone_only_if_the_stream_has_one() -> None:
    record = EpochRecord(0, 100, 6, 1, "h")
    local = declared_of(format="iso8601", zone="Europe/Paris")
    assert entry_of(local, "s", record).time == "at iso8601 Europe/Paris"
    assert entry_of(declared_of(), "s", record).time == "at us"


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


def test_the_statement_names_sum_and_parts() -> None:
    told = statement("file:a", [entry(), entry("t", epsilon="1/3", strategy="i")]).sentences()
    assert "e^5/6" in told[0]
    assert "from 1970-01-01T00:00:00Z on (one epoch)" in told[1]
    ended = statement("file:a", [entry(until_us=30_000_000)]).sentences()
    assert "from 1970-01-01T00:00:00Z to 1970-01-01T00:00:30Z (one epoch)" in ended[1]
    assert ["Stream s spends epsilon 0.5" in told[1], "Stream t spends epsilon 1/3" in told[2]] == [
        True,
        True,
    ]
    assert statement("file:b", []).sentences() == ("Nothing has been measured in file:b.",)


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=10**9))
def test_epsilons_are_written_exactly(epsilon: Fraction) -> None:
    assert Fraction(in_words(epsilon)) == epsilon


def test_entry_written_before_a_field_existed_keeps_its_text() -> None:
    older = users_of(None)
    assert b'"user":"passenger"' in entry_to_json(users_of("passenger"))
    assert b"passenger" not in entry_to_json(older)
    assert entry_from_json(entry_to_json(older)) == older
    assert '"user":null' not in entry_to_json(older).decode()


def test_entry_of_a_version_without_delta_keeps_its_text() -> None:
    older = (
        b'{"end_us":10,"epoch":0,"epsilon":"1/2","neighbours":"add_remove","private":true,"source":"file:a",'
    )
    older += b'"start_us":0,"strategy_hash":"h","stream":"s","unit":"event"}'
    assert entry_from_json(older) == LedgerEntry("file:a", "s", 0, 0, 10, "1/2", "event", "h")
    assert entry_to_json(entry_from_json(older)) == older


def test_entry_with_delta_and_mu_is_read_back() -> None:
    approximate = replace(entry(), delta="1/1000000", mu="2367/10000")
    assert entry_from_json(entry_to_json(approximate)) == approximate
    assert entry_to_json(approximate) != entry_to_json(entry())


def test_promise_without_delta_is_written_as_before() -> None:
    assert promise_in_words(Fraction(1, 2), None) == "epsilon 0.5"
    assert promise_in_words(Fraction(1, 2), Fraction(1, 10**9)) == "(epsilon 0.5, delta 1e-9)"


def test_a_source_with_delta_states_the_composed_cost_and_the_sum() -> None:
    told = statement("file:a", [approximate(epoch) for epoch in range(12)])
    assert told.epsilon == 12
    assert told.delta == Fraction(12, 10**6)
    assert (told.composed, told.composed_delta) == (Fraction("3.91"), Fraction(1, 10**6))
    assert told.private
    promise, other, *_ = told.sentences()
    assert promise.endswith("is shown by at most a factor e^3.91 (about 50), and adds at most 1e-6.")
    assert other == "This is composed; the sum of all parts is (epsilon 12, delta 1.2e-5)."


def test_a_pure_promise_stays_and_the_composed_cost_is_an_additional_line() -> None:
    epochs = [replace(entry(epoch=epoch, epsilon="1/10", unit="user")) for epoch in range(100)]
    told = statement("file:a", epochs)
    assert told.epsilon == 10
    assert told.delta is None
    assert "e^10 (about 22,026)." in told.sentences()[0]
    assert told.sentences()[1] == (
        "For those who accept a delta, all of it together is (epsilon 4.78, delta 1e-6)."
    )


def test_gaussian_epochs_do_not_add_up_for_events() -> None:
    one = [replace(approximate(epoch), unit="event") for epoch in range(5)]
    assert statement("file:a", one).cost == statement("file:a", one[:1]).cost


def test_the_next_epoch_follows_the_last_one() -> None:
    entries = [approximate(0), approximate(1)]
    following = next_entry(entries, "s")
    assert following == replace(approximate(2), start_us=20, end_us=30)
    assert next_entry(entries, "t") is None
    assert next_entry([replace(one, until_us=20) for one in entries], "s") is None


def test_one_more_epoch_is_said_in_words() -> None:
    words = one_more_in_words("file:a", [approximate(epoch) for epoch in range(11)], "s")
    assert words == (
        "One more epoch of this stream makes (epsilon 12, delta 1.2e-5) as a sum and "
        "(epsilon 3.91, delta 1e-6) composed."
    )
    assert "adds nothing" in one_more_in_words("file:a", [entry()], "s")
    assert one_more_in_words("file:a", [entry(until_us=10)], "s") == ""


def test_costs_over_epochs_are_for_streams_whose_epochs_add_up() -> None:
    assert over_epochs_in_words(entry()) == until_now_in_words(entry(), 10**15) == ""
    assert "12 epochs cost (epsilon 12, delta 1.2e-5) as a sum and (epsilon 3.91" in over_epochs_in_words(
        approximate()
    )


def test_cost_until_now_is_that_of_the_epochs_since_the_start() -> None:
    first = approximate()
    length_us = first.end_us - first.start_us
    assert until_now_in_words(first, first.end_us) == ""
    said = until_now_in_words(first, first.start_us + 11 * length_us + 1)
    assert "until now are 12 epochs; for a user they cost (epsilon 12, delta 1.2e-5) as a sum" in said
    ended = replace(first, until_us=first.start_us + 3 * length_us)
    assert "are 3 epochs" in until_now_in_words(ended, 10**15)
    limited = until_now_in_words(first, first.start_us + 3 * length_us, Total(Fraction(2)))
    assert limited.endswith("the total of epsilon 2 for the source ends the stream earlier.")


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


def test_settings_that_change_cost_an_event_the_larger_epsilon() -> None:
    before = [entry(epoch=0), entry(epoch=1, start_us=10, end_us=20)]
    changed = replace(entry(epoch=2, start_us=20, end_us=30, epsilon="2", strategy="new"), changed_from="h")
    told = statement("file:a", [*before, changed])
    assert told.epsilon == told.composed == 2
    [line] = [line for line in told.sentences() if line.startswith("Stream s spends")]
    assert "at most epsilon 2, and epsilon 2 since 1970-01-01T00:00:00.000020Z, on events" in line
    assert "(3 epochs, which do not add up)" in line


def test_settings_that_change_back_are_one_measurement_too() -> None:
    epochs = [
        entry(epsilon="1"),
        replace(entry(epoch=1, start_us=10, end_us=20, epsilon="2", strategy="new"), changed_from="h"),
        replace(entry(epoch=2, start_us=20, end_us=30, epsilon="1"), changed_from="new"),
    ]
    assert statement("file:a", epochs).epsilon == 2
    assert measured_before(epochs[:2], epochs[2]) == ()


def test_the_epoch_after_a_change_continues_the_new_settings() -> None:
    changed = replace(entry(epoch=1, start_us=10, end_us=20, strategy="new"), changed_from="h")
    following = next_entry([entry(), changed], "s")
    assert following is not None
    assert following.changed_from is None
    assert entry_from_json(entry_to_json(changed)) == changed


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
