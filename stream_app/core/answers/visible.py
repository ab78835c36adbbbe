"""The part of a stream that readers may know: a pure function of the visible seq and of public facts.

Bounds of epochs are public. The early end of an epoch is public once its last bin is visible; before that it
would reveal that rows were released. The same holds for another strategy, which an epoch begins.
``MemoryReader`` and ``RedisReader`` both use these functions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import is_

from stream_app.core.answers.answered import Missing
from stream_app.core.records import EpochRecord, History, PublicState, Trimmed
from stream_app.core.releases.tiles import TileGeometry, TileSlice
from stream_app.core.segments.strategies import by_hash, read_strategies, strategy_of, with_strategy
from stream_app.core.strategy import Strategy


def visible_bins(epoch: EpochRecord, visible_seq: int) -> int:
    """Return how many bins of an epoch are visible."""
    return min(max(visible_seq - epoch.first_seq + 1, 0), epoch.final_bin - epoch.first_bin + 1)


def public_state(
    text: bytes,
    epochs: Sequence[EpochRecord],
    visible_seq: int,
    history: History | None,
    trimmed: Trimmed,
    halted: bool = False,
) -> PublicState:
    """Return the state of a stream that readers may know. Args: text, as stored; epochs, all of them.

    The strategy is the last visible epoch's: a change of settings is public with the epoch that it begins.
    """
    texts, shown = read_strategies(text), visible_epochs(epochs, visible_seq)
    seen = texts[-1:]
    if len(texts) > 1:
        text_of = {strategy.hash: text for text, strategy in zip(texts, by_hash(texts).values(), strict=True)}
        seen = ()
        for epoch in shown:
            seen = with_strategy(seen, text_of[epoch.strategy_hash])
    *earlier, current = seen
    return PublicState(current, shown, visible_seq, history, tuple(earlier), trimmed, halted)


def visible_epochs(epochs: Sequence[EpochRecord], visible_seq: int) -> tuple[EpochRecord, ...]:
    """Return the epochs as a reader may see them. Args: epochs, in order.

    Only the last ones are looked at: an epoch whose rows are all visible comes after others like it. The
    same tuple comes back if all of it is shown as it is, so that readers notice it without comparing.
    """
    settled = len(epochs)
    while settled and not _is_settled(epochs[settled - 1], visible_seq):
        settled -= 1
    last = [_shown(epoch, visible_seq) for epoch in epochs[settled:] if epoch.first_seq <= visible_seq + 1]
    if settled + len(last) == len(epochs) and all(map(is_, last, epochs[settled:])):
        return tuple(epochs)
    return (*epochs[:settled], *last)


def _is_settled(epoch: EpochRecord, visible_seq: int) -> bool:
    return epoch.is_over and epoch.final_seq <= visible_seq


def _shown(epoch: EpochRecord, visible_seq: int) -> EpochRecord:
    last_visible = epoch.first_bin + visible_seq - epoch.first_seq
    if epoch.found and epoch.found[-1].bin > last_visible:
        epoch = replace(epoch, found=tuple(one for one in epoch.found if one.bin <= last_visible))
    if epoch.last_bin is None or epoch.final_seq <= visible_seq:
        return epoch
    return epoch.as_begun()


def visible_rows(strategy: Strategy, epoch: EpochRecord, visible_seq: int, table: str) -> int:
    """Return how many rows of a table a reader may see: only rows of complete nodes.

    A table that the stream does not have is empty. Args: strategy, of the epoch.
    """
    kind = strategy.kind
    return kind.rows_after(table, visible_bins(epoch, visible_seq)) if table in kind.tables else 0


def invisible_slices(
    texts: tuple[bytes, ...], epochs: Iterable[EpochRecord], released_bin: int, visible_seq: int
) -> list[TileSlice]:
    """Return the tile slices with rows released but not visible; each slice reaches to its tile's end.

    Args: texts, of all strategies of the stream; all its epochs; the last released bin.
    """
    slices: list[TileSlice] = []
    for epoch in epochs:
        released = min(released_bin, epoch.final_bin) - epoch.first_bin + 1
        visible = visible_bins(epoch, visible_seq)
        if released <= visible:
            continue
        kind = strategy_of(texts, epoch).kind
        for table, width in kind.tables.items():
            shown, held = (kind.rows_after(table, bins) for bins in (visible, released))
            slices += TileGeometry(width).slices(epoch.epoch, table, shown, held - shown)
    return slices


def check_kept(state: PublicState, want: Missing) -> None:
    """Check that retention has not removed an epoch that a reader knew. Raises: ConnectionError."""
    if want.epoch <= state.trimmed.epoch:
        raise ConnectionError(f"epoch {want.epoch} left the store meanwhile; read the stream again")


def epoch_of(state: PublicState, number: int) -> EpochRecord | None:
    """Return an epoch by its number; None if readers may not see it, or it has left."""
    place = bisect_left(state.epochs, number, key=lambda one: one.epoch)
    found = state.epochs[place : place + 1]
    return found[0] if found and found[0].epoch == number else None


def width_of(state: PublicState, want: Missing) -> int:
    """Return the width of ``want.table``, by the strategy of ``want.epoch``."""
    record = epoch_of(state, want.epoch)
    if record is None:
        raise LookupError(f"epoch {want.epoch} is not visible")
    return strategy_of(state.texts, record).kind.tables[want.table]
