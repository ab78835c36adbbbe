"""Schedules of streams that find keys, and what must hold for them: names, decisions, counts and secrets.

The checks know the log, the cuts and every draw. From the seed that the epoch stored they decide again which
keys each bin must name. Exact counts are a recount of the log by the names of keys.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

from dphist.arrays import Int64Array
from dphist.caps import Caps
from dphist.noise import LARGEST_SCALE
from dphist.product.axis import KeyAxis, ValueAxis
from dphist.product.design import ProductDesign
from dphist.toeplitz import ToeplitzDesign, plan_toeplitz
from dphist.tree.shape import TreeShape
from stream_app.core.answers.query import StreamView
from stream_app.core.counting.keys import KeyList
from stream_app.core.counting.unlisted import BROUGHT, Discover
from stream_app.core.declaration import Declaration
from stream_app.core.epochs import MOST_FOUND, thinned_for
from stream_app.core.kinds import Discovering
from stream_app.core.kinds.approximate_discovering import DiscoveringToeplitz
from stream_app.core.kinds.discovering import DiscoveringTree, part_of
from stream_app.core.kinds.tables import PUBLISHED, Span, node_table
from stream_app.core.kinds.toeplitz import Toeplitz, of_width
from stream_app.core.records import EpochRecord
from stream_app.core.store_writes import Apply, Release
from stream_app.core.strategy import Strategy
from tests.simulator.approximate import noisy_values
from tests.simulator.checks import Broken, released_columns, use_draw
from tests.simulator.finding_recount import ByPage, Recount, window_of
from tests.simulator.given_noise import Draw
from tests.simulator.log import PAGES
from tests.simulator.observer import Observer
from tests.simulator.schedule import AMOUNTS, Deed, Schedule
from tests.stream_app.found_keys import view_at

if TYPE_CHECKING:
    from tests.simulator.world import World

EPSILON, DELTA = Fraction(1), Fraction(1, 2)  # of names: a key is named by two or three users, or by chance
COUNTS_DELTA = Fraction(1, 10**6)
TOTAL_SHARE = Fraction(1, 5)
ROOMS = (10**6, 10)  # events of hidden keys; with little room some keys are dropped


def finding(
    schedule: Schedule, per_user: int = 0, *, sums: bool = False, approximate: bool = False
) -> Schedule:
    """Return the schedule with a stream that finds pages.

    Restores are left out for users: what the bins that are lost have used up of a user's cap depends on
    whether they were tallied before.
    Args: per_user, the new pages that a user brings; 0: the unit is the event; sums, whether there are
        amounts; approximate, whether counts have a delta.
    """
    plain = replace(schedule, keys=1, buckets=1, sums=sums, window=0, over_epochs=False, sides=False)
    plain = replace(plain, total=False, release="causal", count=None, sibling=None, events_per_bin=10.0)
    plain = replace(plain, approximate=approximate)
    if not per_user:
        return replace(plain, finding=1)
    actions = tuple(action for action in plain.actions if action.deed is not Deed.RESTORE)
    return replace(plain, finding=per_user, max_events=(4, 1, 2)[schedule.seed % 3], actions=actions)


def finding_strategy(schedule: Schedule, declared: Declaration) -> Strategy:
    """Return the strategy of a stream that finds pages."""
    discover = Discover(EPSILON, DELTA, schedule.finding, room=ROOMS[schedule.seed % len(ROOMS)])
    keys = KeyList("page", (), True, False, discover=discover)
    rule = discover.rule(schedule.horizon)
    if schedule.approximate:
        caps = Caps(max_events=max(1, schedule.max_events))
        each, total = (
            plan_toeplitz(
                schedule.horizon, schedule.epsilon, COUNTS_DELTA, caps, width=MOST_FOUND + 1, share=share
            )
            for share in (1 - TOTAL_SHARE, TOTAL_SHARE)
        )
        privacy = structs.replace(
            declared.privacy, epsilon=schedule.epsilon + EPSILON, delta=COUNTS_DELTA + DELTA
        )
        declared = structs.replace(declared, keys=keys, privacy=privacy)
        return Strategy(schedule.name, declared, DiscoveringToeplitz(each, True, rule=rule, total=total))
    axis = KeyAxis(0, 1 - TOTAL_SHARE, TOTAL_SHARE, rest=True)
    weight = AMOUNTS.range.weight if schedule.sums else 1
    ends = ValueAxis(width := 2 if schedule.sums else 1, TreeShape((width,)), (Fraction(1),))
    product = ProductDesign(replace(schedule.design, sensitivity=weight), axis, ends, weight)
    privacy = structs.replace(declared.privacy, epsilon=product.epsilon + EPSILON)
    declared = structs.replace(declared, keys=keys, privacy=privacy)
    return Strategy(schedule.name, declared, DiscoveringTree(product, rule=rule))


class FindingObserver(Observer):
    """Checks a stream that finds keys."""

    def __init__(self, world: World, schedule: Schedule) -> None:
        super().__init__(world, schedule)
        self.watch.joined = True
        self.released: set[str] = set()  # names that the store has ever accepted
        self.nameless: set[tuple[str, int]] = set()  # records that count without their key
        self.noisy: dict[tuple[int, str], Int64Array] = {}  # C x + z of an epoch's total and keys
        self.seen_seq = 0  # up to which it is checked how often hidden keys were halved

    def _apply(self, change: Apply) -> None:
        """Note the records that are dated beyond the next window when they are applied."""
        super()._apply(change)
        rules = self._rules()
        last = window_of(change.last_cut_bin + 1, rules) + rules.window_bins
        for position in range(change.expected, change.new):
            entry = self.world.log.partitions[change.partition][position]
            place = change.partition, position
            self.nameless.discard(place)
            if window_of(entry.time_us // rules.bin_us, rules) > last:
                self.nameless.add(place)

    async def _after_read_kept(self, args: tuple[Any, ...], reply: Sequence[Mapping[int, int]]) -> None:
        """Compare the exact counts of keys, and of the users who bring them, with the recount."""
        bins, cells = args[1:3]
        state = await self._state()
        if cells or not bins or bins[0] != state.released_bin + 1 or state.epoch.end_reason is not None:
            return  # the past of new keys, or an outdated question
        recount = Recount(self, self._running(), bins[-1])
        name_of = {name.hash: page for page, name in recount.sealed.items()}
        numbers = self.world.store.streams[self.stream].unlisted.get(recount.window, [])

        def with_cell(place: int, bin: int) -> str:
            return recount.with_cell(name_of[numbers[place - 1].hash] if place else "", bin)

        for bin, counts in zip(bins, reply, strict=True):
            brought, ends = ByPage(), Counter[tuple[str, int]]()
            for cell, number in counts.items():
                if cell >= BROUGHT:
                    brought[with_cell(cell - BROUGHT, bin)] += number
                else:
                    place, end = divmod(cell, recount.width)
                    ends[with_cell(place, bin), end] += number
            found = +ends, +brought
            wanted = +recount.ends(bin), recount.brought(bin) if self._by_users else ByPage()
            if found != wanted:
                raise Broken(f"bin {bin} counts {found}; the log and its cuts give {wanted}")

    async def _after_tally(self, args: tuple[Any, ...], reply: Any) -> None:
        """Note which keys were public when a bin's users were chosen."""
        epoch = self._running()
        shown = frozenset(name for one in epoch.found for name in one.names)
        for bin in range(self.history.epochs[0].first_bin, args[3] + 1):
            self.history.shown.setdefault(bin, (shown, epoch.thinned))

    async def _after_release(self, args: tuple[Any, ...], reply: Any) -> None:
        """Check the names of a release beside its values, and note them."""
        await super()._after_release(args, reply)
        release: Release = args[1]
        epoch = self._running()
        recount = Recount(self, epoch, release.last_bin)
        names = release.found.names if release.found is not None else ()
        if list(names) != sorted(names):
            raise Broken(f"bin {release.last_bin} names keys in an order that is not that of names: {names}")
        if release.found is not None:
            self.history.epochs[-1] = replace(epoch, found=(*epoch.found, release.found))
            self.released.update(names)
            self.world.trace(f"bin {release.last_bin} names {names}")
        self._check_names(recount, release, names)

    def _check_names(self, recount: Recount, release: Release, names: Sequence[str]) -> None:
        """Check that one seed of the epoch explains which keys its bins have named, and which not."""
        starts = {
            number
            for number, draw in enumerate(self.draws)
            if draw.scale == LARGEST_SCALE and draw.values.size == 16
        }
        known = self.watch.epoch_draws
        elsewhere = {
            number
            for epoch, ones in known.items()
            if epoch != release.epoch and len(ones) == 1
            for number in ones
        }
        wanted = [(bin, set[str]()) for bin in range(release.first_bin, release.last_bin)]
        wanted.append((release.last_bin, set(names)))
        known[release.epoch] = {
            number
            for number in known.get(release.epoch, starts) - elsewhere
            if all(recount.named(bin, seed_of(self.draws[number])) == keys for bin, keys in wanted)
        }
        if not known[release.epoch]:
            raise Broken(f"epoch {release.epoch}: no seed decides that bin {release.last_bin} names {names}")

    def _check_noise(self, release: Release, strategy: Strategy) -> None:
        """Check that each value of the total and of all shown keys is its exact sum plus one unused draw."""
        epoch, draws, used = self._running(), self.draws, self.watch.used_draws
        kind = strategy.kind
        assert isinstance(kind, DiscoveringTree)
        recount = Recount(self, epoch, release.last_bin)
        before = kind.with_found(epoch.found, epoch.first_bin)
        found = (*epoch.found, *([] if release.found is None else [release.found]))
        after = kind.with_found(found, epoch.first_bin)
        columns = released_columns(release, after.tables)
        total, keys = (group.design for group in (after.axes.groups[0], after.axes.groups[-1]))
        for level in kind.design.shape.levels:
            tables = [node_table(level), *(f"{level}.{number}" for number in range(len(after.groups)))]
            pages = [("",), *(group.names for group in after.groups)]  # of each table
            rests = [
                [
                    row - recount.sums(tuple(names))[level, index]
                    for (name, index), row in columns.items()
                    if name == table
                ]
                for table, names in zip(tables, pages, strict=True)
            ]
            old = 1 + len(before.groups)
            together = [np.concatenate(parts) for parts in zip(*rests[1:old], strict=True)]
            for design, rest in ((total, rests[0]), (keys, together), *((keys, one) for one in rests[old:])):
                if rest and not use_draw(design.scales[level - 1], np.array(rest), draws, used):
                    scale = f"{float(design.scales[level - 1]):.4g}"
                    bins = f"bins {release.first_bin} to {release.last_bin}"
                    raise Broken(
                        f"{bins}: level {level} is not its exact counts plus one unused draw of scale {scale}"
                    )

    def _check_gaussian(self, release: Release, kind: Toeplitz) -> None:
        """Check that the total, the shown keys and the past of new ones each are C x plus one unused draw."""
        assert isinstance(kind, DiscoveringToeplitz)
        epoch, recount = self._running(), Recount(self, self._running(), release.last_bin)
        before = kind.with_found(epoch.found, epoch.first_bin)
        found = (*epoch.found, *([] if release.found is None else [release.found]))
        after, position = kind.with_found(found, epoch.first_bin), release.last_bin - epoch.first_bin
        rows, old = released_columns(release, after.tables), len(before.groups)
        row = np.concatenate([rows[table, position] for table in before.parts_of(PUBLISHED)])
        shown = [name for group in before.groups for name in group.names]
        known = [("total", kind.total, [""], row[:1]), ("keys", kind.toeplitz, shown, row[1:])]
        for part, design, pages, released in known:
            if pages:
                values = self.noisy.get((epoch.epoch, part), np.zeros((0, len(pages)), np.int64))
                earlier = values[:position, : len(pages)]
                self.noisy[epoch.epoch, part] = self._noisy(
                    design, recount.columns(pages), earlier, released[np.newaxis]
                )
        for number, group in enumerate(after.groups[old:], old):
            past = np.array([rows[part_of(PUBLISHED, number), bin] for bin in range(position + 1)])
            exact = recount.columns(group.names)
            values = self._noisy(kind.toeplitz, exact, np.zeros((0, len(group.names)), np.int64), past)
            beside = [self.noisy[epoch.epoch, "keys"]] if shown else []
            self.noisy[epoch.epoch, "keys"] = np.hstack([*beside, values])

    def _noisy(
        self, design: ToeplitzDesign, counts: Int64Array, before: Int64Array, published: Int64Array
    ) -> Int64Array:
        own = of_width(design, counts.shape[1])
        return noisy_values(own, counts, before, published, self.draws, self.watch.used_draws)

    async def _check_tiles(self, epochs: tuple[EpochRecord, ...], visible_seq: int) -> None:
        """Check tiles, what rows say of all keys together, and that ``other`` is the rest."""
        await super()._check_tiles(epochs, visible_seq)
        for epoch in epochs:
            kind = self.strategies[epoch.strategy_hash].with_found(epoch).kind
            assert isinstance(kind, Discovering)
            for whole in kind.spread:
                tree = kind.tree_design
                bins = 1 if tree is None else tree.shape.widths[int(whole)]
                for (number, table, index), values in list(self.watch.nodes.items()):
                    bin = (index + 1) * bins - 1
                    is_seen = epoch.first_seq + bin <= visible_seq  # others may name keys that are not seen
                    if (number, table) != (epoch.epoch, whole) or not is_seen:
                        continue
                    shown = [place for place, group in enumerate(kind.groups) if group.position <= bin]
                    parts = (self.watch.nodes.get((number, f"{table}.{place}", index)) for place in shown)
                    row = [*values, *(one for part in parts if part is not None for one in part)]
                    digest = hashlib.sha256(np.array(row, "<i8").tobytes()).hexdigest()
                    self.watch.see_hash((number, f"all of {table}", index), digest, "tiles of all keys")
        if epochs and visible_seq >= epochs[-1].first_seq:
            await self._check_rest(await view_at(self.reader, visible_seq, self.stream), epochs[-1])
        for seq in range(self.seen_seq + 1, visible_seq + 1):
            self._check_thinned(await view_at(self.reader, seq, self.stream), seq)
        self.seen_seq = visible_seq

    def _check_thinned(self, view: StreamView, seq: int) -> None:
        """Check that nothing but released counts decides how often the hidden keys are halved."""
        epoch, keys = view.epochs[-1].record, view.declared.keys
        if epoch.first_seq > seq:
            return  # the last row of an epoch, after which its keys do not matter
        assert keys is not None
        assert keys.discover is not None
        bin = epoch.first_bin + seq - epoch.first_seq
        other = float(view.of_key("other").count(Span(epoch.first_bin, bin + 1)).value)
        before = max((one.thinned for one in epoch.found if one.bin < bin), default=0)
        wanted = max(before, thinned_for(other, keys.discover.room))
        if epoch.thinned != wanted:
            now = f"hidden keys are halved {epoch.thinned} times"
            raise Broken(f"bin {bin}: {now}; {wanted} follows from {other} released other events")

    async def _check_rest(self, view: StreamView, epoch: EpochRecord) -> None:
        """Check at an instant: the total is ``other`` and all shown keys, and these are the named ones."""
        keys = view.declared.keys
        assert keys is not None
        named = [name for one in epoch.found for name in one.names]
        if list(keys.labels) != named or set(named) - self.released:
            raise Broken(f"readers see the keys {keys.labels}; {named} were named")
        span = Span(epoch.first_bin, view.span.stop)
        total, other = view.count(span).value, view.of_key("other").count(span).value
        shown = sum(float(view.of_key(name).count(span).value) for name in named)
        if abs(float(total) - float(other) - shown) > 1e-6 * (1 + abs(float(total))):
            raise Broken(f"{other} other events and {shown} under the shown keys are not the total, {total}")

    def _check_recount(self) -> None:
        """Check that no key is named anywhere, unless it was released."""
        kept = [self.world.witness.kept, self.world.dead_letters.kept, self.world.store.streams]
        said = repr(kept)
        if secret := [page for page in PAGES if page not in self.released and page in said]:
            raise Broken(f"the keys {secret} were never released, and are named")

    def summary(self) -> str:
        """Return what happened, in one line."""
        epochs = len(self.history.epochs)
        return f"{len(self.watch.rows)} rows, {epochs} epochs, {len(self.released)} keys named"

    def _running(self) -> EpochRecord:
        return self.history.epochs[-1]

    @property
    def _by_users(self) -> bool:
        return self.schedule.is_capped


def seed_of(draw: Draw) -> bytes:
    """Return the seed of an epoch from the draw that made it."""
    return hashlib.sha256(draw.values.tobytes()).digest()
