"""Keep copies of views in another process up to date."""

from __future__ import annotations

from dataclasses import dataclass

from dphist.arrays import Int64Array
from stream_app.core.answers.answered import Missing
from stream_app.core.answers.labels import Labels
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.visible import visible_bins
from stream_app.core.budget import Left
from stream_app.core.promise import Statement
from stream_app.core.records import PublicState


@dataclass(frozen=True, slots=True)
class Growth:
    """The rows and facts that a copy needs to equal its view.

    Args:
        whole: whether the copy begins empty.
        state: the view's state.
        statement: the privacy statement of the view's source; None if it is not known.
        labels: the words that the view's stream is shown with.
        left: the epochs that the stream's total still allows; None: it has no total.
        blocks: the rows that the copy lacks. They share the view's memory.
    """

    whole: bool
    state: PublicState
    statement: Statement | None
    labels: Labels
    left: Left | None
    blocks: tuple[tuple[Missing, Int64Array], ...]


def growth(view: StreamView, known: PublicState | None) -> Growth:
    """Return the state and rows that a copy lacks. Args: known, the copy's state; None: there is no copy.

    Cost: O(epochs), and nothing is copied.
    """
    held = {} if known is None else {one.epoch: one for one in known.epochs}
    blocks = list[tuple[Missing, Int64Array]]()
    for epoch in view.epochs:
        number, kind = epoch.record.epoch, view.kind_of(epoch.record)
        was = held.get(number)
        # An epoch that has found keys begins anew, with columns for them.
        same = known is not None and was is not None and was.found == epoch.record.found
        bins = visible_bins(was, known.visible_seq) if same and known and was else 0
        if epoch.bins == bins and same:
            continue
        for table in kind.tables:
            first = kind.rows_after(table, bins)
            rows = epoch.rows(table)[first:]
            if len(rows):
                blocks.append((Missing(number, table, first, len(rows)), rows))
    return Growth(known is None, view.shown, view.statement, view.labels, view.left, tuple(blocks))


def grown(copy: StreamView | None, growth: Growth) -> StreamView:
    """Add the growth to a copy and return it: it now equals its view. Args: copy, None if there is none."""
    if growth.whole or copy is None:
        copy = StreamView(growth.state.strategy, growth.state.earlier)
    if copy.shown != growth.state:
        copy.extend(growth.state, growth.blocks)
    copy.statement, copy.labels, copy.left = growth.statement, growth.labels, growth.left
    return copy
