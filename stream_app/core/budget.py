"""What more epochs of a stream would cost, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stream_app.core.ledger import Statement, next_entry, promise_in_words, statement
from stream_app.core.periods import period_in_words
from stream_app.core.records import LedgerEntry

_EPOCHS_AHEAD = (2, 12, 100)


def one_more_in_words(source: str, entries: Sequence[LedgerEntry], stream: str) -> str:
    """Return what one more epoch of a stream makes of the source's cost; empty if no more comes."""
    following = next_entry(entries, stream)
    if following is None:
        return ""
    now, then = statement(source, entries), statement(source, [*entries, following])
    if then.cost == now.cost:
        what = "an event" if following.per is None else f"a {period_in_words(following.per)} of a user"
        return f"One more epoch of this stream adds nothing: {what} is in one epoch only."
    return f"One more epoch of this stream makes {_both_lines(then)}."


def over_epochs_in_words(first: LedgerEntry) -> str:
    """Return what a stream's epochs cost together as they add up; empty if they do not."""
    if first.unit != "user" or first.per is not None or not first.private:
        return ""
    costs = []
    for number in _EPOCHS_AHEAD:
        epochs = [replace(first, epoch=epoch) for epoch in range(number)]
        costs.append(f"{number} epochs cost {_both_lines(statement(first.source, epochs))}")
    return f"{first.stream}: for a user, {'; '.join(costs)}."


def _both_lines(stated: Statement) -> str:
    composed = promise_in_words(stated.composed, stated.composed_delta)
    return f"{promise_in_words(stated.epsilon, stated.delta)} as a sum and {composed} composed"
