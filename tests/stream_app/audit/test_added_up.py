"""The audit adds up a ledger again: no honest statement is refused, and none that is too small passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.audit.stored import check_source
from stream_app.core import costs
from stream_app.core.ledger import statement
from stream_app.core.promise import Statement
from stream_app.core.records import LedgerEntry

pytestmark = pytest.mark.slow

SOURCE, DAY = "file:a", 10


def epoch(stream: str, number: int = 0, **facts: Any) -> LedgerEntry:
    start, entry = DAY * number, LedgerEntry(SOURCE, stream, number, 0, 0, "1", "user", stream, user="who")
    return replace(entry, start_us=start, end_us=start + DAY, time="at s", **facts)


def approximate(stream: str, number: int = 0, **facts: Any) -> LedgerEntry:
    return epoch(stream, number, **({"delta": "1/1000000", "mu": "2367/10000"} | facts))


LEDGERS = {
    "users over epochs": [approximate("a", number) for number in range(12)],
    "pure epochs": [epoch("a", number, epsilon="1/10") for number in range(40)],
    "pure and approximate": [epoch("a"), approximate("b"), epoch("c", epsilon="1/3"), approximate("b", 1)],
    "events": [approximate("a", unit="event", user=None), epoch("b", 1, unit="event", user=None)],
    "events and users": [approximate("a"), epoch("b", unit="event", user=None)],
    "an epoch that ended early": [
        approximate("a"),
        replace(approximate("a", 1), start_us=4, end_us=DAY),
        epoch("b", unit="event", user=None),
    ],
    "replaced and added": [approximate("a", neighbours="substitute"), epoch("b")],
    "a user's day": [
        epoch("a", per="1d", period_us=0, periods=1),
        epoch("a", 1, per="1d", period_us=DAY, periods=1),
        replace(epoch("a", 2, per="1d", period_us=DAY, periods=1), start_us=DAY + 5),
    ],
    "settings that changed": [
        epoch("a", unit="event", user=None),
        epoch("a", 1, epsilon="2", unit="event", user=None, strategy_hash="new", changed_from="a"),
    ],
    "users' settings that changed": [
        epoch("a"),
        epoch("a", 1, epsilon="1/3", strategy_hash="new", changed_from="a"),
    ],
    "an epoch without mu": [epoch("a", delta="1/10000"), epoch("b")],
}


def passed(entries: Sequence[LedgerEntry]) -> list[bool | None]:
    return [check.passed for check in check_source(SOURCE, entries)]


@pytest.mark.parametrize("entries", LEDGERS.values(), ids=LEDGERS)
def test_honest_statement_passes(entries: Sequence[LedgerEntry]) -> None:
    assert passed(entries) == [True, True]


@given(
    st.lists(
        st.builds(
            lambda stream, number, kind, epsilon: (
                approximate(f"{kind}{stream}", number)
                if kind == "g"
                else epoch(f"{kind}{stream}{epsilon}", number, epsilon=epsilon)
                if kind == "p"
                else epoch(f"{kind}{stream}{epsilon}", number, epsilon=epsilon, unit="event", user=None)
            ),
            st.integers(0, 2),
            st.integers(0, 5),
            st.sampled_from("gpe"),
            st.sampled_from(["1", "1/3", "1/20", "3/2"]),
        ),
        min_size=1,
        max_size=12,
        unique_by=lambda entry: (entry.stream, entry.epoch),
    )
)
def test_no_honest_statement_is_refused(entries: list[LedgerEntry]) -> None:
    assert passed(entries) == [True, True]


def composed_lower(told: Statement) -> Statement:
    """State an epsilon that is 2 % too small, for the same delta."""
    small = told.composed * Fraction(98, 100)
    return _Stating(**{name: getattr(told, name) for name in Statement.__slots__}, small=small)


class _Stating(Statement):
    """A statement with another composed epsilon."""

    def __init__(self, small: Fraction, **facts: Any) -> None:
        super().__init__(**facts)
        object.__setattr__(self, "small", small)

    @property
    def composed(self) -> Fraction:
        """The epsilon that is stated."""
        small: Fraction = self.small  # type: ignore[attr-defined]
        return small


@pytest.mark.parametrize("name", [name for name in LEDGERS if name != "an epoch without mu"])
def test_composed_line_below_the_truth_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.audit.stored.statement", lambda *asked: composed_lower(statement(*asked)))
    assert passed(LEDGERS[name]) == [True, False]


def largest_only(cost: Any) -> Any:
    """Compose one epoch where all of them count."""
    return lambda epochs, unit, neighbours: cost(epochs[:1], unit, neighbours)


def not_doubled(cost: Any) -> Any:
    """Forget that a replaced event is two changes, and that an event can displace another one."""
    return lambda epochs, unit, neighbours: cost(epochs, epochs[0].unit, epochs[0].neighbours)


def smaller_mu(cost: Any) -> Any:
    """Compose with a mu that is 3 % too small."""

    def of(epochs: Any, unit: str, neighbours: str) -> Any:
        honest = cost(epochs, unit, neighbours)
        losses = replace(honest.losses, mu_squared=honest.losses.mu_squared * Fraction(94, 100))
        return replace(honest, losses=losses)

    return of


@pytest.mark.parametrize(
    ("mutant", "name", "found"),
    [
        (largest_only, "users over epochs", [False, False]),
        (largest_only, "an epoch that ended early", [False, False]),
        (not_doubled, "replaced and added", [False, False]),
        (not_doubled, "events and users", [False, False]),
        (smaller_mu, "users over epochs", [True, False]),
        (smaller_mu, "pure and approximate", [True, False]),
    ],
)
def test_mutant_of_the_ledger_is_caught(
    mutant: Callable[[Any], Any], name: str, found: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_app.core.ledger.cost_of", mutant(costs.cost_of))
    assert passed(LEDGERS[name]) == found


def test_promise_for_users_of_several_fields_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.core.ledger._count_same_users", lambda streams: True)
    assert passed([approximate("a"), approximate("b", user="account")]) == [False, False]
