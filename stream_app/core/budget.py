"""The cost of further epochs of a stream, and how many of them its total allows."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from stream_app.core.costs import Cost
from stream_app.core.instants import format_instant, period_in_words
from stream_app.core.ledger import next_entry, of_one_unit, statement
from stream_app.core.promise import Statement, promise_in_words
from stream_app.core.records import LedgerEntry
from stream_app.core.segments.names import base_of

_EPOCHS_AHEAD = (2, 12, 100)
MOST_FORESEEN = 1_000  # epochs of all streams over a source together


@dataclass(frozen=True, slots=True)
class Total:
    """The most that all epochs together may cost; an epoch that would exceed it is never opened.

    Args: delta, None: the sum of epsilons counts; per, whether every stream over the source counts, or this
        stream alone, in all of its segments.
    """

    epsilon: Fraction
    delta: Fraction | None = None
    per: Literal["source", "stream"] = "source"

    def allows(self, stream: str, entries: Iterable[LedgerEntry]) -> bool:
        """Return whether these entries of a stream's source are within the total."""
        return all(cost.is_within(self.epsilon, self.delta) for cost in self.costs(stream, entries))

    def costs(self, stream: str, entries: Iterable[LedgerEntry]) -> list[Cost]:
        """Return the cost of these entries: together, and each unit apart if there are several.

        The promise about all streams may be for one event, in which a user's epochs do not add up. The total
        holds for the user, too.
        """
        base = base_of(stream)
        counted = [entry for entry in entries if self.per == "source" or entry.base == base]
        parts = [counted, *of_one_unit(counted)] if counted else []
        return [statement(part[0].source, part).cost for part in parts]

    @property
    def words(self) -> str:
        """The total as every surface writes it."""
        of = "the source" if self.per == "source" else "the stream"
        return f"the total of {promise_in_words(self.epsilon, self.delta)} for {of}"


@dataclass(frozen=True, slots=True)
class Left:
    """The epochs that a total still allows a stream, if all streams over its source that have no end go on.

    Args:
        epochs: how many may follow the last one in the ledger; None: any number.
        until_us: the end of the last of them, or of the last one in the ledger.
        is_spent: whether the next epoch would exceed the total now, whatever other streams do.
        more: whether more may follow than were looked at.
    """

    epochs: int | None
    until_us: int
    is_spent: bool = False
    more: bool = False

    def sentence(self, total: Total) -> str:
        """Return how many epochs are left, as a sentence."""
        until = format_instant(self.until_us)
        if self.epochs is None:
            return f"Within {total.words}, any number of epochs may follow."
        if self.is_spent:
            return f"Nothing is counted from {until} on: one more epoch would exceed {total.words}."
        if self.epochs == 0:
            return f"No epoch is expected after {until}: other streams will have used up {total.words}."
        number = "1 epoch" if self.epochs == 1 else f"{self.epochs:,} epochs"
        return f"Within {total.words}, {'at least ' if self.more else ''}{number} may follow, until {until}."


def left(total: Total, entries: Sequence[LedgerEntry], stream: str) -> Left | None:
    """Return the epochs that a total allows after a stream's last one; None before its first, or at its end.

    Cost: about ten statements of the ledger.
    """
    following = next_entry(entries, stream)
    if following is None:
        return None
    future = list(_future(entries))
    # If some epochs are within the total, so are fewer.
    allowed = bisect(
        range(1, len(future) + 1),
        False,
        key=lambda number: not total.allows(stream, [*entries, *future[:number]]),
    )
    if allowed == len(future) and total.costs(stream, [*entries, *future]) == total.costs(stream, entries):
        return Left(None, following.start_us)
    own = [entry for entry in future[:allowed] if entry.stream == stream]
    return Left(
        epochs=len(own),
        until_us=own[-1].end_us if own else following.start_us,
        is_spent=not own and not total.allows(stream, [*entries, following]),
        more=allowed == MOST_FORESEEN,
    )


def _future(entries: Sequence[LedgerEntry]) -> Iterator[LedgerEntry]:
    """Yield the epochs that a ledger's streams open if all of them go on, in the order of their starts."""
    following = {stream: next_entry(entries, stream) for stream in {entry.stream for entry in entries}}
    for _ in range(MOST_FORESEEN):
        open_ones = [entry for entry in following.values() if entry is not None]
        if not open_ones:
            return
        first = min(open_ones, key=lambda entry: (entry.start_us, entry.stream))
        yield first
        following[first.stream] = next_entry([first], first.stream)


def one_more_in_words(source: str, entries: Sequence[LedgerEntry], stream: str) -> str:
    """Return the source's cost with one more epoch of a stream, as a sentence; empty if no more comes."""
    following = next_entry(entries, stream)
    if following is None:
        return ""
    now, then = statement(source, entries), statement(source, [*entries, following])
    if then.cost == now.cost:
        what = "an event" if following.per is None else f"a {period_in_words(following.per)} of a user"
        return f"One more epoch of this stream adds nothing: {what} is in one epoch only."
    return f"One more epoch of this stream makes {_both_lines(then)}."


def over_epochs_in_words(first: LedgerEntry) -> str:
    """Return the cost of several epochs of a stream, as a sentence; empty if their costs do not add up."""
    costs = [f"{number} epochs cost {_both_lines(stated)}" for number, stated in over_epochs(first)]
    return f"{first.stream}: for a user, {'; '.join(costs)}." if costs else ""


def over_epochs(first: LedgerEntry) -> Iterator[tuple[int, Statement]]:
    """Yield numbers of epochs, each with a user's cost in all of them; nothing if the costs do not add up."""
    for number in _EPOCHS_AHEAD if _add_up(first) else ():
        epochs = [replace(first, epoch=epoch) for epoch in range(number)]
        yield number, statement(first.source, epochs)


def _add_up(first: LedgerEntry) -> bool:
    return first.unit == "user" and first.per is None and first.private


def until_now_in_words(first: LedgerEntry, now_us: int, total: Total | None = None) -> str:
    """Return the cost of a stream's epochs from its start until now, as a sentence; empty for one epoch.

    Args: first, the entry of the stream's first epoch; total, the largest cost of its epochs together.
    """
    end_us = now_us if first.until_us is None else min(now_us, first.until_us)
    number = -(-(end_us - first.start_us) // (first.end_us - first.start_us))
    if number < 2 or not _add_up(first):
        return ""
    stated = statement(first.source, [replace(first, epoch=epoch) for epoch in range(number)])
    ends = "; " + total.words + " ends the stream earlier" if total and stated.epsilon > total.epsilon else ""
    begin = f"from {format_instant(first.start_us)} until now are {number:,} epochs"
    return f"{first.stream}: {begin}; for a user they cost {_both_lines(stated)}{ends}."


def _both_lines(stated: Statement) -> str:
    """Return the sum, and beside it the composed cost if that has a smaller epsilon."""
    summed = promise_in_words(stated.epsilon, stated.delta)
    if stated.composed >= stated.epsilon:
        return summed
    return f"{summed} as a sum and {promise_in_words(stated.composed, stated.composed_delta)} composed"
