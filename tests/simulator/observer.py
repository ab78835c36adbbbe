"""Checks everything that changed, after each effect on the store, the witness or the dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from stream_app.core.kinds.tables import PUBLISHED
from stream_app.core.kinds.toeplitz import Toeplitz
from stream_app.core.records import (
    Cut,
    EpochRecord,
    LateEvents,
    Reply,
    StreamState,
    WitnessRow,
)
from stream_app.core.releases.row_values import unpacked
from stream_app.core.store_writes import Apply, PartitionCuts, Release
from stream_app.core.strategy import Strategy
from tests.simulator.approximate import check_charge, check_gaussian
from tests.simulator.checks import (
    Broken,
    History,
    Watch,
    check_drawn_ahead,
    check_ledger,
    check_noise,
    check_over_epochs,
    check_windows,
    row_hash,
)
from tests.simulator.conditions import matches
from tests.simulator.given_noise import Draw
from tests.simulator.on_time import check_on_time
from tests.simulator.recount import PartitionHistory, Place, Rules, counted, recount
from tests.simulator.schedule import AMOUNTS, SIDES, SOURCE, Schedule

if TYPE_CHECKING:
    from tests.simulator.world import World

MANY = 10**6


class Observer:
    """Receives every accepted effect on one stream at its instant, and checks the rules at once."""

    def __init__(self, world: World, schedule: Schedule) -> None:
        self.world = world
        self.schedule = schedule
        self.stream = schedule.name
        self.strategies = {schedule.strategy.hash: schedule.strategy}
        self.history = History()
        self.watch = Watch()
        self.draws: list[Draw] = []
        self.measured: dict[Place, int] = {}
        self.reader = world.store.reader()
        self.restored = False
        self.noise_was_lost = False
        self.first_epoch = 0
        self.removed = 0  # epochs, by retention
        self.late_us = 0  # for how long an epoch stayed after its time
        self._witnessed_seq = 0
        self.first_us: int | None = None  # where it begins as the segment after another one

    async def after(self, port: str, method: str, args: tuple[Any, ...], reply: Any) -> None:
        """Check one effect."""
        if port == "witness" and method == "append":
            await self._witnessed()
        elif port == "store":
            look = getattr(self, f"_after_{method}", None)
            if look is not None and (reply is Reply.DONE or not isinstance(reply, Reply)):
                await look(args, reply)

    async def _after_open_epoch(self, args: tuple[Any, ...], reply: Reply) -> None:
        record: EpochRecord = args[2]
        head = await self.world.witness.head(self.stream)
        if head is not None and record.first_seq <= head[0]:
            raise Broken(
                f"epoch {record.epoch} starts at row {record.first_seq}, the witness has {head[0]} rows"
            )
        if record.counts_from_bin is None and record.epoch > self.first_epoch and not self.restored:
            raise Broken(f"epoch {record.epoch - 1} was ended early, but the store was never set back")
        self.world.trace(f"epoch {record.epoch} opens at bin {record.first_bin}, row {record.first_seq}")
        self.history.epochs.append(record)
        if all(epoch != record.epoch for epoch, _, _ in self.watch.nodes):
            # If nobody has seen anything of an epoch, a restored store may open the epoch again with new
            # noise.
            self.watch.epoch_draws.pop(record.epoch, None)
        kept = {seq for seq, _ in await self.world.store.rows(self.stream, 0, MANY)}
        removed = await self._removed_seq()
        self.history.released = {
            seq: bin for seq, bin in self.history.released.items() if seq in kept or seq <= removed
        }
        floor = record.first_bin if record.counts_from_bin is None else record.counts_from_bin
        for partition in self.history.partitions.values():
            partition.floors.append((partition.position, floor))

    async def _after_end_epoch(self, args: tuple[Any, ...], reply: Reply) -> None:
        self.world.trace(f"epoch {args[1]} ends at row {args[2]}: {args[3]}")
        if not (self.noise_was_lost or self.restored):
            raise Broken(f"epoch {args[1]} was ended, but its noise was never lost")

    async def _after_start_partition(self, args: tuple[Any, ...], reply: Reply) -> None:
        self._meet(args[2], args[3], (await self._state()).partitions[args[2]].base_bin, *args[4:])

    async def _after_take_cuts(self, args: tuple[Any, ...], reply: Reply) -> None:
        _, _, partition, expected_last_cut_bin, cuts, *_ = args
        self._take(PartitionCuts(partition, expected_last_cut_bin, cuts))

    async def _after_take_cuts_together(self, args: tuple[Any, ...], replies: Sequence[Reply]) -> None:
        for one, reply in zip(args[2], replies, strict=True):
            if reply is Reply.DONE:
                self._take(one)

    def _take(self, taken: PartitionCuts) -> None:
        partition, cuts = taken.partition, taken.cuts
        if partition not in self.history.partitions:
            self._meet(partition, 0, taken.expected_last_cut_bin)
        self.history.partitions[partition].cuts.extend(cuts)
        self.world.trace(f"cuts of {partition}: {_cuts_text(cuts)}")

    async def _after_apply(self, args: tuple[Any, ...], reply: Reply) -> None:
        self._apply(args[1])

    async def _after_apply_together(self, args: tuple[Any, ...], replies: Sequence[Reply]) -> None:
        for change, reply in zip(args[3], replies, strict=True):
            if reply is Reply.DONE:
                self._apply(change)

    def _apply(self, change: Apply) -> None:
        history = self.history.partitions[change.partition]
        if change.expected != history.position:
            raise Broken(f"partition {change.partition}: a slice was applied away from the position")
        history.position = change.new
        self.world.trace(f"apply {change.partition} {change.expected}..{change.new}")

    async def _after_read_cells(self, args: tuple[Any, ...], counts: Any) -> None:
        if args[1] > (await self._state()).released_bin:  # else it is stale: its release will be refused
            self.history.see_sealed(args[1], counts)

    async def _after_release(self, args: tuple[Any, ...], reply: Reply) -> None:
        release: Release = args[1]
        epoch = self.history.epochs[-1]
        if epoch.epoch != release.epoch:
            raise Broken(f"epoch {release.epoch} released while epoch {epoch.epoch} runs")
        bins = range(release.first_bin, release.last_bin + 1)
        seqs = range(release.expected_seq + 1, release.expected_seq + 1 + len(bins))
        self.history.released.update(zip(seqs, bins, strict=True))
        self.watch.released_at_us.update(dict.fromkeys(seqs, self.world.now_us()))
        self.world.trace(f"release bins {release.first_bin} to {release.last_bin}")
        strategy = self.strategies[epoch.strategy_hash]
        if release.strategy_hash != strategy.hash:
            raise Broken(f"epoch {epoch.epoch} released under another strategy than it opened with")
        if isinstance(strategy.kind, Toeplitz):
            self._check_gaussian(release, strategy.kind)
        elif strategy.kind.release == "anticipating":
            check_drawn_ahead(release, self.history, strategy, self.draws, self.watch.epoch_draws)
        else:
            self._check_noise(release, strategy)
        check_over_epochs(release, self.history, strategy, self.draws, self.watch.used_draws)
        check_windows(release, self.history, strategy, self.draws, self.watch.used_draws)
        ledger = await self.world.store.ledger(SOURCE)
        entries = [entry for entry in ledger if entry.stream == self.stream]
        bin_us = self.schedule.bin_us
        check_ledger(entries, epoch, release.first_bin * bin_us, (release.last_bin + 1) * bin_us)
        if isinstance(strategy.kind, Toeplitz) and strategy.kind.mu is not None:
            for entry in entries:
                check_charge(entry, strategy.kind.toeplitz)

    def _check_gaussian(self, release: Release, kind: Toeplitz) -> None:
        check_gaussian(release, self.history, kind, self.draws, self.watch.used_draws)

    def _check_noise(self, release: Release, strategy: Strategy) -> None:
        check_noise(release, self.history, strategy, self.draws, self.watch.used_draws)

    async def _witnessed(self) -> None:
        """Check the witness: one value per row, and no row that the store does not have."""
        rows = await self.world.witness.rows(self.stream, self._witnessed_seq)
        self.watch.see_rows((row[:2] for row in rows), "witness")
        self._check_values(rows)
        if not rows:
            return
        if self.schedule.witness_is_public:
            self._see_visible(row.seq for row in rows)
        self._witnessed_seq = rows[-1][0]
        state = await self._state()
        if rows[-1][0] > state.seq:
            raise Broken(f"the witness has row {rows[-1][0]}, the store has released {state.seq}")

    def _check_values(self, rows: Sequence[WitnessRow]) -> None:
        """Check that these rows contain everything that a store needs to get its public values back."""
        epochs = {epoch.epoch: epoch for epoch in self.history.epochs}
        for row in rows:
            epoch = epochs[json.loads(row.row)["epoch"]]
            strategy = self.strategies[epoch.strategy_hash]
            if strategy.kind.rows_hold_values:
                return
            for block in unpacked(strategy, epoch, row.row, row.values):
                first = epoch.first_bin if block.table == PUBLISHED else 0
                for index, values in enumerate(block.values.tolist(), start=first + block.first):
                    self.watch.see_node(epoch.epoch, block.table, index, values, "witness")

    async def _after_publish(self, args: tuple[Any, ...], reply: None) -> None:
        """Check rows that became visible: each is witnessed and has one value, and tiles equal rows."""
        public = await self.reader.public_state(self.stream)
        assert public is not None
        head = await self.world.witness.head(self.stream)
        if public.visible_seq > (head[0] if head else 0):
            raise Broken(f"row {public.visible_seq} is visible before it is witnessed")
        rows = await self.reader.rows(self.stream, 0, MANY)
        self.watch.see_rows(rows, "reader")
        self._see_visible(seq for seq, _ in rows)
        await self._check_tiles(public.epochs, public.visible_seq)

    async def _removed_seq(self) -> int:
        """Return the last row that retention removed; 0 if it removed none."""
        public = await self.reader.public_state(self.stream)
        return 0 if public is None else public.trimmed.seq

    async def _after_trim(self, args: tuple[Any, ...], removed: int) -> None:
        """Check what left and what stays: old, ended epochs that readers saw, and every row after them."""
        public = await self.reader.public_state(self.stream)
        if not removed:
            return
        assert public is not None
        self.world.trace(f"{removed} epochs leave, up to row {public.trimmed.seq}")
        self.removed += removed
        last = self.watch.rows.get(public.trimmed.seq)
        if last is None or row_hash(last) != public.trimmed.hash:
            raise Broken(f"row {public.trimmed.seq} left, and nobody saw it as the store remembers it")
        ended_us, keep_us = (public.trimmed.bin + 1) * self.schedule.bin_us, self.schedule.keep_us or 0
        if json.loads(last)["bin"] != public.trimmed.bin or ended_us + keep_us > self.world.now_us():
            raise Broken(
                f"epoch {public.trimmed.epoch} left before {keep_us} us had passed after {ended_us} us"
            )
        self.late_us = max(self.late_us, self.world.now_us() - ended_us - keep_us)
        stays = [seq for seq, _ in await self.world.store.rows(self.stream, 0, MANY)]
        wanted = [seq for seq in self.watch.seen_at_us if seq > public.trimmed.seq]
        if not stays or stays[0] <= public.trimmed.seq or (not self.restored and set(wanted) - set(stays)):
            raise Broken(f"rows {wanted} should stay after row {public.trimmed.seq} left, {stays} do")
        await self._check_tiles(public.epochs, public.visible_seq)

    def _see_visible(self, seqs: Iterable[int]) -> None:
        """Note that a reader sees these rows now."""
        if fresh := [seq for seq in seqs if seq not in self.watch.seen_at_us]:
            self.world.trace(f"visible: rows {fresh[0]} to {fresh[-1]}")
            self.watch.see_visible(fresh, self.world.now_us(), self.schedule.publish_every_us)

    async def _check_tiles(self, epochs: tuple[EpochRecord, ...], visible_seq: int) -> None:
        """Check that every visible node has the same value in tiles and rows."""
        for epoch in epochs:
            strategy = self.strategies[epoch.strategy_hash].with_found(epoch)
            last = epoch.first_seq + (
                epoch.bins if epoch.last_bin is None else epoch.last_bin - epoch.first_bin + 1
            )
            bins = max(0, min(visible_seq + 1, last) - epoch.first_seq)
            for table, width in strategy.kind.tables.items():
                count = strategy.kind.rows_after(table, bins)
                values = await self.reader.tile_rows(self.stream, epoch.epoch, table, 0, count, width)
                first = epoch.first_bin if table == PUBLISHED else 0
                for index, value in enumerate(values.tolist(), start=first):
                    self.watch.see_node(epoch.epoch, table, index, value, "tiles")

    async def visible_bin(self) -> int:
        """Return the last visible bin if the whole log is applied, else -1. No bin follows after a stop."""
        state = await self.world.store.load(self.stream)
        public = await self.reader.public_state(self.stream)
        if state is None or public is None or public.visible_seq < state.seq:
            return -1
        for name in self.world.log.partitions:
            known = state.partitions.get(name)
            if known is None or known.position < len(self.world.log.partitions[name]):
                return -1
        return MANY * MANY if state.stopped else state.released_bin

    async def before_restore(self) -> None:
        """Note which records the store has counted so far: after the restore none may be counted again."""
        self.restored = True
        self._check_measured_once()

    async def check_end(self) -> None:
        """Compare the final bins with the recount of the log, and the ledger with the releases."""
        self._check_recount()
        self._check_measured_once()
        check_on_time(
            self.world.log,
            self.history.partitions,
            self._rules(),
            self._placed(),
            self._letters(),
        )
        self._check_letters_match()
        ledger = await self.world.store.ledger(SOURCE)
        entries = {entry.epoch for entry in ledger if entry.stream == self.stream}
        unpaid = {epoch for epoch, _, _ in self.watch.nodes} - entries
        if unpaid:
            raise Broken(f"epochs {sorted(unpaid)} were seen but are not in the ledger")

    def summary(self) -> str:
        """Return what happened, in one line."""
        counted = sum(sum(counts) for counts in self.history.sealed.values())
        return (
            f"{len(self.watch.rows)} rows, {len(self.watch.nodes)} nodes, {len(self.history.epochs)} epochs, "
            f"{counted} events counted"
        )

    def _check_recount(self) -> None:
        expected = counted(self.world.log, self._placed(), self._rules())
        for bin, counts in sorted(self.history.sealed.items()):
            wanted = [expected[bin, cell] for cell in range(len(counts))]
            if list(counts) != wanted:
                raise Broken(f"bin {bin} counts {list(counts)} events; the log and its cuts give {wanted}")

    def _check_measured_once(self) -> None:
        seen = {bin for seq, bin in self.history.released.items() if seq in self.watch.rows}
        for place, bin in self._placed().items():
            if bin in seen and self.measured.setdefault(place, bin) != bin:
                raise Broken(
                    f"record {place} was released in bin {self.measured[place]} and again in bin {bin}"
                )

    def _check_letters_match(self) -> None:
        """Check that a stream has no letter of a record that its condition leaves out."""
        for name, partition, position in self.world.dead_letters.kept:
            entry = self.world.log.partitions[partition][position]
            if name == self.stream and not matches(self.schedule.where, entry):
                raise Broken(f"record {partition, position} does not match, and has a dead letter")

    def _letters(self) -> dict[Place, str]:
        """Return the reasons of the dead letters of this stream, and of those that concern all streams."""
        kept = self.world.dead_letters.kept.items()
        return {(part, at): reason for (name, part, at), reason in kept if name in (None, self.stream)}

    def _placed(self) -> dict[Place, int]:
        return recount(self.world.log, self.history.partitions, self._rules())

    def _rules(self) -> Rules:
        schedule = self.schedule
        # Before the first epoch nothing counts, so its windows do not matter.
        first = self.history.epochs[0].first_bin if self.history.epochs else 0
        return Rules(
            bin_us=self.schedule.bin_us,
            max_ahead_bins=schedule.max_ahead_bins,
            late=schedule.late,
            keys=schedule.keys,
            buckets=schedule.buckets,
            max_events=schedule.max_events,
            max_keys=schedule.max_keys,
            max_per_key=schedule.max_per_key,
            window_end=(schedule.period_bins or first + schedule.horizon) - 1,
            window_bins=schedule.period_bins or schedule.horizon,
            grace_us=schedule.grace_us,
            where=schedule.where,
            sums=AMOUNTS if schedule.sums else None,
            sides=SIDES if schedule.sides else (),
            begins_bin=None if self.first_us is None else self.first_us // schedule.bin_us,
        )

    def _meet(self, partition: str, start: int, base_bin: int, late_before: LateEvents | None = None) -> None:
        epoch = self.history.epochs[-1]
        floor = epoch.first_bin if epoch.counts_from_bin is None else epoch.counts_from_bin
        self.history.partitions[partition] = PartitionHistory(
            start, start, base_bin, floors=[(0, floor)], late_before=late_before
        )

    async def _state(self) -> StreamState:
        state = await self.world.store.load(self.stream)
        assert state is not None
        return state


def _cuts_text(cuts: Sequence[Cut]) -> str:
    return ", ".join(f"bin {cut.bin} at {cut.position}" for cut in cuts)
