"""Turns exact counts of sealed bins into a release: noisy nodes, chain rows, tiles, the counter's new state.

Exact counts enter here and leave as nodes with noise, or inside the secret snapshot. A row is the message of
one bin: every output repeats its bytes, and each row holds the hash of the row before. Of a stream with a sum
it also says the running sum of the amounts, computed from the noisy columns that are released with it. A
causal stream publishes no column's running count, so this is the only place with its sum as first published.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dphist.arrays import Int64Array
from dphist.noise import NoiseSource
from dphist.product.columns import ColumnSum
from dphist.product.sums import sum_columns
from dphist.tree.anticipating import BinsNoise
from dphist.units import UNITS_PER_COUNT
from stream_app.core.epochs import FoundKeys
from stream_app.core.instants import format_instant
from stream_app.core.kinds import Kind
from stream_app.core.kinds.errors import CONFIDENCE, RowError
from stream_app.core.kinds.tables import Closed, Named
from stream_app.core.meaning import amounts_in_words, epoch_in_words, meaning_of
from stream_app.core.records import StreamState
from stream_app.core.releases.row_values import settings_in_row
from stream_app.core.releases.tiles import tile_appends
from stream_app.core.segments.strategies import before_change, by_hash
from stream_app.core.store_writes import Release
from stream_app.core.strategy import Strategy, canonical_json

BLOCK_BINS = 64  # the errors of rows are computed for this many bins at once


def row_hash(row: bytes) -> str:
    """Return the hash by which the next row of the chain refers to this row."""
    return hashlib.sha256(row).hexdigest()


@dataclass(frozen=True, slots=True)
class RowLink:
    """A row's place in its chain: everything needed to continue the chain after it."""

    seq: int
    epoch: int
    bin: int
    prev: str
    hash: str

    @classmethod
    def of(cls, row: bytes) -> RowLink:
        message = json.loads(row)
        return cls(message["seq"], message["epoch"], message["bin"], message["prev"], row_hash(row))


def make_release(
    state: StreamState,
    strategy: Strategy,
    counts: Int64Array,
    noise: NoiseSource,
    nonce: str,
    ahead: BinsNoise | None = None,
    named: Named | None = None,
) -> Release:
    """Return the release of the next sealed bins of the running epoch, with noise added.

    Guarantee: the releases of one epoch together are epsilon-DP as the kind states, provided that the store
        accepts only one release after each head and no part of a refused release is ever shown.
    Args:
        state: the state to continue from, with the counter after ``released_bin``.
        counts: exact counts of the bins after ``released_bin``, shape (bins, width). SECRET.
        noise: the source for noise that is drawn as bins close.
        nonce: identifies this attempt, so that its rows differ from the rows of any other. SECRET: it would
            reveal which bins were released together, and so how fast their events were read.
        ahead: the noise drawn for exactly these bins before the epoch, if the kind draws ahead.
        named: the keys that the last of these bins names; None: the stream finds no keys.
    Raises: ValueError for bins beyond the epoch. The message never shows a count.
    Cost: if causal, one call of the noise source per level; about 200 microseconds per bin for its row.
    """
    strategy = strategy.with_found(state.epoch)
    if named is None:
        closed = strategy.kind.close(state.counter, counts, noise, ahead)
    else:
        closed = strategy.kind.close_naming(state.counter, counts, noise, named)
    first_bin, epoch = state.released_bin + 1, state.epoch.epoch
    last_bin = first_bin + len(closed) - 1
    rows = list(_chained(state, strategy, closed, nonce))
    blocks = (tile_appends(epoch, block.table, block.first, block.values) for block in closed.blocks)
    return Release(
        strategy_hash=strategy.hash,
        epoch=epoch,
        expected_seq=state.seq,
        expected_head=state.head,
        first_bin=first_bin,
        last_bin=last_bin,
        rows=rows,
        head=row_hash(rows[-1]),
        tiles=[tile for tiles in blocks for tile in tiles],
        counter=closed.state,
        found=_found(state, closed, last_bin),
    )


def _found(state: StreamState, closed: Closed, last_bin: int) -> FoundKeys | None:
    """Return the keys that the last bin shows for the first time; None if it changes nothing about keys."""
    thinned = closed.thinned if closed.thinned > state.epoch.thinned else 0
    return FoundKeys(last_bin, closed.found, thinned) if closed.found or thinned else None


def _chained(state: StreamState, strategy: Strategy, closed: Closed, nonce: str) -> Iterator[bytes]:
    """Yield the rows of these bins, each with the hash of the row before."""
    declared, prev = strategy.declared, state.head
    begins = state.released_bin + 1 == state.epoch.first_bin
    settings = settings_in_row(state.strategy) if begins else {}
    if begins and state.epoch.changed_from is not None:
        settings["changed"] = before_change(by_hash(state.texts)[state.epoch.changed_from], strategy)
    meaning = meaning_of(declared)
    words = {} if meaning.plain else {"meaning": meaning.counts}
    binning = declared.time.binning
    if declared.count == "users":
        began = format_instant(binning.start_us(state.epoch.first_bin))
        words["counted"] = epoch_in_words(declared, began)
    errors = row_errors(strategy, closed.first_bin, len(closed))
    sums: list[dict[str, object]] = []
    if row_columns(strategy) is not None:
        sums = row_sums(strategy, closed, row_errors(strategy, closed.first_bin, len(closed), of_sums=True))
    for position, (variance, half_width) in enumerate(errors):
        bin, seq = state.released_bin + 1 + position, state.seq + 1 + position
        estimate = (closed.running[position] / UNITS_PER_COUNT).tolist()
        message = {
            "v": 1,
            "seq": seq,
            "stream": strategy.stream,
            "epoch": state.epoch.epoch,
            "bin": bin,
            "start": format_instant(binning.start_us(bin)),
            "end": format_instant(binning.end_us(bin)),
            "estimate": estimate,
            "variance": variance,
            "interval": [interval(value, variance, half_width) for value in estimate],
            "confidence": CONFIDENCE,
            "not_private": not declared.privacy.private,  # of this stream; the ledger covers the whole source
            "published": closed.running[position].tolist(),
            **strategy.kind.row_part(closed, position),
            **words,
            **({"sum": sums[position]} if sums else {}),
            **(settings if position == 0 else {}),
            **(_of_keys(state, closed) if position == len(closed) - 1 else {}),
            "strategy": strategy.hash,
            "prev": prev,
            "nonce": _row_nonce(nonce, seq),
        }
        row = canonical_json(message)
        prev = row_hash(row)
        yield row


def _of_keys(state: StreamState, closed: Closed) -> dict[str, object]:
    """Return the fields of a row about hidden keys, and about keys that earlier epochs found."""
    said: dict[str, object] = {}
    if state.released_bin + 1 == state.epoch.first_bin and state.epoch.listed:
        said["listed"] = [list(one) for one in state.epoch.listed]
    if closed.thinned > state.epoch.thinned:
        said["thinned"] = closed.thinned
    return said


def _row_nonce(attempt: str, seq: int) -> str:
    """Return a row's nonce, derived from the attempt's; it does not reveal which rows share an attempt."""
    return hashlib.sha256(f"{attempt}:{seq}".encode()).hexdigest()[:32]


def row_errors(strategy: Strategy, first_bin: int, bins: int, of_sums: bool = False) -> list[RowError]:
    """Return variance and half width, in counts, of the first published total after each bin of an epoch.

    Args: of_sums, for the running sum instead, in units of the amount.
    Cost: 20 ms for each block of bins that was not asked for before.
    """
    stop = first_bin + bins
    blocks = range(first_bin // BLOCK_BINS, (stop - 1) // BLOCK_BINS + 1)
    columns = row_columns(strategy) if of_sums else None
    errors = [error for block in blocks for error in errors_of_block(strategy.kind, block, columns)]
    before = blocks.start * BLOCK_BINS
    return errors[first_bin - before : stop - before]


@lru_cache(maxsize=512)  # streams of one kind of release share it
def errors_of_block(kind: Kind, index: int, columns: ColumnSum | None) -> tuple[RowError, ...]:
    first = index * BLOCK_BINS
    bins = np.arange(first, min(first + BLOCK_BINS, kind.design.horizon))
    return tuple(kind.row_errors(bins) if columns is None else kind.column_errors(bins, columns))


def row_columns(strategy: Strategy) -> ColumnSum | None:
    """Return the sum of all amounts as a sum of columns, in units; None for a stream without a sum."""
    amounts, axes = strategy.declared.amounts, strategy.kind.axes
    return None if amounts is None or axes is None else _of_all_keys(axes, amounts.range)


_of_all_keys = lru_cache(maxsize=64)(sum_columns)


def row_sums(strategy: Strategy, closed: Closed, errors: list[RowError]) -> list[dict[str, object]]:
    """Return, for each closed bin, its running sum since the start of the epoch, with its error.

    Guarantee: post-processing of the released columns.
    Args: strategy, of a stream with a sum; errors, variance and half width in units, one per bin.
    """
    amounts, columns = strategy.declared.amounts, row_columns(strategy)
    assert amounts is not None
    assert columns is not None
    assert closed.columns is not None
    units = np.rint(closed.columns @ columns.weights) / UNITS_PER_COUNT
    said = {"field": amounts.field, "counted": amounts_in_words(strategy.declared)}
    return [
        said | _with_error(value, variance, half_width, amounts.unit)
        for value, (variance, half_width) in zip(units.tolist(), errors, strict=True)
    ]


def _with_error(units: float, variance: float, half_width: float, unit: Fraction) -> dict[str, object]:
    ends = interval(units, variance, half_width)
    return {
        "estimate": _times(units, unit),
        "variance": variance * float(unit) ** 2,
        "interval": [_times(end, unit) for end in ends],
    }


def interval(value: float, variance: float, half_width: float) -> list[float]:
    """Return both ends; without noise they are the value, if it is whole: ``half_width`` is then rounding."""
    known = variance == 0.0 and value.is_integer() and half_width < 0.5
    return [value, value] if known else [value - half_width, value + half_width]


def _times(units: float, unit: Fraction) -> float:
    return units * unit.numerator / unit.denominator
