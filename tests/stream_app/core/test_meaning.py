"""What a stream's numbers mean, in words."""

from __future__ import annotations

from fractions import Fraction

import pytest

from stream_app.core.counting.bounding import PerUser
from stream_app.core.counting.cells import Amounts, Buckets
from stream_app.core.counting.keys import KeyField, KeyList
from stream_app.core.counting.where import AllOf, OneOf, Within
from stream_app.core.declaration import Declaration
from stream_app.core.ledger import entry_of, statement
from stream_app.core.meaning import (
    EVERY_EVENT,
    amounts_in_words,
    epoch_in_words,
    left_out,
    meaning_of,
    meaning_of_amounts,
    range_in_words,
)
from stream_app.core.promise import neighbouring_in_words
from stream_app.core.records import EpochRecord
from tests.stream_app.declared import declared_of

WHERE = AllOf((OneOf("country", ("FR", "DE")), Within("amount", min=Fraction(10))))
SAID = "where country is one of FR, DE and amount is at least 10"
AMOUNTS = Amounts("amount", Fraction(0), Fraction(1500), Fraction(1, 100))
USERS = declared_of(user=PerUser("id", 1), count="users")


def test_stream_without_a_cap_needs_no_warning() -> None:
    assert meaning_of(declared_of()) == EVERY_EVENT
    assert meaning_of(declared_of()).warning == ""
    assert range_in_words(declared_of(), 3) == "events"


def test_cap_is_disclosed_with_its_number_and_field() -> None:
    declared = declared_of(user=PerUser("id", 1_500))
    meaning = meaning_of(declared)
    assert meaning.counts == (
        'Counts at most 1,500 events per user and epoch, earliest bins first. The field "id" names the user; '
        "events without one do not count."
    )
    assert "not for the number of all events" in meaning.intervals
    assert meaning.warning.startswith(meaning.counts)
    assert "Charts show too few events towards the end of" in meaning.warning
    assert "at most 1,500 per user" in range_in_words(declared, 1)
    assert (
        "at most 1 event per user and epoch, from the user's first bin."
        in meaning_of(declared_of(user=PerUser("id", 1))).counts
    )


def test_caps_on_keys_are_disclosed_with_their_numbers() -> None:
    keys = KeyList("land", ("FR", "DE"), True, False)
    declared = declared_of(user=PerUser("id", 10, 5, 2), keys=keys)
    assert meaning_of(declared).counts == (
        "Counts at most 10 events per user and epoch, at most 2 in each of at most 5 keys, earliest bins "
        'first. The field "id" names the user; events without one do not count.'
    )
    said = "counted events (at most 10 per user and epoch, at most 2 in each of at most 5 keys, earliest bins"
    assert range_in_words(declared, 1).startswith(said)
    one = meaning_of(declared_of(user=PerUser("id", None, 1, 3), keys=keys))
    assert one.counts.startswith("Counts at most 3 events per user and epoch, at most 3 in 1 key, earliest")


def test_users_count_once_per_epoch_and_ranges_say_so() -> None:
    meaning = meaning_of(USERS)
    assert meaning.noun == "users first seen"
    assert "once per epoch" in meaning.counts
    assert "key" not in meaning.counts
    keys = KeyList("country", ("FR",), True, False)
    assert (
        "under one of the user's keys"
        in meaning_of(declared_of(user=PerUser("id", 1), count="users", keys=keys)).counts
    )
    assert range_in_words(USERS, 1) == "users first seen in this range, which is within one epoch"
    assert range_in_words(USERS, 3) == "users first seen in this range, once in each of its 3 epochs"


def test_epochs_of_a_count_of_users_add_up_in_the_ledger() -> None:
    entries = [entry_of(USERS, "users", EpochRecord(n, 100 + 6 * n, 6, 1 + 6 * n, "h")) for n in range(3)]
    stated = statement(USERS.source.name, entries)
    assert (stated.unit, stated.epsilon) == ("user", Fraction(3))
    assert stated.neighbouring == "a log, and the same log without all events of one user"


@pytest.mark.parametrize("neighbours", ["add_remove", "substitute"])
@pytest.mark.parametrize("unit", ["event", "user"])
def test_each_unit_and_each_kind_of_neighbours_has_its_own_words(unit: str, neighbours: str) -> None:
    words = neighbouring_in_words(unit, neighbours)
    assert ("all events of one user" if unit == "user" else "one event") in words
    assert ("replaced by any other" if neighbours == "substitute" else "same log without") in words


def test_events_without_a_place_are_said_to_be_left_out() -> None:
    listed, open_list = (KeyList("country", ("FR",), other, False) for other in (False, True))
    assert left_out(declared_of()) == left_out(declared_of(keys=open_list)) == ""
    assert (
        left_out(declared_of(keys=listed)) == "Events whose country is not one of its keys are not counted."
    )
    assert left_out(declared_of(keys=listed, amounts=AMOUNTS)) == (
        "Events whose country is not one of its keys or without a number in amount are not counted."
    )
    assert left_out(USERS) == "Events without a user in id are not counted."


def test_number_and_list_that_an_event_needs_to_count_are_said() -> None:
    delay = Buckets("delay", Fraction(0), Fraction(9), 3)
    listed, open_list = (KeyList("country", ("FR",), other, False) for other in (False, True))
    fields = KeyList(fields=(KeyField("country", ("FR",), False), KeyField("device", ("tv",), False)))
    number = "with a number in amount"
    for declared, said in (
        (declared_of(keys=open_list), ""),
        (declared_of(value=delay), " with a number in delay"),
        (declared_of(amounts=AMOUNTS, keys=open_list), f" {number}"),
        (declared_of(keys=listed), " whose country is listed"),
        (declared_of(keys=fields), " whose country and device are listed"),
        (declared_of(keys=listed, amounts=AMOUNTS), f" {number}, whose country is listed"),
        (
            declared_of(keys=listed, amounts=AMOUNTS, where=WHERE),
            f" {number}, whose country is listed, {SAID}",
        ),
    ):
        assert meaning_of(declared).counts == f"Counts events{said}."
        assert range_in_words(declared, 2) == f"events{said}"
        assert meaning_of(declared).noun == ("counted events" if said else "events")


def test_cap_and_users_say_which_events_count_at_all() -> None:
    keys = KeyList("country", ("FR",), False, False)
    capped = declared_of(user=PerUser("id", 50), keys=keys, amounts=AMOUNTS)
    words = "events with a number in amount, whose country is listed"
    assert meaning_of(capped).counts.endswith(f"do not count. Only {words} count.")
    assert range_in_words(capped, 1).startswith(f"counted {words} (at most 50")
    users = declared_of(user=PerUser("id", 1), count="users", keys=keys)
    by = "by events whose country is listed"
    assert range_in_words(users, 1).startswith(f"users first seen in this range {by}, which")
    assert epoch_in_words(users, "noon") == f"users first seen since noon {by}, each counted once"


def test_sum_says_the_list_of_keys_and_not_that_it_needs_a_number() -> None:
    keys = KeyList("country", ("FR",), False, False)
    assert amounts_in_words(declared_of(keys=keys, amounts=AMOUNTS)) == (
        "sum of amount, each clamped to 0 to 1,500 and rounded to 0.01, of events whose country is listed"
    )


def test_what_is_counted_is_in_the_declared_text_only_if_it_is_not_events() -> None:
    assert "count" not in declared_of().plain()
    assert USERS.plain()["count"] == "users"
    assert Declaration.of(USERS.plain()) == USERS


def test_condition_is_said_with_and_without_a_cap_and_for_users() -> None:
    plain = declared_of(where=WHERE)
    assert meaning_of(plain).counts == f"Counts events {SAID}."
    assert meaning_of(plain).warning == meaning_of(plain).counts
    assert range_in_words(plain, 2) == f"events {SAID}"
    capped = declared_of(where=WHERE, user=PerUser("id", 50))
    assert meaning_of(capped).counts.startswith("Counts at most 50 events per user and epoch")
    assert meaning_of(capped).counts.endswith(f" Only events {SAID} count.")
    assert range_in_words(capped, 1).startswith(f"counted events {SAID} (at most 50")
    users = declared_of(where=WHERE, user=PerUser("id", 1), count="users")
    assert meaning_of(users).counts.endswith(f" Only events {SAID} count.")
    assert range_in_words(users, 1).startswith(f"users first seen in this range by events {SAID}, which is")


def test_long_condition_is_named_by_its_fields() -> None:
    declared = declared_of(where=OneOf("country", tuple(f"c{n}" for n in range(1_000))))
    assert meaning_of(declared).counts == "Counts events that match a condition on country."


def test_sums_and_means_say_what_clamping_and_rounding_do_and_which_events_they_are_of() -> None:
    plain = declared_of(amounts=AMOUNTS)
    assert amounts_in_words(plain) == "sum of amount, each clamped to 0 to 1,500 and rounded to 0.01"
    meaning = meaning_of_amounts(plain, "mean")
    assert meaning.noun == "mean of amount"
    assert meaning.counts == "The mean of amount, each clamped to 0 to 1,500 and rounded to 0.01."
    assert "not of the amounts as recorded" in meaning.intervals
    assert "halfway between two multiples of" in meaning.intervals
    capped = declared_of(amounts=AMOUNTS, where=WHERE, user=PerUser("id", 5))
    cap = "of at most 5 per user and epoch, earliest bins first"
    assert amounts_in_words(capped).endswith(f"of events {SAID}, {cap}")
