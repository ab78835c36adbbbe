"""The rules that hold at every instant of a schedule. A broken rule raises ``Broken`` with one line.

``History`` is everything that the store has accepted. It belongs to a backup: a restored store has the older
history. ``Watch`` is everything that anybody has ever seen. It is never restored, because people do not
forget.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from dphist.arrays import Int64Array
from dphist.tree.decoder import decode_noise
from dphist.tree.design import TreeDesign
from dphist.tree.shape import node_counts
from stream_app.core.counting.bins import next_public_instant_us
from stream_app.core.kinds.tables import OVER_EPOCHS, PUBLISHED, WINDOWS, node_table
from stream_app.core.records import GENESIS, EpochRecord, LedgerEntry
from stream_app.core.releases.tiles import TileGeometry
from stream_app.core.store_writes import Release
from stream_app.core.strategy import Strategy
from tests.simulator.given_noise import Draw, drawn_together, node_sums
from tests.simulator.recount import PartitionHistory

Counts = tuple[int, ...]


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass
class History:
    """Everything that the store has accepted in its current history. Restoring a backup restores it too."""

    partitions: dict[str, PartitionHistory] = field(default_factory=dict)
    sealed: dict[int, Counts] = field(default_factory=dict)  # exact counts of sealed bins that were read
    released: dict[int, int] = field(default_factory=dict)  # seq to bin
    epochs: list[EpochRecord] = field(default_factory=list)
    noisy: dict[int, Int64Array] = field(default_factory=dict)  # of approximate epochs: C x + z
    # Of a bin: the found keys when its users were chosen, and how often hidden keys had been halved.
    shown: dict[int, tuple[frozenset[str], int]] = field(default_factory=dict)

    def see_sealed(self, first_bin: int, counts: np.ndarray) -> None:
        """Keep the exact counts of sealed bins. If they are read again, they must be the same."""
        for offset, row in enumerate(counts.tolist()):
            known = self.sealed.setdefault(first_bin + offset, tuple(row))
            if known != tuple(row):
                raise Broken(f"sealed bin {first_bin + offset} changed from {known} to {tuple(row)}")

    def epoch_counts(self, epoch: EpochRecord, last_bin: int) -> np.ndarray:
        """Return the exact counts of an epoch's bins up to ``last_bin``, shape (bins, width)."""
        return np.array([self.sealed[bin] for bin in range(epoch.first_bin, last_bin + 1)], dtype=np.int64)


@dataclass
class Watch:
    """Everything public that was ever visible. No value may ever change."""

    rows: dict[int, bytes] = field(default_factory=dict)
    nodes: dict[tuple[int, str, int], Counts] = field(default_factory=dict)
    hashes: dict[tuple[int, str, int], str] = field(default_factory=dict)
    released_at_us: dict[int, int] = field(default_factory=dict)  # the last release of each row
    seen_at_us: dict[int, int] = field(default_factory=dict)
    used_draws: set[int] = field(default_factory=set)
    epoch_draws: dict[int, set[int]] = field(default_factory=dict)
    joined: bool = False  # a row's hash of a node is of several tables together

    def see_rows(self, rows: Iterable[tuple[int, bytes]], where: str) -> None:
        """Check published rows: each seq has one value, the chain is unbroken, each node has one value."""
        for seq, row in rows:
            known = self.rows.get(seq)
            if known == row:
                continue
            if known is not None:
                raise Broken(f"{where}: row {seq} has a second value; it was seen as {known!r}, now {row!r}")
            self.rows[seq] = bytes(row)
            fields = json.loads(row)
            if fields["seq"] != seq:
                raise Broken(f"{where}: row {seq} says it is {fields['seq']}")
            self._check_link(seq, fields, where)
            epoch, bin = fields["epoch"], fields["bin"]
            for level, index, values in fields["nodes"]:
                self.see_node(epoch, node_table(level), index, values, where)
            for level, index, digest in fields.get("node_hashes", []):
                table = f"all of {node_table(level)}" if self.joined else node_table(level)
                self.see_hash((epoch, table, index), digest, where)
            for level, index, values in fields.get("over_epochs", []):
                self.see_node(epoch, f"{OVER_EPOCHS} {level}", index, values, where)
            for index, digest in fields.get("windows", []):
                self.see_hash((epoch, WINDOWS, index), digest, where)
            if "columns_hash" in fields:
                table = f"all of {PUBLISHED}" if self.joined else PUBLISHED
                self.see_hash((epoch, table, bin), fields["columns_hash"], where)
            else:
                self.see_node(epoch, PUBLISHED, bin, fields["published"], where)

    def see_node(self, epoch: int, table: str, index: int, values: Iterable[int], where: str) -> None:
        """Check that a node never gets a second value."""
        key, found = (epoch, table, index), tuple(values)
        self.see_hash(key, hashlib.sha256(np.array(found, "<i8").tobytes()).hexdigest(), where)
        known = self.nodes.setdefault(key, found)
        if known != found:
            raise Broken(f"{where}: node {key} has a second value {found}; it was seen as {known}")

    def see_hash(self, key: tuple[int, str, int], digest: str, where: str) -> None:
        """Keep a hash. It may appear before the numbers from which it was made."""
        if self.hashes.setdefault(key, digest) != digest:
            raise Broken(f"{where}: node {key} has a second value, of another hash")

    def see_visible(self, seqs: Iterable[int], now_us: int, publish_every_us: int) -> None:
        """Note when rows first became visible: never before the first public instant after their release."""
        for seq in seqs:
            if seq in self.seen_at_us:
                continue
            released_us = self.released_at_us[seq]
            instant_us = next_public_instant_us(released_us, publish_every_us)
            if now_us < instant_us:
                raise Broken(
                    f"row {seq} was released at {released_us} us and seen at {now_us} us, before the public "
                    f"instant {instant_us} us"
                )
            self.seen_at_us[seq] = now_us

    def _check_link(self, seq: int, fields: Mapping[str, Any], where: str) -> None:
        before = self.rows.get(seq - 1)
        previous = GENESIS if seq == 1 else None if before is None else row_hash(before)
        if previous is not None and fields["prev"] != previous:
            raise Broken(f"{where}: row {seq} does not follow row {seq - 1}: the chain is broken")
        if before is not None and fields["bin"] != (last_bin := json.loads(before)["bin"]) + 1:
            raise Broken(f"{where}: row {seq} is of bin {fields['bin']}, after bin {last_bin}")


def row_hash(row: bytes) -> str:
    """Return a row's hash, which the next row contains."""
    return hashlib.sha256(row).hexdigest()


def released_columns(release: Release, tables: Mapping[str, int]) -> dict[tuple[str, int], Int64Array]:
    """Return the rows of tables that a release appends to tiles, by table and index.

    Args: tables, the width of each.
    """
    found: dict[tuple[str, int], Int64Array] = {}
    for tile in release.tiles:
        width = tables[tile.key.table]
        geometry = TileGeometry(width)
        assert geometry.cells_per_tile == width, "these streams are narrow: a tile holds whole rows"
        first = tile.key.row_block * geometry.rows_per_tile + tile.offset_bytes // (8 * width)
        for index, row in enumerate(np.frombuffer(tile.data, "<i8").reshape(-1, width), start=first):
            found[tile.key.table, index] = row.astype(np.int64)
    return found


def groups_of(strategy: Strategy) -> list[tuple[TreeDesign, slice]]:
    """Return the groups of columns that share a tree over time, in the order in which noise is drawn."""
    if strategy.kind.product is None:
        return [(strategy.design, slice(0, strategy.kind.tables[PUBLISHED]))]
    return [(group.design, group.columns) for group in strategy.kind.product.groups]


def columns_of(strategy: Strategy, counts: Int64Array) -> Int64Array:
    """Return the exact counts of columns, shape (bins, columns), from the counts of cells."""
    if strategy.kind.windows is not None:
        return np.asarray(counts.sum(axis=1, keepdims=True))
    return counts if strategy.kind.product is None else strategy.kind.product.columns_of(counts)


def check_noise(
    release: Release, history: History, strategy: Strategy, draws: list[Draw], used: set[int]
) -> None:
    """Check that each released value is its exact sum plus one whole, unused draw at the right scale.

    Grey box: the check knows the exact counts and every draw. A released value minus its exact sum must be
    noise of exactly that level's scale, drawn once and not used for another value.
    """
    counts = columns_of(strategy, history.epoch_counts(history.epochs[-1], release.last_bin))
    sums = node_sums(strategy.design.shape, counts)
    residues: dict[int, list[Int64Array]] = {}
    for (table, index), values in released_columns(release, strategy.kind.tables).items():
        if table not in (PUBLISHED, WINDOWS, OVER_EPOCHS):
            level = int(table)
            residues.setdefault(level, []).append(values - sums[level, index])
    for level, noise in residues.items():
        for design, columns in groups_of(strategy):
            scale = design.scales[level - 1]
            if not use_draw(scale, np.array(noise)[:, columns], draws, used):
                raise Broken(
                    f"bins {release.first_bin} to {release.last_bin}: level {level} is not its exact counts "
                    f"plus one unused draw of scale {float(scale):.4g}"
                )


def check_drawn_ahead(
    release: Release, history: History, strategy: Strategy, draws: list[Draw], kept: dict[int, set[int]]
) -> None:
    """Check that all released values of an epoch are exact sums plus the noise of one drawing.

    A drawing is a run of draws, group after group, each for all nodes of a level that have the same scale.
    ``kept`` holds, per epoch, the drawings that fit all releases so far. At least one drawing must remain
    that fits no other epoch.
    """
    epoch, groups = history.epochs[-1], groups_of(strategy)
    counts = columns_of(strategy, history.epoch_counts(epoch, release.last_bin))
    sums, totals = node_sums(strategy.design.shape, counts), counts.cumsum(axis=0)
    released = released_columns(release, strategy.kind.tables)
    scales = [call.scale for design, _ in groups for call in drawn_together(design)]

    def could_be(start: int) -> bool:
        for design, columns in groups:
            drawing = [
                np.zeros((count, columns.stop - columns.start), np.int64)
                for count in node_counts(design.shape, design.horizon)
            ]
            measured = set()
            for call in drawn_together(design):
                nodes = drawing[call.level - 1][call.nodes]
                if nodes.shape != draws[start].values.shape:
                    return False  # drawn for other settings
                drawing[call.level - 1][call.nodes] = draws[start].values
                measured |= {(call.level, node) for node in call.nodes}
                start += 1
            errors = decode_noise(design, drawing)
            for (table, index), row in released.items():
                if table in (WINDOWS, OVER_EPOCHS):
                    continue
                if table == PUBLISHED:
                    held, noise = totals[index][columns] << 16, errors[index]
                else:
                    held, noise = sums[int(table), index][columns], drawing[int(table) - 1][index]
                    held = held * ((int(table), index) in measured)
                if (held + noise).tolist() != row[columns].tolist():
                    return False
        return True

    starts = (
        start
        for start in range(len(draws) - len(scales) + 1)
        if [draw.scale for draw in draws[start : start + len(scales)]] == scales
    )
    elsewhere = {
        next(iter(ones)) for number, ones in kept.items() if number != epoch.epoch and len(ones) == 1
    }
    known = kept.get(epoch.epoch, set(starts))
    kept[epoch.epoch] = {start for start in known - elsewhere if could_be(start)}
    if not kept[epoch.epoch]:
        raise Broken(
            f"bins {release.first_bin} to {release.last_bin}: not their exact counts plus the noise that was "
            f"drawn for epoch {epoch.epoch}"
        )


def check_windows(
    release: Release, history: History, strategy: Strategy, draws: list[Draw], used: set[int]
) -> None:
    """Check that each window's histogram is its exact counts plus one unused draw of its scale."""
    design = strategy.kind.windows
    if design is None:
        return
    counts = history.epoch_counts(history.epochs[-1], release.last_bin)
    for (table, index), row in released_columns(release, strategy.kind.tables).items():
        if table != WINDOWS:
            continue
        exact = counts[index * design.bins : (index + 1) * design.bins].sum(axis=0)
        noise = row - (exact << 16)
        for histogram in noise.reshape(design.histograms, design.buckets):
            if (histogram % 2**16).any() or not use_draw(1 / design.epsilon, histogram >> 16, draws, used):
                raise Broken(f"window {index} is not its exact counts plus one unused draw of its scale")


def check_over_epochs(
    release: Release, history: History, strategy: Strategy, draws: list[Draw], used: set[int]
) -> None:
    """Check that a node over epochs is the count of consecutive complete epochs plus one unused draw."""
    levels = strategy.kind.levels
    if levels is None:
        return
    row = released_columns(release, strategy.kind.tables).get((OVER_EPOCHS, 0))
    if row is None:
        return
    bins = strategy.design.horizon
    for level in levels.completed(int(row[0])):
        epochs = history.epochs[-levels.widths[level] :]
        ends = [epoch.first_bin + bins - 1 for epoch in epochs]
        overlap = any(end >= epoch.first_bin for end, epoch in zip(ends, epochs[1:], strict=False))
        if len(epochs) < levels.widths[level] or overlap:
            raise Broken(f"a node over {levels.widths[level]} epochs counts one that is not complete")
        pairs = zip(epochs, ends, strict=True)
        exact = sum(int(history.epoch_counts(epoch, end).sum()) for epoch, end in pairs)
        noise = np.array([row[level + 1] - exact])
        if not use_draw(Fraction(levels.scales[level]), noise, draws, used):
            raise Broken(
                f"a node over {levels.widths[level]} epochs is not its exact count plus one unused draw"
            )


def use_draw(scale: Fraction, noise: Int64Array, draws: list[Draw], used: set[int]) -> bool:
    """Mark an unused draw as used that has this scale and these values; return whether there is one."""
    flat = noise.reshape(-1).tolist()
    for number in range(len(draws) - 1, -1, -1):
        draw = draws[number]
        if number not in used and draw.scale == scale and draw.values.reshape(-1).tolist() == flat:
            used.add(number)
            return True
    return False


def check_ledger(entries: Iterable[LedgerEntry], epoch: EpochRecord, first_us: int, last_us: int) -> None:
    """Check that the ledger had the epoch, the period and the strategy before a release."""
    for entry in entries:
        if entry.epoch == epoch.epoch and entry.strategy_hash == epoch.strategy_hash:
            if entry.start_us <= first_us and last_us <= entry.end_us:
                return
            raise Broken(f"epoch {epoch.epoch} released a bin outside its ledger entry's period")
    raise Broken(f"epoch {epoch.epoch} released a bin without a ledger entry")
