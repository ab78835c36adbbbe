"""The ledger of a source: how costs add up, what is refused, and what its statement says."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.budget import Total, one_more_in_words, over_epochs_in_words, until_now_in_words
from stream_app.core.costs import measured_before
from stream_app.core.ledger import (
    entry_from_json,
    entry_of,
    entry_to_json,
    next_entry,
    statement,
)
from stream_app.core.promise import in_words, promise_in_words
from stream_app.core.records import EpochRecord, LedgerEntry
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
    assert [entry_from_json(entry_to_json(one)) for one in entries] == entries
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


def test_an_entry_names_the_zone_only_if_the_stream_has_one() -> None:
    record = EpochRecord(0, 100, 6, 1, "h")
    local = declared_of(format="iso8601", zone="Europe/Paris")
    assert entry_of(local, "s", record).time == "at iso8601 Europe/Paris"
    assert entry_of(declared_of(), "s", record).time == "at us"


def test_the_statement_names_sum_and_parts() -> None:
    told = statement("file:a", [entry(), entry("t", epsilon="1/3", strategy="i")]).sentences()
    assert "e^5/6" in told[0]
    assert "from 1970-01-01T00:00:00Z on (one epoch)" in told[1]
    ended = statement("file:a", [entry(until_us=30_000_000)]).sentences()
    assert "from 1970-01-01T00:00:00Z to 1970-01-01T00:00:30Z (one epoch)" in ended[1]
    assert "Stream s spends epsilon 0.5" in told[1]
    assert "Stream t spends epsilon 1/3" in told[2]
    assert statement("file:b", []).sentences() == ("Nothing has been measured in file:b.",)


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=10**9))
def test_epsilons_are_written_exactly(epsilon: Fraction) -> None:
    assert Fraction(in_words(epsilon)) == epsilon


def test_an_entry_of_an_older_version_keeps_its_text() -> None:
    older = (
        b'{"end_us":10,"epoch":0,"epsilon":"1/2","neighbours":"add_remove","private":true,"source":"file:a",'
        b'"start_us":0,"strategy_hash":"h","stream":"s","unit":"event"}'
    )
    assert entry_from_json(older) == LedgerEntry("file:a", "s", 0, 0, 10, "1/2", "event", "h")
    assert entry_to_json(entry_from_json(older)) == older


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
