"""Answer questions about privacy and about alerts. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from stream_app.api import schemas
from stream_app.api.answers.ranges import released
from stream_app.core.answers.query import StreamView
from stream_app.core.budget import one_more_in_words
from stream_app.core.costs import unit_of
from stream_app.core.instants import format_instant, period_in_words
from stream_app.core.ledger import by_visitors_days, own_unit, statement
from stream_app.core.promise import (
    LARGEST_EXPONENT,
    Statement,
    delta_in_words,
    from_even_odds,
    in_words,
    neighbouring_in_words,
    signed_in_words,
)
from stream_app.core.records import LedgerEntry

PROTECTED = [
    "Whether any one event happened: everything shown changes these odds by at most the factor below.",
    "Against everybody who reads this, whatever else they know and however long they watch.",
    "Quiet times: bins close by the clock, and an empty bin is released like any other.",
]
NOT_PROTECTED = [
    "A person with many events: with k events ",
    "What many events have in common: totals and trends are shown here.",
    "That the stream exists, how long its bins are and how it is configured.",
    "Events from anyone who can read the worker's machine: it holds exact counts of open bins.",
]
PROTECTED_USERS = [
    "Whether any one user was there: everything shown changes these odds by at most the factor below.",
    *PROTECTED[1:],
]
OWN_USERS = (
    "Whether any one user was there: what this stream alone shows changes these odds by at most the factor "
    "of its own promise above."
)
NOT_PROTECTED_USERS = [
    "A user for ever: each epoch costs its epsilon again, and the stated sum is over all epochs.",
    "People with several user names: with k names ",
    *NOT_PROTECTED[1:],
]


def privacy(
    view: StreamView, ledger: Sequence[LedgerEntry], may_read: Callable[[str], bool] = lambda _stream: True
) -> schemas.PrivacyAnswer:
    """Return the stream's privacy statement: what is protected, and how strongly.

    Args: ledger, of the stream's source; may_read, says whether the reader may see a stream's name.
    """
    ledger = by_visitors_days(view.declared, ledger)
    design, source = view.strategy.time, view.labels.source(view.strategy.source)
    stated = replace(statement(view.strategy.source, ledger), source=source)
    private, per_user = view.declared.privacy.private and stated.private, view.declared.privacy.per_user
    has_odds = stated.delta is None and stated.epsilon < LARGEST_EXPONENT
    unit = own_unit(view.declared)
    # The source's unit is the event if another stream protects only events, or other users.
    has_own = private and per_user is not None and stated.unit == "event"
    # Epochs add up for users, also where they do not for the events of the source.
    entries = [one for one in ledger if one.base == view.name] if has_own else ledger
    own = replace(statement(view.strategy.source, entries), source=source) if has_own else None
    lines = [*([_own_users(own)] if own else []), *protected(stated)]
    next_epoch = one_more_in_words(view.strategy.source, entries, view.strategy.stream)
    return schemas.PrivacyAnswer(
        **released(view) | {"private": private},
        epsilon=in_words(view.strategy.epsilon),
        delta=None if view.strategy.delta is None else delta_in_words(view.strategy.delta),
        unit=unit,
        per=None if view.declared.period is None else period_in_words(view.declared.period),
        max_events=None if per_user is None else per_user.caps.l1,
        max_keys=None if per_user is None else per_user.max_keys,
        max_per_key=None if per_user is None else per_user.max_per_key,
        neighbours=design.neighbours,
        neighbouring=stated.neighbouring,
        own_neighbouring=neighbouring_in_words(unit, design.neighbours),
        source=source,
        source_epsilon=in_words(stated.epsilon),
        source_delta=None if stated.delta is None else delta_in_words(stated.delta),
        composed=schemas.Composed(
            epsilon=in_words(stated.composed), delta=delta_in_words(stated.composed_delta)
        ),
        next_epoch=next_epoch if private and view.history is None else "",
        max_odds_factor=math.exp(stated.epsilon) if has_odds else None,
        total=_total(view),
        promise=stated.sentences()[0],
        own_promise=own.promise("anything that this stream shows") if own else "",
        also=stated.other_line if private else "",
        whole_user=(own or stated).whole_user_line if private else "",
        protected=[with_odds(line, stated) for line in lines] if private else [],
        not_protected=not_protected(stated) if private else ["Anybody: these values show every event."],
        ledger=[_ledger_row(view, entry, may_read(entry.stream)) for entry in ledger],
    )


def _own_users(own: Statement) -> str:
    """Return the protection by one stream, beside streams of another unit. Args: own, its own statement."""
    _, _, period = own.unit.partition(" per ")
    return OWN_USERS if not period else OWN_USERS.replace("any one user was there", _within(period))


def _within(period: str) -> str:
    return f"any one user was there within any one {period_in_words(period)}"


def protected(stated: Statement) -> list[str]:
    """Return the protected unit. A source has the unit event if another stream protects other users."""
    if stated.unit == "event":
        return PROTECTED
    _, _, period = stated.unit.partition(" per ")
    if not period:
        return PROTECTED_USERS
    return [PROTECTED_USERS[0].replace("any one user was there", _within(period)), *PROTECTED[1:]]


def with_odds(line: str, stated: Statement) -> str:
    """Return a line about odds; with a delta no factor alone bounds them, and the promise has the bound."""
    if stated.delta is None and stated.epsilon < LARGEST_EXPONENT and line.endswith("the factor below."):
        changed = from_even_odds(stated.epsilon)
        return f"{line} Someone who thought 50:50 could come to think at most {changed}."
    if stated.delta is None:
        return line
    return line.replace("at most the factor below", "no more than the promise above says")


def not_protected(stated: Statement) -> list[str]:
    """Return the sentences about limits of the protection."""
    signed = dict.fromkeys(signed_in_words(one.unit == "user") for one in stated.measurements if one.signed)
    return [*(f"Events that an engine counts otherwise. {said}" for said in signed), *_not_protected(stated)]


def _not_protected(stated: Statement) -> list[str]:
    if stated.unit == "event":
        return [NOT_PROTECTED[0] + stated.of_many("events"), *NOT_PROTECTED[1:]]
    users = [NOT_PROTECTED_USERS[0], NOT_PROTECTED_USERS[1] + stated.of_many("names"), *NOT_PROTECTED[1:]]
    _, _, period = stated.unit.partition(" per ")
    if not period:
        return users
    again = f"A user over time: each {period_in_words(period)} costs the epsilon again."
    return [f"{again} {stated.whole_user_line}", *users[1:]]


def _total(view: StreamView) -> schemas.TotalAnswer | None:
    total, left = view.labels.total, view.left
    if total is None or left is None:
        return None
    return schemas.TotalAnswer(
        epsilon=in_words(total.epsilon),
        delta=None if total.delta is None else delta_in_words(total.delta),
        per=total.per,
        epochs_left=left.epochs,
        until=format_instant(left.until_us),
        spent=left.is_spent,
        sentence=left.sentence(total),
    )


def _ledger_row(view: StreamView, entry: LedgerEntry, named: bool) -> schemas.LedgerRow:
    epochs = view.epochs if entry.stream == view.strategy.stream else ()
    ends = {epoch.record.epoch: epoch.record.end_reason for epoch in epochs}
    return schemas.LedgerRow(
        stream=entry.stream if named else "another stream",
        epoch=entry.epoch,
        start=format_instant(entry.start_us),
        end=format_instant(entry.end_us),
        epsilon=in_words(Fraction(entry.epsilon)),
        delta=None if entry.delta is None else delta_in_words(Fraction(entry.delta)),
        unit=unit_of(entry),
        private=entry.private,
        end_reason=ends.get(entry.epoch),
    )
