"""What must hold at every instant of a schedule. A broken rule raises ``Broken`` with one readable line.

``History`` is what the store has accepted (part of a backup: a restored store has the older history).
``Watch`` is what anybody outside has ever seen (never restored: people do not forget).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from dphist.tree.decoder import decode_noise
from stream_app.core.records import GENESIS, EpochRecord, LedgerEntry, Release
from stream_app.core.strategy import Strategy
from tests.simulator.given_noise import Draw, node_sums
from tests.simulator.recount import PartitionHistory

Counts = tuple[int, ...]


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass
class History:
    """What one timeline of the store has accepted, as the harness saw it happen."""

    partitions: dict[str, PartitionHistory] = field(default_factory=dict)
    sealed: dict[int, Counts] = field(default_factory=dict)  # exact counts of sealed bins, once read
    released: dict[int, int] = field(default_factory=dict)  # seq to bin
    epochs: list[EpochRecord] = field(default_factory=list)

    def see_sealed(self, first_bin: int, counts: np.ndarray) -> None:
        """Keep the exact counts of sealed bins: a second reading must be the same."""
        for offset, row in enumerate(counts.tolist()):
            known = self.sealed.setdefault(first_bin + offset, tuple(row))
            if known != tuple(row):
                raise Broken(f"sealed bin {first_bin + offset} changed from {known} to {tuple(row)}")

    def epoch_counts(self, epoch: EpochRecord, last_bin: int) -> np.ndarray:
        """Return the exact counts of an epoch's bins up to ``last_bin``, shape (bins, width)."""
        return np.array([self.sealed[bin] for bin in range(epoch.first_bin, last_bin + 1)], dtype=np.int64)


@dataclass
class Watch:
    """Everything public that anybody ever saw: each value must be the only one for ever."""

    rows: dict[int, bytes] = field(default_factory=dict)
    nodes: dict[tuple[int, int, int], Counts] = field(default_factory=dict)
    seen_at_us: dict[int, int] = field(default_factory=dict)
    used_draws: set[int] = field(default_factory=set)
    epoch_draws: dict[int, set[int]] = field(default_factory=dict)

    def see_rows(self, rows: Iterable[tuple[int, bytes]], where: str) -> None:
        """Look at published rows: one value a seq, the chain unbroken, one value a node."""
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
            for level, index, values in fields["nodes"]:
                self.see_node(fields["epoch"], level, index, values, where)

    def see_node(self, epoch: int, level: int, index: int, values: Iterable[int], where: str) -> None:
        """Look at one node."""
        key, found = (epoch, level, index), tuple(values)
        known = self.nodes.setdefault(key, found)
        if known != found:
            raise Broken(f"{where}: node {key} has a second value {found}; it was seen as {known}")

    def see_visible(self, seqs: Iterable[int], now_us: int) -> None:
        """Note when rows were first visible."""
        for seq in seqs:
            self.seen_at_us.setdefault(seq, now_us)

    def _check_link(self, seq: int, fields: Mapping[str, Any], where: str) -> None:
        before = self.rows.get(seq - 1)
        previous = GENESIS if seq == 1 else None if before is None else row_hash(before)
        if previous is not None and fields["prev"] != previous:
            raise Broken(f"{where}: row {seq} does not follow row {seq - 1}: the chain is broken")


def row_hash(row: bytes) -> str:
    """Return the hash that the next row names."""
    return hashlib.sha256(row).hexdigest()


def check_noise(
    release: Release, history: History, strategy: Strategy, draws: list[Draw], used: set[int]
) -> None:
    """Check where a release's values come from: exact sums plus one whole, unused draw at the right scale.

    Grey box: the harness knows the exact counts and every draw; what is left after taking the sums away
    must be noise of exactly that level's scale, drawn once and never used before.
    """
    epoch = history.epochs[-1]
    sums = node_sums(strategy.design.shape, history.epoch_counts(epoch, release.last_bin))
    residues: dict[int, list[list[int]]] = {}
    for row in release.rows:
        for level, index, values in json.loads(row)["nodes"]:
            exact = sums[level, index].tolist()
            residues.setdefault(level, []).append([v - x for v, x in zip(values, exact, strict=True)])
    for level, noise in residues.items():
        scale = strategy.design.scales[level - 1]
        if not _use_draw(scale, noise, draws, used):
            raise Broken(
                f"bins {release.first_bin} to {release.last_bin}: level {level} is not its exact counts "
                f"plus one unused draw of scale {float(scale):.4g}"
            )


def check_drawn_ahead(
    release: Release, history: History, strategy: Strategy, draws: list[Draw], kept: dict[int, set[int]]
) -> None:
    """Check that everything released is exact sums plus the noise of one drawing, the epoch's for ever.

    A drawing is one draw a level, root side first. ``kept`` says which drawings can be those of each epoch:
    each release leaves fewer, and there must be one that no other epoch has.
    """
    design, epoch = strategy.design, history.epochs[-1]
    counts = history.epoch_counts(epoch, release.last_bin)
    sums, totals = node_sums(design.shape, counts), counts.cumsum(axis=0)
    rows = [json.loads(row) for row in release.rows]

    def could_be(start: int) -> bool:
        drawing = [draw.values for draw in draws[start : start + design.shape.height]]
        for row in rows:
            for level, index, values in row["nodes"]:
                if (sums[level, index] + drawing[level - 1][index]).tolist() != values:
                    return False
        errors = decode_noise(design, drawing)
        bins = [row["bin"] - epoch.first_bin for row in rows]
        return all(
            ((totals[bin] << 16) + errors[bin]).tolist() == row["published"]
            for bin, row in zip(bins, rows, strict=True)
        )

    starts = (
        start
        for start in range(len(draws) - design.shape.height + 1)
        if tuple(draw.scale for draw in draws[start : start + design.shape.height]) == design.scales
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


def _use_draw(scale: Fraction, noise: list[list[int]], draws: list[Draw], used: set[int]) -> bool:
    flat = [value for row in noise for value in row]
    for number in range(len(draws) - 1, -1, -1):
        draw = draws[number]
        if number not in used and draw.scale == scale and draw.values.reshape(-1).tolist() == flat:
            used.add(number)
            return True
    return False


def check_ledger(entries: Iterable[LedgerEntry], epoch: EpochRecord, first_us: int, last_us: int) -> None:
    """Check that a released period was written into the ledger before: epoch, period and strategy."""
    for entry in entries:
        if entry.epoch == epoch.epoch and entry.strategy_hash == epoch.strategy_hash:
            if entry.start_us <= first_us and last_us <= entry.end_us:
                return
            raise Broken(f"epoch {epoch.epoch} released a bin outside its ledger entry's period")
    raise Broken(f"epoch {epoch.epoch} released a bin without a ledger entry")
