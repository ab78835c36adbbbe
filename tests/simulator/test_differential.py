"""One more hostile record changes no other cell, no other refusal and no public instant."""

from __future__ import annotations

import pytest

from tests.simulator.cap_mutants import FirstApplied
from tests.simulator.counting_mutants import LettersOfUnmatched
from tests.simulator.differential import FORMS, draw_differential, tried
from tests.simulator.hostile import UNSEEN, Form, Hostile
from tests.simulator.hostile_mutants import (
    AbsenceIsRemembered,
    CutsWaitForReads,
    FutureHoldsThePosition,
)
from tests.simulator.observer import Observer
from tests.simulator.pipeline import Pipeline

pytestmark = pytest.mark.slow

FUTURE = (Hostile.FUTURE_A_LITTLE, Hostile.FUTURE_YEAR, Hostile.FUTURE_9999)


@pytest.mark.parametrize("seed", range(len(FORMS)))
def test_a_hostile_record_changes_nothing_else(seed: int) -> None:
    assert tried(seed) == []


def test_every_kind_is_met() -> None:
    assert {kind for form in FORMS for kind in form.kinds()} == set(Hostile)
    assert {draw_differential(seed)[1] for seed in range(len(FORMS))} == set(FORMS)


# The kinds of record that must catch the mutant, and words of the message.
CAUGHT = [
    (AbsenceIsRemembered, Form(avro=True), (Hostile.EARLY_SCHEMA,), "cells of others differ"),
    (FutureHoldsThePosition, Form(), FUTURE, "visible at other instants"),
    (LettersOfUnmatched, Form(where=True, max_events=4), tuple(UNSEEN), "is counted or refused"),
    (CutsWaitForReads, Form(avro=True), (Hostile.SLOW_LOOK_UP,), "cells of others differ"),
]


@pytest.mark.parametrize(
    ("mutant", "form", "kinds", "words"), CAUGHT, ids=lambda part: getattr(part, "__name__", "")
)
def test_the_comparison_alone_catches(
    mutant: type[Pipeline],
    form: Form,
    kinds: tuple[Hostile, ...],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The comparison of two logs alone finds the mutant; the recount is switched off."""
    monkeypatch.setattr(Observer, "check_end", _check_nothing)
    heard = []
    for seed in range(FORMS.index(form), 60, 4):
        found = tried(seed, kinds, mutant(), form)
        if any(words in line for line in found):
            return
        heard += found
    raise AssertionError(f"{mutant.__name__} lived through all seeds; heard {heard[:3]}")


def test_the_recount_of_both_logs_catches_a_cap_that_is_filled_in_order_of_application() -> None:
    found = tried(FORMS.index(Form(max_events=4)), [Hostile.ORDINARY], FirstApplied())
    assert "the log and its cuts give" in found[0]


async def _check_nothing(observer: Observer) -> None:
    """Skip the check."""
