"""Which rows and epochs are visible, compared with a definition that goes bin by bin."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dphist.tree.shape import TreeShape
from stream_app.core.answers.visible import visible_bins, visible_epochs, visible_rows
from stream_app.core.kinds.tables import PUBLISHED, node_table
from stream_app.core.records import EpochRecord
from tests.stream_app.declared import design_of, strategy_of
from tests.stream_app.product_stream import product_strategy

SHAPE = TreeShape((3, 2, 2))
STRATEGY = strategy_of(design_of(SHAPE.branching))
OPEN = EpochRecord(epoch=0, first_bin=100, bins=12, first_seq=5, strategy_hash="0" * 64)


def ended(released: int) -> EpochRecord:
    return replace(OPEN, last_bin=OPEN.first_bin + released - 1, end_reason="operator")


@given(released=st.none() | st.integers(0, 12), seq=st.integers(0, 40))
def test_rows_are_the_complete_nodes_of_visible_bins(released: int | None, seq: int) -> None:
    epoch = OPEN if released is None else ended(released)
    may_release = range(OPEN.bins if released is None else released)
    bins = [bin for bin in may_release if epoch.first_seq + bin <= seq]
    assert visible_bins(epoch, seq) == visible_rows(STRATEGY, epoch, seq, PUBLISHED) == len(bins)
    for level in SHAPE.levels:
        complete = [
            index
            for index in range(SHAPE.capacity // SHAPE.widths[level])
            if set(SHAPE.span(level, index)) <= set(bins)
        ]
        assert visible_rows(STRATEGY, epoch, seq, node_table(level)) == len(complete)


def test_an_anticipating_stream_over_axes_has_rows_and_no_nodes() -> None:
    strategy = product_strategy(release="anticipating")
    assert visible_rows(strategy, OPEN, 8, PUBLISHED) == 4
    assert [visible_rows(strategy, OPEN, 8, node_table(level)) for level in strategy.design.shape.levels] == [
        0,
        0,
    ]
    causal = product_strategy(release="causal")
    assert [visible_rows(causal, OPEN, 8, node_table(level)) for level in causal.design.shape.levels] == [
        1,
        4,
    ]


@given(released=st.integers(0, 12), seq=st.integers(0, 40))
def test_early_end_of_an_epoch_becomes_visible_with_its_last_bin(released: int, seq: int) -> None:
    following = replace(OPEN, epoch=1, first_bin=200, first_seq=OPEN.first_seq + released)
    shown = visible_epochs([ended(released), following], seq)
    assert [e.epoch for e in shown] == [e.epoch for e in (OPEN, following) if e.first_seq <= seq + 1]
    if shown:
        assert (shown[0].end_reason is not None) == (seq >= OPEN.first_seq + released - 1)
    # Before its end is visible, an epoch looks to readers as if it continued.
    if seq < OPEN.first_seq + released - 1:
        assert shown == visible_epochs([OPEN], seq)
