"""The cost of a source: composition, refusals and words."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.ledger import ACCEPTED, check_measurement, in_words, measured_before, statement
from stream_app.core.records import LedgerEntry


def entry(
    stream: str = "s",
    epoch: int = 0,
    start_us: int = 0,
    end_us: int = 10,
    epsilon: str = "1/2",
    strategy: str = "h",
    unit: str = "event",
    neighbours: str = "add_remove",
) -> LedgerEntry:
    """Return an entry of one source."""
    return LedgerEntry(
        "file:a", stream, epoch, start_us, end_us, epsilon, unit, strategy, neighbours=neighbours
    )


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


def test_a_stream_measured_anew_under_another_strategy_adds_up() -> None:
    assert statement("file:a", [entry(), entry(strategy="other", epoch=1)]).epsilon == 1


def test_one_measurement_that_protects_nobody_taints_the_source() -> None:
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


@pytest.mark.parametrize("foreign", [{"source": "file:b"}, {"unit": "household"}])
def test_what_the_rules_do_not_cover_is_refused(foreign: dict[str, str]) -> None:
    facts = {"source": "file:a", "unit": "event"} | foreign
    with pytest.raises(ValueError, match="cannot be composed"):
        statement("file:a", [LedgerEntry(facts["source"], "s", 0, 0, 1, "1", facts["unit"], "h")])


@pytest.mark.parametrize(
    ("start_us", "end_us", "overlaps"), [(0, 10, True), (9, 20, True), (10, 20, False), (-5, 0, False)]
)
def test_periods_that_share_an_instant_are_measured_again(start_us: int, end_us: int, overlaps: bool) -> None:
    again = entry("t", start_us=start_us, end_us=end_us, strategy="i")
    assert bool(measured_before([entry()], again)) == overlaps


def test_epochs_of_one_stream_are_never_a_second_measurement() -> None:
    assert measured_before([entry()], entry(epoch=1, start_us=5, end_us=15)) == ()


def test_a_second_measurement_needs_words() -> None:
    again = entry("t", epsilon="1/4", strategy="i")
    with pytest.raises(ValueError, match=r'epsilon 0\.75.*accept: "measured again"'):
        check_measurement([entry()], again, accept=None)
    with pytest.raises(ValueError, match="already measured by s"):
        check_measurement([entry()], again, accept="yes")
    check_measurement([entry()], again, accept=ACCEPTED)
    check_measurement([entry()], entry("t", start_us=10, end_us=20, strategy="i"), accept=None)


def test_no_words_accept_a_sum_that_protects_nobody() -> None:
    again = entry("t", epsilon="19.6", strategy="i")
    with pytest.raises(ValueError, match=r"all together cost epsilon 20\.1, which protects nobody"):
        check_measurement([entry()], again, ACCEPTED)
    check_measurement([entry()], entry("t", epsilon="19.5", strategy="i"), ACCEPTED)


def test_for_users_epochs_add_up() -> None:
    epochs = [entry(epoch=n, start_us=10 * n, end_us=10 * n + 10, unit="user") for n in range(3)]
    told = statement("file:a", epochs)
    assert (told.unit, told.epsilon) == ("user", Fraction(3, 2))
    assert told.sentences()[0].startswith("Whether or not all events of any one user of file:a exist")
    assert "3 epochs, which add up for a user" in told.sentences()[1]


# An event under a cap can put another one of its user out; one that is replaced is one less and one more.
@pytest.mark.parametrize(
    ("other", "unit", "neighbours", "epsilon"),
    [
        (entry("t", strategy="i", unit="user"), "event", "add_remove", Fraction(3, 2)),
        (entry("t", strategy="i", neighbours="substitute"), "event", "substitute", Fraction(3, 2)),
        (entry("t", strategy="i", unit="user", neighbours="substitute"), "event", "substitute", Fraction(2)),
    ],
)
def test_units_and_neighbours_that_meet_cost_their_most(
    other: LedgerEntry, unit: str, neighbours: str, epsilon: Fraction
) -> None:
    told = statement("file:a", [entry(), other])
    assert (told.unit, told.neighbours, told.epsilon) == (unit, neighbours, epsilon)


def test_the_statement_names_sum_and_parts() -> None:
    told = statement("file:a", [entry(), entry("t", epsilon="1/3", strategy="i")]).sentences()
    assert "e^5/6" in told[0]
    assert ["Stream s spends epsilon 0.5" in told[1], "Stream t spends epsilon 1/3" in told[2]] == [
        True,
        True,
    ]
    assert statement("file:b", []).sentences() == ("Nothing has been measured in file:b.",)


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=10**9))
def test_epsilons_are_written_exactly(epsilon: Fraction) -> None:
    assert Fraction(in_words(epsilon)) == epsilon
