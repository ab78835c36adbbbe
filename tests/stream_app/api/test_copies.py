"""For every kind of release, a copy of a view that receives the missing rows shows the same as the view."""

from __future__ import annotations

import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dphist.noise import SeededNoise
from stream_app.api.admission.apart import grown, growth
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.visible import visible_epochs
from stream_app.core.costs import Cost
from stream_app.core.kinds.kind import Kind
from stream_app.core.ledger import statement
from stream_app.core.promise import Statement
from stream_app.core.records import PublicState
from tests.contracts.kinds import BINS, KINDS
from tests.contracts.test_kinds import every_kind, registered, strategy_of, two_epochs

SEQS = (0, 1, 5, 5, BINS, BINS + 1, 2 * BINS - 1, 2 * BINS)

__all__ = ["registered"]


def grow(view: StreamView, whole: StreamView, state: PublicState) -> None:
    """Bring a view to a state. The rows come from another view, which has all of them."""
    epochs = {epoch.record.epoch: epoch for epoch in whole.epochs}
    wanted = view.missing(state)
    view.extend(
        state, [(w, epochs[w.epoch].rows(w.table)[w.first : w.first + w.rows].copy()) for w in wanted]
    )


def sent(copy: StreamView | None, view: StreamView, known: PublicState | None) -> StreamView:
    """Return the copy after it has received its missing rows as bytes, as from another process."""
    return grown(copy, pickle.loads(pickle.dumps(growth(view, known))))


def same(copy: StreamView, view: StreamView) -> bool:
    """Return whether a copy holds exactly the rows of the view."""
    tables = view.strategy.kind.tables
    pairs = list(zip(copy.epochs, view.epochs, strict=True))
    return copy.shown == view.shown and all(
        np.array_equal(one.rows(table), other.rows(table)) for one, other in pairs for table in tables
    )


@every_kind
@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("asked_at", [SEQS, SEQS[3:], SEQS[-1:], SEQS[::3]], ids=str)
def test_copy_equals_its_view_after_each_growth(kind: Kind, asked_at: tuple[int, ...]) -> None:
    strategy = strategy_of(kind)
    whole = two_epochs(kind, SeededNoise(3), strategy)
    view, copy, known = StreamView(strategy.to_json()), None, None
    for seq in SEQS:
        grow(view, whole, PublicState(strategy.to_json(), visible_epochs(whole.shown.epochs, seq), seq))
        if seq in asked_at:
            copy = sent(copy, view, known)
            known = view.shown
            assert same(copy, view)


@every_kind
@pytest.mark.usefixtures("registered")
def test_growth_holds_only_what_the_copy_lacks(kind: Kind) -> None:
    whole = two_epochs(kind, SeededNoise(3), strategy_of(kind))
    assert growth(whole, whole.shown).blocks == ()
    before = replace(whole.shown, visible_seq=2 * BINS - 1)
    rows = {missing.table: len(values) for missing, values in growth(whole, before).blocks}
    assert rows == {
        table: grown_by
        for table in kind.tables
        if (grown_by := kind.rows_after(table, BINS) - kind.rows_after(table, BINS - 1))
    }


def test_copy_has_the_current_privacy_statement() -> None:
    kind = KINDS["tree anticipating"]
    view = two_epochs(kind, SeededNoise(3), strategy_of(kind))
    view.statement = statement("file:a", ())
    copy = sent(None, view, None)
    assert copy.private == view.private is True
    bare = Statement("file:a", "event", "add-remove", Cost(Fraction(100)), False, ())
    view.statement = bare
    copy = sent(copy, view, view.shown)
    assert (copy.statement, copy.private) == (bare, False)


def test_copy_learns_the_early_end_of_an_epoch() -> None:
    kind = KINDS["tree anticipating"]
    whole = two_epochs(kind, SeededNoise(3), strategy_of(kind))
    view = StreamView(whole.shown.strategy)
    first, _ = whole.shown.epochs
    grow(view, whole, PublicState(whole.shown.strategy, (first,), 3))
    copy = sent(None, view, None)
    known = view.shown
    ended = replace(first, last_bin=first.first_bin + 2, end_reason="store_lost")
    grow(view, whole, PublicState(whole.shown.strategy, (ended,), 3))
    assert same(sent(copy, view, known), view)
