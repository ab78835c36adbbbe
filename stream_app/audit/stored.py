"""Offline: compares the stored data of a deployment piece by piece. It writes nothing.

The witness, the store, the ledgers and the configuration are four records of the same releases, kept apart.
Each check asks that two of them agree, or that one of them keeps the promise: no node has two values, and no
epoch costs more than its ledger entry says.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction

from dphist.arrays import Int64Array
from dphist.noise import checked_scale
from dphist.privacy import path_epsilon
from stream_app.audit.added_up import added_up, covers
from stream_app.audit.report import Check
from stream_app.config.facts import as_json
from stream_app.core.ledger import statement
from stream_app.core.promise import in_words, promise_in_words
from stream_app.core.records import GENESIS, EpochRecord, LedgerEntry, Trimmed, WitnessRow
from stream_app.core.releases.release import row_hash
from stream_app.core.releases.restored import WitnessedStream
from stream_app.core.releases.tiles import tile_appends
from stream_app.core.segments.edges import differences, may_change
from stream_app.core.segments.visible_costs import ledger_entry
from stream_app.core.store_writes import TileKey
from stream_app.core.strategy import Strategy

PART = "stored"
_ROUNDING = 1e-6  # of the floats with which a delta is computed again


@dataclass(frozen=True, slots=True)
class Stored:
    """Everything that a deployment has stored about one stream."""

    configured: object  # the strategy's declared facts by the configuration, as plain JSON values
    strategy: Strategy  # as the store has it
    epochs: Sequence[EpochRecord]
    rows: Sequence[tuple[int, bytes]]  # the chain in the store, visible or not
    visible_seq: int  # how many of the rows readers see
    tables: dict[tuple[int, str], Int64Array]  # the visible rows of each table, by epoch and name
    witness: Sequence[WitnessRow]  # every record of the witness, in the order in which it was written
    # the entries of the source; outside is None without a ledger outside the store
    ledger: Sequence[LedgerEntry]
    outside: Sequence[LedgerEntry] | None
    earlier: tuple[Strategy, ...] = ()  # in use before the stream's settings changed
    trimmed: Trimmed = field(default_factory=Trimmed)  # what retention removed from the store

    @property
    def removed(self) -> list[tuple[int, bytes]]:
        """The rows that retention removed from the store, from the witness, which keeps them."""
        return sorted({seq: row for seq, row, _ in self.witness if seq <= self.trimmed.seq}.items())

    def strategies(self) -> dict[str, Strategy]:
        """Return the stream's strategies by hash; those of removed epochs come from the witness."""
        kept = {one.hash: one for one in (*self.earlier, self.strategy)}
        if not self.trimmed:
            return kept
        try:
            return {**self.witnessed().strategies, **kept}
        except ValueError:
            return kept  # then the rows of others are faults

    def witnessed(self) -> WitnessedStream:
        """Return the stream by its witness. Raises: ValueError if it has rows of another strategy."""
        rows = sorted({row.seq: row for row in self.witness}.values(), key=lambda row: row.seq)
        return WitnessedStream.of(rows, (*self.earlier, self.strategy))


def check_stored(stored: Stored) -> Iterator[Check]:
    """Yield every check of one stream."""
    name = stored.strategy.stream

    def check(asked: str, faults: list[str], found: str) -> Check:
        said = "; ".join(faults[:3]) + (f"; and {len(faults) - 3} more" if len(faults) > 3 else "")
        return Check(PART, name, asked, not faults, said if faults else found)

    rows, released = len(stored.rows), len(stored.witness)
    yield check(
        "The chain has no gap, and each row holds the hash of the row before",
        list(_chain_faults(stored)),
        f"{rows:,} rows",
    )
    yield check(
        "No bin was released twice, and no row was ever witnessed with another content",
        list(_repeated(stored)),
        f"{released:,} witnessed rows",
    )
    yield check(
        "What readers see is in the witness, byte for byte",
        list(_unwitnessed(stored)),
        f"{stored.visible_seq:,} visible rows",
    )
    yield check(
        "Every published value follows from the witnessed rows",
        list(_other_values(stored)),
        f"{sum(table.size for table in stored.tables.values()):,} values of {len(stored.tables)} tables",
    )
    yield check(
        "Each epoch is in the ledger, with its cost",
        list(_unrecorded(stored)),
        f"{len(stored.epochs)} epochs of epsilon {in_words(stored.strategy.epsilon)}",
    )
    drawn = [(one, _spent(one)) for one in (*stored.earlier, stored.strategy)]
    yield check(
        "The noise is large enough for the stated epsilon",
        [f"the scales cost {spent}" for one, spent in drawn if spent > one.epsilon],
        ", ".join(f"the scales cost {float(spent):.12g} of {in_words(one.epsilon)}" for one, spent in drawn),
    )
    changed = {
        fact: f"{fact} was {as_json(then)} and is {as_json(now)}"
        for fact, then, now in differences(stored.strategy.declared.plain(), stored.configured)
    }
    following = {fact: said for fact, said in changed.items() if may_change(fact, stored.strategy.declared)}
    yield check(
        "The configuration is the one with which the stream runs, or may follow it",
        [said for fact, said in changed.items() if fact not in following],
        f"with the next segment: {'; '.join(following.values())}" if following else "no fact differs",
    )


def check_source(source: str, entries: Sequence[LedgerEntry]) -> Iterator[Check]:
    """Check both lines of a source's promise: add up its entries again, without the ledger's own code."""
    stated = statement(source, entries)
    again = added_up(stated, entries)
    yield Check(
        PART,
        source,
        "The stated total is at least the sum over the ledger's entries",
        covers(stated, entries) and stated.epsilon >= again.epsilon,
        f"stated {in_words(stated.epsilon)} for a unit of one {stated.unit}, added up again "
        f"{in_words(again.epsilon)}, {len(entries)} entries",
    )
    needed = again.least_delta(float(stated.composed))
    yield Check(
        PART,
        source,
        "All releases together keep the stated (epsilon, delta)",
        covers(stated, entries) and needed <= float(stated.composed_delta) * (1 + _ROUNDING),
        f"stated {promise_in_words(stated.composed, stated.composed_delta)}; composed again, epsilon "
        f"{in_words(stated.composed)} needs a delta of {needed:.4g}",
    )


def _chain_faults(stored: Stored) -> Iterator[str]:
    removed, trimmed, last = stored.removed, stored.trimmed, None
    strategies = stored.strategies()
    rows = [*removed, *stored.rows]
    prev, first = trimmed.hash, trimmed.seq + 1
    # A witness that was lost, too, begins with a later row than the stream.
    begun: Sequence[tuple[int, bytes]] = removed
    if not trimmed and stored.rows[:1] == sorted((row.seq, row.row) for row in stored.witness)[:1]:
        begun = stored.rows[:1]  # the store was lost afterwards, and has what this witness had
    if begun:
        first, prev = begun[0][0], json.loads(begun[0][1])["prev"]
    if first == 1:
        prev = GENESIS
    for expected, (seq, row) in enumerate(rows, start=first):
        message = json.loads(row)
        if seq != expected or message["seq"] != seq:
            yield f"row {expected} has the number {message['seq']}"
        if message["prev"] != prev:
            yield f"row {seq} does not follow row {seq - 1}"
        if message["strategy"] not in strategies:
            yield f"row {seq} is of another strategy"
        place = message["epoch"], message["bin"]
        if last is not None and not (place == (last[0], last[1] + 1) or place[0] > last[0]):
            yield f"row {seq} is bin {place[1]} of epoch {place[0]}, after bin {last[1]} of epoch {last[0]}"
        prev, last = row_hash(row), place
        if seq == trimmed.seq and prev != trimmed.hash:
            yield f"row {seq} of the witness is not the one that retention removed"


def _repeated(stored: Stored) -> Iterator[str]:
    bins = Counter(json.loads(row)["bin"] for _, row in (*stored.removed, *stored.rows))
    for bin, times in bins.items():
        if times > 1:
            yield f"bin {bin} was released {times} times"
    contents: dict[int, bytes] = {}
    for seq, row, values in stored.witness:
        if contents.setdefault(seq, row + b"\t" + values) != row + b"\t" + values:
            yield f"row {seq} was witnessed with two contents"


def _unwitnessed(stored: Stored) -> Iterator[str]:
    witnessed = {seq: row for seq, row, _ in stored.witness}
    for seq, row in stored.rows:
        if seq in witnessed and witnessed[seq] != row:
            yield f"row {seq} differs from the witness"
        if seq not in witnessed and seq <= stored.visible_seq:
            yield f"row {seq} is visible and not witnessed"


def _other_values(stored: Stored) -> Iterator[str]:
    if not stored.witness:
        return
    try:
        rebuilt = _tiles_of_witness(stored)
    except ValueError as refusal:
        yield str(refusal)
        return
    for (epoch, name), table in stored.tables.items():
        for tile in tile_appends(epoch, name, 0, table):
            if not rebuilt.get(tile.key, b"").startswith(tile.data):
                rows = tile.key.row_block
                yield f"table {name} of epoch {epoch} differs from the witness, in block {rows}"


def _tiles_of_witness(stored: Stored) -> dict[TileKey, bytes]:
    tiles: dict[TileKey, bytearray] = {}
    for step in stored.witnessed().restored(0, stored.strategy.hash):
        for tile in step.tiles:
            tiles.setdefault(tile.key, bytearray()).extend(tile.data)
    return {key: bytes(data) for key, data in tiles.items()}


def _unrecorded(stored: Stored) -> Iterator[str]:
    strategy, strategies = stored.strategy, stored.strategies()
    left = _epochs_that_left(stored, strategies)
    ledgers = {"the ledger": stored.ledger}
    if stored.outside is not None:
        ledgers["the ledger outside the store"] = stored.outside
    for where, entries in ledgers.items():
        own = {entry.epoch: entry for entry in entries if entry.stream == strategy.stream}
        for record in stored.epochs:
            entry = own.get(record.epoch)
            if entry is None:
                yield f"epoch {record.epoch} is not in {where}"
            else:
                own_strategy = strategies.get(record.strategy_hash, strategy)
                yield from entry_faults(entry, ledger_entry(own_strategy, record), where)
        for record in left:
            if (entry := own.get(record.epoch)) is None:
                yield f"epoch {record.epoch}, which left the store, is not in {where}"
            else:
                right = ledger_entry(strategies[record.strategy_hash], record)
                # A change may have shortened the epoch, which rows do not show.
                yield from entry_faults(entry, replace(right, periods=entry.periods), where)


def _epochs_that_left(stored: Stored, strategies: dict[str, Strategy]) -> list[EpochRecord]:
    """Return the epochs that retention removed from the store, as far as the witness knows them."""
    known = [WitnessRow(seq, row) for seq, row in stored.removed if json.loads(row)["strategy"] in strategies]
    return WitnessedStream(known, strategies).epochs


def entry_faults(entry: LedgerEntry, right: LedgerEntry, where: str) -> Iterator[str]:
    """Yield each fact in which an entry differs from its epoch."""
    for fact in fields(LedgerEntry):
        found, expected = getattr(entry, fact.name), getattr(right, fact.name)
        unknown = found is None and fact.name in _NEWER  # to older versions
        if fact.name == "time" and found is not None:
            unknown = str(expected).startswith(f"{found} ")  # they did not write the zone
        if fact.name not in _OTHERWISE_KNOWN and found != expected and not unknown:
            yield f"epoch {entry.epoch} is in {where} with {fact.name} {found}, not {expected}"


# A group's ledger names its log; a worker may have lost an entry, or its epoch may have ended early.
_OTHERWISE_KNOWN = {"source", "log", "lost", "end_us"}
_NEWER = {"user", "time"}


def _spent(strategy: Strategy) -> Fraction:
    """Return the epsilon that a unit costs at the scales with which noise is really drawn."""
    if strategy.kind.tree_design is None:
        return strategy.epsilon  # an approximate strategy is read only if its noise is certified for epsilon
    product = strategy.kind.product
    designs = [strategy.design] if product is None else [group.design for group in product.groups]
    levels, window = strategy.kind.levels, strategy.kind.windows
    beside = Fraction(0) if window is None else window.epsilon * strategy.design.sensitivity
    if levels is not None:
        scales = [Fraction(checked_scale(scale)) for scale in levels.scales]
        beside = path_epsilon(scales, strategy.design.sensitivity)
    drawn = ([Fraction(checked_scale(scale)) for scale in design.scales] for design in designs)
    return sum(
        (path_epsilon(scales, design.sensitivity) for scales, design in zip(drawn, designs, strict=True)),
        beside,
    )
