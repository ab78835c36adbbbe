"""What every store promises, call by call."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from stream_app.core.answers.answered import Missing
from stream_app.core.kinds.pages import StoredNoise
from stream_app.core.kinds.tables import PUBLISHED, node_table
from stream_app.core.records import (
    GENESIS,
    Cut,
    PartitionState,
    PublicState,
    Reply,
    StreamState,
)
from stream_app.core.store_writes import Apply
from tests.contracts.conftest import Stores
from tests.contracts.examples import (
    BINS,
    ENTRY,
    EPOCH,
    FIRST_BIN,
    HASH,
    NEXT_EPOCH,
    SHAPE,
    TEXT,
    WIDTH,
    apply,
    expected_rows,
    release_of,
)

pytestmark = pytest.mark.anyio
CELLS = [(FIRST_BIN, 0, 2), (FIRST_BIN, 2, 1), (FIRST_BIN + 1, 1, 7)]


async def opened(stores: Stores) -> StreamState:
    """Open the first epoch and start partition 0."""
    assert await stores.store.open_epoch(stores.stream, TEXT, EPOCH, GENESIS) == Reply.DONE
    assert await stores.store.start_partition(stores.stream, HASH, "0", 0) == Reply.DONE
    return await loaded(stores)


async def loaded(stores: Stores) -> StreamState:
    state = await stores.store.load(stores.stream)
    assert state is not None
    return state


async def shown(stores: Stores) -> PublicState:
    """Return what readers see of the stream."""
    state = await stores.reader.public_state(stores.stream)
    assert state is not None
    return state


async def cut_and_seal(stores: Stores, bin: int) -> None:
    """Cut partition 0 at its position and seal up to a bin."""
    partition = (await loaded(stores)).partitions["0"]
    cut = Cut(bin, partition.position)
    taken = await stores.store.take_cuts(stores.stream, HASH, "0", partition.last_cut_bin, [cut])
    assert taken == Reply.DONE
    assert await stores.store.seal(stores.stream, HASH, ["0"], bin) == bin


async def release(stores: Stores, bins: int) -> StreamState:
    """Cut, seal and release the next bins."""
    state = await loaded(stores)
    await cut_and_seal(stores, state.released_bin + bins)
    assert await stores.store.release(stores.stream, release_of(state, bins)) == Reply.DONE
    return await loaded(stores)


class TestOpenEpoch:
    async def test_unknown_stream_has_no_state(self, stores: Stores) -> None:
        assert await stores.store.load(stores.stream) is None
        assert await stores.reader.public_state(stores.stream) is None
        with pytest.raises(LookupError, match="never opened"):
            await stores.store.seal(stores.stream, HASH, [], 5)

    async def test_first_epoch_starts_before_its_first_bin(self, stores: Stores) -> None:
        state = await opened(stores)
        assert (state.strategy, state.epoch, state.seq, state.head) == (TEXT, EPOCH, 0, GENESIS)
        assert state.released_bin == state.sealed_bin == FIRST_BIN - 1
        assert stores.stream in await stores.reader.streams()

    async def test_repeated_call_is_already_done_and_another_one_conflicts(self, stores: Stores) -> None:
        await opened(stores)
        store, stream = stores.store, stores.stream
        assert await store.open_epoch(stream, TEXT, EPOCH, GENESIS) == Reply.ALREADY
        assert await store.open_epoch(stream, TEXT, EPOCH, "1" * 64) == Reply.CONFLICT
        assert await store.open_epoch(stream, TEXT, replace(EPOCH, bins=5), GENESIS) == Reply.CONFLICT
        assert await store.open_epoch(stream, b"{}", EPOCH, GENESIS) == Reply.STRATEGY
        other = replace(NEXT_EPOCH, strategy_hash="0" * 64)
        assert await store.open_epoch(stream, TEXT, other, GENESIS) == Reply.STRATEGY

    async def test_complete_epoch_hands_on_to_the_next(self, stores: Stores) -> None:
        await opened(stores)
        await stores.store.apply(stores.stream, apply(0, 5, [(FIRST_BIN + BINS, 1, 3)]))
        state = await release(stores, BINS)
        assert (state.epoch.last_bin, state.epoch.end_reason) == (FIRST_BIN + BINS - 1, "complete")
        assert await stores.store.open_epoch(stores.stream, TEXT, NEXT_EPOCH, state.head) == Reply.DONE
        after = await loaded(stores)
        assert (after.epoch, after.seq, after.counter, after.partitions) == (
            NEXT_EPOCH,
            BINS,
            b"",
            state.partitions,
        )
        await cut_and_seal(stores, FIRST_BIN + BINS)
        bin = FIRST_BIN + BINS
        assert (await stores.store.read_cells(stores.stream, bin, bin, WIDTH)).tolist() == [[0, 3, 0]]

    async def test_the_counter_is_carried_over_where_the_chain_goes_on_only(self, stores: Stores) -> None:
        await opened(stores)
        state = await release(stores, BINS)
        store, stream = stores.store, stores.stream
        open_next = store.open_epoch
        assert await open_next(stream, TEXT, NEXT_EPOCH, state.head, None, b"secret\x00") == Reply.DONE
        assert (await loaded(stores)).counter == b"secret\x00"
        # A retry finds the epoch open, and changes nothing.
        assert await open_next(stream, TEXT, NEXT_EPOCH, state.head, None, b"other") == Reply.ALREADY
        assert (await loaded(stores)).counter == b"secret\x00"
        elsewhere = replace(NEXT_EPOCH, epoch=4, first_bin=60, first_seq=30)
        assert await open_next(stream, TEXT, elsewhere, "f" * 64, None, b"secret") == Reply.DONE
        assert (await loaded(stores)).counter == b""

    async def test_early_next_epoch_ends_the_running_one_and_forgets_its_cells(self, stores: Stores) -> None:
        await opened(stores)
        cells = [(FIRST_BIN + 1, 0, 1), (FIRST_BIN + 2, 0, 1), (FIRST_BIN + 3, 0, 5)]
        await stores.store.apply(stores.stream, apply(0, 5, cells))
        state = await release(stores, 1)
        record = replace(NEXT_EPOCH, first_bin=FIRST_BIN + 3, first_seq=2)
        assert await stores.store.open_epoch(stores.stream, TEXT, record, state.head) == Reply.DONE
        await stores.store.publish(stores.stream, 1)
        public = await shown(stores)
        assert [epoch.last_bin for epoch in public.epochs] == [FIRST_BIN, None]
        after = await loaded(stores)
        assert after.released_bin == after.sealed_bin == FIRST_BIN + 2
        await cut_and_seal(stores, FIRST_BIN + 3)
        counts = await stores.store.read_cells(stores.stream, FIRST_BIN + 1, FIRST_BIN + 3, WIDTH)
        assert counts[:, 0].tolist() == [0, 0, 5]

    async def test_epoch_that_goes_back_conflicts(self, stores: Stores) -> None:
        await opened(stores)
        state = await release(stores, 2)
        for record in (
            replace(NEXT_EPOCH, first_bin=FIRST_BIN + 1, first_seq=3),  # a released bin
            replace(NEXT_EPOCH, first_seq=2),  # a released seq
        ):
            reply = await stores.store.open_epoch(stores.stream, TEXT, record, state.head)
            assert reply == Reply.CONFLICT
        assert await loaded(stores) == state

    async def test_chain_that_went_on_elsewhere_discards_what_nobody_saw(self, stores: Stores) -> None:
        await opened(stores)
        await release(stores, 1)
        await stores.store.publish(stores.stream, 1)
        await release(stores, 2)  # another release of these bins is in the witness
        record = replace(NEXT_EPOCH, epoch=4, first_bin=30, first_seq=9)
        assert await stores.store.open_epoch(stores.stream, TEXT, record, "f" * 64) == Reply.DONE
        state = await loaded(stores)
        assert (state.seq, state.head, state.released_bin) == (8, "f" * 64, 29)
        assert [seq for seq, _ in await stores.store.rows(stores.stream, 0, 9)] == [1]
        await cut_and_seal(stores, 30)
        assert await stores.store.release(stores.stream, release_of(state, 1)) == Reply.DONE
        await stores.store.publish(stores.stream, 9)
        assert [seq for seq, _ in await stores.reader.rows(stores.stream, 0, 9)] == [1, 9]
        public = await shown(stores)
        assert [(epoch.epoch, epoch.last_bin) for epoch in public.epochs] == [(0, FIRST_BIN), (4, None)]
        with pytest.raises(ValueError, match="1 are visible"):
            await stores.reader.tile_rows(stores.stream, 0, PUBLISHED, 0, 2, WIDTH)

    async def test_ended_epoch_releases_nothing_more(self, stores: Stores) -> None:
        await opened(stores)
        state = await release(stores, 1)
        end_epoch = stores.store.end_epoch
        # A worker that has not seen the release may be wrong about the epoch.
        assert await end_epoch(stores.stream, 0, 0, "operator") == Reply.CONFLICT
        assert await end_epoch(stores.stream, 0, 1, "operator") == Reply.DONE
        assert await end_epoch(stores.stream, 0, 1, "operator") == Reply.ALREADY
        assert await end_epoch(stores.stream, 0, 1, "another reason") == Reply.CONFLICT
        assert await end_epoch(stores.stream, 1, 1, "operator") == Reply.CONFLICT
        await cut_and_seal(stores, FIRST_BIN + 1)
        assert await stores.store.release(stores.stream, release_of(state, 1)) == Reply.CONFLICT
        ended = (await loaded(stores)).epoch
        assert (ended.last_bin, ended.end_reason) == (FIRST_BIN, "operator")


class TestNoise:
    """An epoch with noise drawn ahead opens only after all its pages are stored."""

    NOISE = StoredNoise("a" * 32, 2)

    async def test_an_epoch_opens_with_whole_noise_only(self, stores: Stores) -> None:
        store, stream = stores.store, stores.stream
        await store.write_noise(stream, self.NOISE.nonce, 0, b"first")
        assert await store.open_epoch(stream, TEXT, EPOCH, GENESIS, self.NOISE) == Reply.CONFLICT
        assert await store.load(stream) is None
        await store.write_noise(stream, self.NOISE.nonce, 1, b"second")
        assert await store.open_epoch(stream, TEXT, EPOCH, GENESIS, self.NOISE) == Reply.DONE
        assert (await loaded(stores)).noise == self.NOISE.nonce
        assert await store.open_epoch(stream, TEXT, EPOCH, GENESIS, self.NOISE) == Reply.ALREADY
        # A running epoch keeps its noise: it cannot be opened again with other noise.
        assert await store.open_epoch(stream, TEXT, EPOCH, GENESIS) == Reply.CONFLICT
        other = replace(self.NOISE, nonce="b" * 32)
        await store.write_noise(stream, other.nonce, 0, b"third")
        await store.write_noise(stream, other.nonce, 1, b"fourth")
        assert await store.open_epoch(stream, TEXT, EPOCH, GENESIS, other) == Reply.CONFLICT
        assert (await loaded(stores)).noise == self.NOISE.nonce

    async def test_a_later_epoch_opens_with_whole_noise_only(self, stores: Stores) -> None:
        store, stream = stores.store, stores.stream
        await opened(stores)
        assert (await loaded(stores)).noise == ""
        later = replace(EPOCH, epoch=1, first_bin=FIRST_BIN + 1)
        before = await loaded(stores)
        assert await store.open_epoch(stream, TEXT, later, "e" * 64, self.NOISE) == Reply.CONFLICT
        assert await loaded(stores) == before
        for page in range(2):
            await store.write_noise(stream, self.NOISE.nonce, page, b"page")
        assert await store.open_epoch(stream, TEXT, later, "e" * 64, self.NOISE) == Reply.DONE
        assert (await loaded(stores)).noise == self.NOISE.nonce

    async def test_a_page_is_written_once(self, stores: Stores) -> None:
        store, stream = stores.store, stores.stream
        assert await store.read_noise(stream, "n", 0) is None
        await store.write_noise(stream, "n", 0, b"\x00\xff first")
        await store.write_noise(stream, "n", 0, b"second")
        assert await store.read_noise(stream, "n", 0) == b"\x00\xff first"
        for nonce, page, data in (("", 0, b""), ("a:b", 0, b""), ("n", -1, b""), ("n", 0, bytes(2**20 + 65))):
            with pytest.raises(ValueError, match="write_noise"):
                await store.write_noise(stream, nonce, page, data)

    async def test_a_page_under_another_key_than_the_noted_one_is_refused(self, stores: Stores) -> None:
        store, stream = stores.store, stores.stream
        assert await store.noise_key(stream) == b""
        assert await store.write_noise(stream, "n", 0, b"page", b"one")
        await store.discard_noise(stream, [])
        assert await store.noise_key(stream) == b"one"
        assert not await store.write_noise(stream, "n", 1, b"page", b"other")
        assert await store.read_noise(stream, "n", 1) is None
        assert await store.write_noise(stream, "n", 1, b"page", b"one")
        # A worker whose keys nobody shares takes the note away.
        assert await store.write_noise(stream, "n", 2, b"page")
        assert await store.noise_key(stream) == b""
        assert await store.write_noise(stream, "n", 3, b"page", b"other")

    async def test_noise_that_no_epoch_uses_is_discarded(self, stores: Stores) -> None:
        store, stream = stores.store, stores.stream
        own = self.NOISE.nonce
        places = [(nonce, page) for nonce in (own, "kept", "left") for page in range(2)]
        for nonce, page in places:
            await store.write_noise(stream, nonce, page, b"page")
        await store.open_epoch(stream, TEXT, EPOCH, GENESIS, self.NOISE)

        async def held() -> list[tuple[str, int]]:
            return [place for place in places if await store.read_noise(stream, *place) is not None]

        await store.discard_noise(stream, ["kept"], own, 0)
        assert await held() == [(own, 0), (own, 1), ("kept", 0), ("kept", 1)]
        await store.discard_noise(stream, [], own, 1)
        assert await held() == [(own, 1)]
        # Spent pages of another drawing say nothing about the running epoch's pages.
        await store.discard_noise(stream, [], "left", 2)
        assert await held() == [(own, 1)]


class TestApply:
    async def test_adds_to_cells_and_moves_the_position(self, stores: Stores) -> None:
        await opened(stores)
        assert await stores.store.apply(stores.stream, apply(0, 5, CELLS)) == Reply.DONE
        assert await stores.store.apply(stores.stream, apply(5, 9, [*CELLS, *CELLS])) == Reply.DONE
        await cut_and_seal(stores, FIRST_BIN + 1)
        counts = await stores.store.read_cells(stores.stream, FIRST_BIN, FIRST_BIN + 1, WIDTH)
        assert counts.tolist() == [[6, 0, 3], [0, 21, 0]]
        assert counts.dtype == np.int64

    async def test_repeated_call_counts_once(self, stores: Stores) -> None:
        await opened(stores)
        await stores.store.apply(stores.stream, apply(0, 5, CELLS))
        assert await stores.store.apply(stores.stream, apply(0, 5, CELLS)) == Reply.ALREADY
        await cut_and_seal(stores, FIRST_BIN + 1)
        counts = await stores.store.read_cells(stores.stream, FIRST_BIN, FIRST_BIN + 1, WIDTH)
        assert counts.tolist() == [[2, 0, 1], [0, 7, 0]]
        # A retry is still known as a retry after later cuts, and even after a seal.
        assert await stores.store.apply(stores.stream, apply(0, 5, CELLS)) == Reply.ALREADY

    @pytest.mark.parametrize(
        ("change", "reply"),
        [
            (apply(3, 9, CELLS), Reply.CONFLICT),
            (apply(0, 9, CELLS), Reply.CONFLICT),
            (apply(5, 9, CELLS, partition="1"), Reply.CONFLICT),
            (apply(5, 9, CELLS, strategy_hash="0" * 64), Reply.STRATEGY),
            (apply(5, 9, CELLS, last_cut_bin=FIRST_BIN), Reply.CUTS_CHANGED),
            (apply(5, 9, CELLS, due_us=1), Reply.CUTS_CHANGED),
            (apply(5, 9, [*CELLS, (FIRST_BIN - 1, 0, 1)]), Reply.SEALED),
        ],
    )
    async def test_refusal_changes_nothing(self, stores: Stores, change: Apply, reply: Reply) -> None:
        await opened(stores)
        await stores.store.apply(stores.stream, apply(0, 5, CELLS))
        before = await loaded(stores)
        assert await stores.store.apply(stores.stream, change) == reply
        assert await loaded(stores) == before
        await cut_and_seal(stores, FIRST_BIN + 1)
        counts = await stores.store.read_cells(stores.stream, FIRST_BIN, FIRST_BIN + 1, WIDTH)
        assert counts.tolist() == [[2, 0, 1], [0, 7, 0]]

    async def test_records_below_a_known_cut_count_whatever_cuts_follow(self, stores: Stores) -> None:
        await opened(stores)
        known, later = Cut(FIRST_BIN, 9), Cut(FIRST_BIN + 1, 12)
        for last_cut_bin, cut in ((FIRST_BIN - 1, known), (FIRST_BIN, later)):
            await stores.store.take_cuts(stores.stream, HASH, "0", last_cut_bin, [cut])
        change = partial(apply, 0, 5, CELLS, last_cut_bin=FIRST_BIN, due_us=1)
        before = await loaded(stores)
        for other in (None, Cut(FIRST_BIN, 10), Cut(FIRST_BIN - 1, 9)):
            assert await stores.store.apply(stores.stream, change(below=other)) == Reply.CUTS_CHANGED
        assert await loaded(stores) == before
        assert await stores.store.apply(stores.stream, change(below=known)) == Reply.DONE
        assert await stores.store.apply(stores.stream, change(below=known)) == Reply.ALREADY
        rest = apply(5, 12, last_cut_bin=FIRST_BIN, below=later)
        assert await stores.store.apply(stores.stream, rest) == Reply.DONE
        assert await stores.store.seal(stores.stream, HASH, ["0"], FIRST_BIN + 1) == FIRST_BIN + 1
        counts = await stores.store.read_cells(stores.stream, FIRST_BIN, FIRST_BIN + 1, WIDTH)
        assert counts.tolist() == [[2, 0, 1], [0, 7, 0]]

    async def test_rules_of_an_earlier_epoch_count_nothing(self, stores: Stores) -> None:
        """After a lost store, rules of the lost epoch would measure its late records once more."""
        await opened(stores)
        lost = replace(EPOCH, epoch=1, first_bin=FIRST_BIN + 2, first_seq=9)
        assert await stores.store.open_epoch(stores.stream, TEXT, lost, "f" * 64) == Reply.DONE
        before, late = await loaded(stores), apply(0, 5, [(FIRST_BIN + 2, 0, 1)])
        assert await stores.store.apply(stores.stream, late) == Reply.CONFLICT
        assert await loaded(stores) == before
        assert await stores.store.apply(stores.stream, replace(late, epoch=1)) == Reply.DONE

    async def test_instant_still_to_come_is_not_due(self, stores: Stores) -> None:
        await opened(stores)
        later = (await stores.store.now_us())[0] + 3_600_000_000
        assert await stores.store.apply(stores.stream, apply(0, 5, CELLS, due_us=later)) == Reply.DONE

    async def test_never_opened_stream_conflicts(self, stores: Stores) -> None:
        assert await stores.store.apply(stores.stream, apply(0, 5, CELLS)) == Reply.CONFLICT

    @pytest.mark.parametrize(
        "change",
        [
            apply(5, 5, CELLS),
            apply(5, 9, CELLS, below=Cut(FIRST_BIN, 8)),
            apply(5, 4, CELLS),
            apply(0, 5, [(FIRST_BIN, 0, 0)]),
            apply(0, 5, [(FIRST_BIN, -1, 1)]),
            apply(0, 5, [(2**53 + 1, 0, 1)]),
            apply(0, 6_000, [(FIRST_BIN, 0, 1)] * 5_001),
        ],
    )
    async def test_impossible_change_is_an_error_without_secrets(self, stores: Stores, change: Apply) -> None:
        await opened(stores)
        with pytest.raises(ValueError, match=r"apply: ") as error:
            await stores.store.apply(stores.stream, change)
        assert "\n" not in str(error.value)

    async def test_extreme_integers_are_exact(self, stores: Stores) -> None:
        record = replace(EPOCH, first_bin=-(2**52) + 1)
        await stores.store.open_epoch(stores.stream, TEXT, record, GENESIS)
        await stores.store.start_partition(stores.stream, HASH, "0", 2**53 - 3)
        start, delta = record.first_bin, 2**53 - 1
        change = apply(2**53 - 3, 2**53 - 1, [(start, 2, delta)], last_cut_bin=start - 1)
        assert await stores.store.apply(stores.stream, change) == Reply.DONE
        assert (await loaded(stores)).partitions["0"].position == 2**53 - 1
        await cut_and_seal(stores, start)
        assert (await stores.store.read_cells(stores.stream, start, start, WIDTH)).tolist() == [[0, 0, delta]]


class TestCuts:
    async def test_cuts_ahead_of_the_position_stay_until_it_passes_them(self, stores: Stores) -> None:
        await opened(stores)
        store, stream = stores.store, stores.stream
        cuts = [Cut(FIRST_BIN, 4), Cut(FIRST_BIN + 1, 4), Cut(FIRST_BIN + 5, 8)]
        assert await store.take_cuts(stream, HASH, "0", FIRST_BIN - 1, cuts) == Reply.DONE
        assert (await loaded(stores)).partitions["0"] == PartitionState(0, FIRST_BIN - 1, tuple(cuts))
        last = FIRST_BIN + 5
        assert await store.apply(stream, apply(0, 3, last_cut_bin=last)) == Reply.DONE
        assert (await loaded(stores)).partitions["0"] == PartitionState(3, FIRST_BIN - 1, tuple(cuts))
        assert await store.apply(stream, apply(3, 4, last_cut_bin=last)) == Reply.DONE
        assert (await loaded(stores)).partitions["0"] == PartitionState(4, FIRST_BIN + 1, (cuts[2],))
        assert await store.apply(stream, apply(4, 99, last_cut_bin=last)) == Reply.DONE
        assert (await loaded(stores)).partitions["0"] == PartitionState(99, last, ())

    async def test_retry_is_recognised_by_its_whole_content(self, stores: Stores) -> None:
        await opened(stores)
        store, stream = stores.store, stores.stream
        cuts = [Cut(FIRST_BIN, 0), Cut(FIRST_BIN + 1, 6)]
        assert await store.take_cuts(stream, HASH, "0", FIRST_BIN - 1, cuts) == Reply.DONE
        before = await loaded(stores)
        assert await store.take_cuts(stream, HASH, "0", FIRST_BIN - 1, cuts) == Reply.ALREADY
        # A worker that believed in these other positions would put records into other bins.
        other = [Cut(FIRST_BIN, 0), Cut(FIRST_BIN + 1, 7)]
        assert await store.take_cuts(stream, HASH, "0", FIRST_BIN - 1, other) == Reply.CONFLICT
        assert await store.take_cuts(stream, HASH, "0", FIRST_BIN - 1, cuts[1:]) == Reply.CONFLICT
        assert await loaded(stores) == before

    async def test_cut_below_the_position_or_the_last_cut_conflicts(self, stores: Stores) -> None:
        await opened(stores)
        store, stream = stores.store, stores.stream
        await store.apply(stream, apply(0, 5))
        below = [Cut(FIRST_BIN, 4)]
        assert await store.take_cuts(stream, HASH, "0", FIRST_BIN - 1, below) == Reply.CONFLICT
        assert await store.take_cuts(stream, HASH, "0", FIRST_BIN - 1, [Cut(FIRST_BIN, 9)]) == Reply.DONE
        below = [Cut(FIRST_BIN + 1, 8)]
        assert await store.take_cuts(stream, HASH, "0", FIRST_BIN, below) == Reply.CONFLICT

    async def test_unknown_partition_starts_at_zero_behind_what_is_sealed(self, stores: Stores) -> None:
        await opened(stores)
        await cut_and_seal(stores, FIRST_BIN)
        store, stream = stores.store, stores.stream
        cut = [Cut(FIRST_BIN + 1, 7)]
        assert await store.take_cuts(stream, HASH, "1", FIRST_BIN - 1, cut) == Reply.CONFLICT
        assert "1" not in (await loaded(stores)).partitions
        assert await store.take_cuts(stream, HASH, "1", FIRST_BIN, cut) == Reply.DONE
        assert (await loaded(stores)).partitions["1"] == PartitionState(0, FIRST_BIN, (cut[0],))
        assert await store.start_partition(stream, HASH, "1", 0) == Reply.ALREADY

    async def test_partition_starts_once(self, stores: Stores) -> None:
        await opened(stores)
        store, stream = stores.store, stores.stream
        assert await store.start_partition(stream, HASH, "7", 40) == Reply.DONE
        await store.apply(stream, apply(40, 41, partition="7"))
        assert await store.start_partition(stream, HASH, "7", 40) == Reply.ALREADY
        assert await store.start_partition(stream, HASH, "7", 41) == Reply.CONFLICT
        assert await store.start_partition(stream, "0" * 64, "8", 0) == Reply.STRATEGY
        assert (await loaded(stores)).partitions["7"].position == 41

    @pytest.mark.parametrize("cuts", [[], [Cut(12, 3), Cut(12, 3)], [Cut(12, 3), Cut(13, 2)], [Cut(9, 0)]])
    async def test_impossible_cuts_are_an_error(self, stores: Stores, cuts: list[Cut]) -> None:
        await opened(stores)
        with pytest.raises(ValueError, match="take_cuts: "):
            await stores.store.take_cuts(stores.stream, HASH, "0", FIRST_BIN - 1, cuts)


class TestSeal:
    async def test_slowest_partition_decides(self, stores: Stores) -> None:
        await opened(stores)
        store, stream = stores.store, stores.stream
        await store.start_partition(stream, HASH, "1", 0)
        await store.take_cuts(stream, HASH, "0", FIRST_BIN - 1, [Cut(FIRST_BIN + 3, 0)])
        assert await store.seal(stream, HASH, ["0"], FIRST_BIN + 9) == FIRST_BIN - 1  # partition 1 has no cut
        await store.take_cuts(stream, HASH, "1", FIRST_BIN - 1, [Cut(FIRST_BIN, 0), Cut(FIRST_BIN + 3, 6)])
        assert await store.seal(stream, HASH, ["0"], FIRST_BIN + 9) == FIRST_BIN  # 1 is not yet at its cut
        await store.apply(stream, apply(0, 6, partition="1", last_cut_bin=FIRST_BIN + 3))
        assert await store.seal(stream, HASH, ["0", "2"], FIRST_BIN + 9) == FIRST_BIN  # 2 is not started
        assert await store.seal(stream, "0" * 64, ["0"], FIRST_BIN + 9) == FIRST_BIN
        assert await store.seal(stream, HASH, ["0"], FIRST_BIN + 1) == FIRST_BIN + 1
        assert await store.seal(stream, HASH, ["0"], FIRST_BIN + 9) == FIRST_BIN + 3
        assert await store.seal(stream, HASH, ["0"], FIRST_BIN) == FIRST_BIN + 3  # never goes back

    async def test_nothing_is_sealed_without_a_partition(self, stores: Stores) -> None:
        await stores.store.open_epoch(stores.stream, TEXT, EPOCH, GENESIS)
        assert await stores.store.seal(stores.stream, HASH, [], FIRST_BIN + 9) == FIRST_BIN - 1

    async def test_sealed_bins_never_change(self, stores: Stores) -> None:
        await opened(stores)
        await stores.store.apply(stores.stream, apply(0, 5, CELLS))
        await cut_and_seal(stores, FIRST_BIN)
        late = apply(5, 6, [(FIRST_BIN, 0, 1)], last_cut_bin=FIRST_BIN)
        assert await stores.store.apply(stores.stream, late) == Reply.SEALED
        counts = await stores.store.read_cells(stores.stream, FIRST_BIN, FIRST_BIN, WIDTH)
        assert counts.tolist() == [[2, 0, 1]]
        with pytest.raises(ValueError, match="not sealed"):
            await stores.store.read_cells(stores.stream, FIRST_BIN, FIRST_BIN + 1, WIDTH)
        with pytest.raises(ValueError, match="outside a width of 2"):
            await stores.store.read_cells(stores.stream, FIRST_BIN, FIRST_BIN, 2)


class TestRelease:
    async def test_moves_on_once_and_deletes_the_counts(self, stores: Stores) -> None:
        state = await opened(stores)
        await stores.store.apply(stores.stream, apply(0, 5, CELLS))
        await cut_and_seal(stores, FIRST_BIN + 1)
        first = release_of(state, 2)
        assert await stores.store.release(stores.stream, first) == Reply.DONE
        after = await loaded(stores)
        assert (after.seq, after.head, after.counter) == (2, first.head, first.counter)
        assert after.released_bin == FIRST_BIN + 1
        assert await stores.store.release(stores.stream, first) == Reply.ALREADY
        # A second drawing for the same bins is refused, because the head of the chain has moved.
        assert await stores.store.release(stores.stream, release_of(state, 2, "b")) == Reply.CONFLICT
        assert await loaded(stores) == after
        assert await stores.store.rows(stores.stream, 0, 9) == [(1, b"row 1 a"), (2, b"row 2 a")]
        assert await stores.store.rows(stores.stream, 1, 1) == [(2, b"row 2 a")]
        counts = await stores.store.read_cells(stores.stream, FIRST_BIN, FIRST_BIN + 1, WIDTH)
        assert not counts.any()

    async def test_refusal_changes_nothing(self, stores: Stores) -> None:
        state = await opened(stores)
        await cut_and_seal(stores, FIRST_BIN)
        before = await loaded(stores)
        one, two = release_of(state, 1), release_of(state, 2)
        store, stream = stores.store, stores.stream
        assert await store.release(stream, two) == Reply.NOT_SEALED
        assert await store.release(stream, replace(one, strategy_hash="0" * 64)) == Reply.STRATEGY
        assert await store.release(stream, replace(one, epoch=1)) == Reply.CONFLICT
        assert await store.release(stream, replace(one, expected_seq=1)) == Reply.CONFLICT
        assert await store.release(stream, replace(one, expected_head="1" * 64)) == Reply.CONFLICT
        skipped = replace(one, first_bin=FIRST_BIN + 1, last_bin=FIRST_BIN + 1)
        assert await store.release(stream, skipped) == Reply.CONFLICT
        gap = [replace(append, offset_bytes=append.offset_bytes + 8) for append in one.tiles]
        assert await store.release(stream, replace(one, tiles=gap)) == Reply.CONFLICT
        for impossible in (
            replace(one, rows=[b"a", b"b"]),
            replace(one, tiles=[*one.tiles, one.tiles[0]]),
            replace(one, tiles=[replace(one.tiles[0], data=bytes(256 * 1024 + 8))]),
        ):
            with pytest.raises(ValueError, match="release: "):
                await store.release(stream, impossible)
        assert await loaded(stores) == before
        assert await store.rows(stream, 0, 9) == []
        assert await store.release(stream, one) == Reply.DONE

    async def test_nothing_is_released_beyond_the_epoch(self, stores: Stores) -> None:
        state = await opened(stores)
        await cut_and_seal(stores, FIRST_BIN + BINS)
        assert await stores.store.release(stores.stream, release_of(state, BINS + 1)) == Reply.CONFLICT
        assert await stores.store.release(stores.stream, release_of(state, BINS)) == Reply.DONE


class TestReader:
    async def test_sees_nothing_beyond_visible(self, stores: Stores) -> None:
        await opened(stores)
        state = await release(stores, 1)
        await cut_and_seal(stores, FIRST_BIN + BINS - 1)
        await stores.store.release(stores.stream, release_of(state, BINS - 1))
        for visible in range(BINS + 1):
            await stores.store.publish(stores.stream, visible)
            public = await shown(stores)
            assert (public.strategy, public.visible_seq) == (TEXT, visible)
            assert [e.end_reason for e in public.epochs] == ["complete" if visible == BINS else None]
            rows = await stores.reader.rows(stores.stream, 0, 9)
            assert [seq for seq, _ in rows] == list(range(1, visible + 1))
            assert len(await stores.reader.rows(stores.stream, 1, 2)) == min(max(visible - 1, 0), 2)
            for level in (*SHAPE.levels, 0):
                table = node_table(level) if level else PUBLISHED
                nodes = visible // SHAPE.widths[level] if level else visible
                held = await stores.reader.tile_rows(stores.stream, 0, table, 0, nodes, WIDTH)
                assert held.tolist() == expected_rows(0, level, 0, nodes)
                with pytest.raises(ValueError, match=f"{nodes} are visible"):
                    await stores.reader.tile_rows(stores.stream, 0, table, 0, nodes + 1, WIDTH)

    async def test_news_are_what_rows_and_tables_show(self, stores: Stores) -> None:
        await opened(stores)
        state = await release(stores, 1)
        await cut_and_seal(stores, FIRST_BIN + BINS - 1)
        await stores.store.release(stores.stream, release_of(state, BINS - 1))
        await stores.store.publish(stores.stream, BINS - 1)
        public = await shown(stores)
        wanted = [Missing(0, PUBLISHED, 1, BINS - 2), Missing(0, node_table(1), 0, 1)]
        found = await stores.reader.news(stores.stream, public, 2, wanted)
        assert found is not None
        assert found.rows == await stores.reader.rows(stores.stream, 2, 99)
        for one, rows in zip(wanted, found.tables, strict=True):
            expected = await stores.reader.tile_rows(stores.stream, *one, WIDTH)
            assert rows.tolist() == expected.tolist()
        earlier = replace(public, visible_seq=1)  # later rows stay unread
        found = await stores.reader.news(stores.stream, earlier, 0, [Missing(0, PUBLISHED, 0, 1)])
        assert found is not None
        assert [seq for seq, _ in found.rows] == [1]
        with pytest.raises(ValueError, match="1 are visible"):
            await stores.reader.news(stores.stream, earlier, 0, [Missing(0, PUBLISHED, 0, 2)])

    async def test_an_outdated_state_gets_no_news(self, stores: Stores) -> None:
        await opened(stores)
        await release(stores, 1)
        await stores.store.publish(stores.stream, 1)
        public = await shown(stores)
        [epoch] = public.epochs
        ended = replace(epoch, last_bin=epoch.first_bin, end_reason="operator")
        for other in (
            replace(public, visible_seq=2),  # a seq that is not visible
            replace(public, epochs=(ended,)),
            replace(public, epochs=()),
        ):
            assert await stores.reader.news(stores.stream, other, 0, []) is None
        assert await stores.reader.news("another", public, 0, []) is None

    async def test_visible_never_goes_back_nor_beyond_released(self, stores: Stores) -> None:
        await opened(stores)
        await release(stores, 2)
        for seq, expected in ((3, 0), (1, 1), (0, 1), (2, 2), (1, 2), (99, 2)):
            await stores.store.publish(stores.stream, seq)
            public = await shown(stores)
            assert public.visible_seq == expected

    async def test_unknown_epoch_has_no_rows(self, stores: Stores) -> None:
        await opened(stores)
        with pytest.raises(ValueError, match="0 are visible"):
            await stores.reader.tile_rows(stores.stream, 5, PUBLISHED, 0, 1, WIDTH)
        with pytest.raises(LookupError, match="never opened"):
            await stores.reader.tile_rows("another", 0, PUBLISHED, 0, 1, WIDTH)

    async def test_answers_a_ping(self, stores: Stores) -> None:
        await stores.reader.ping()


class TestRest:
    async def test_ledger_keeps_entries_in_order_and_for_ever(self, stores: Stores) -> None:
        store, source = stores.store, f"file:/data/{stores.stream}"
        entries = [
            replace(ENTRY, source=source, stream=stream, epoch=epoch)
            for stream, epoch in (("b", 0), ("a", 0), ("a", 1), *(("c", epoch) for epoch in range(9)))
        ]
        for entry in entries:
            assert await store.reserve(entry) == Reply.DONE
        assert await store.reserve(entries[0]) == Reply.ALREADY
        assert await store.reserve(replace(entries[0], epsilon="1/2")) == Reply.CONFLICT
        assert await store.ledger(source) == tuple(entries)
        assert await stores.reader.ledger(source) == tuple(entries)
        assert await store.ledger(source + "/other") == ()

    async def test_one_worker_at_a_time_holds_a_lease(self, stores: Stores) -> None:
        store, stream = stores.store, stores.stream
        assert await store.hold([stream], "a", 60_000) == [Reply.DONE]
        assert await store.hold([stream], "a", 60_000) == [Reply.DONE]
        assert await store.hold([stream], "b", 60_000) == [Reply.CONFLICT]
        assert await store.hold([stream], "a", 100) == [Reply.DONE]
        await asyncio.sleep(0.2)
        assert await store.hold([stream], "b", 60_000) == [Reply.DONE]
        assert await store.hold([stream], "a", 60_000) == [Reply.CONFLICT]
        assert await store.hold([stream], "a", 0) == [Reply.CONFLICT]
        assert await store.hold([stream], "b", 0) == [Reply.DONE]
        assert await store.hold([stream], "a", 60_000) == [Reply.DONE]

    async def test_a_lease_goes_to_the_witness_of_the_last_lost_row(self, stores: Stores) -> None:
        store, stream = stores.store, stores.stream
        assert await store.hold([stream], "a", 60_000) == [Reply.DONE]
        assert await store.hold([stream], "b", 60_000, [7]) == [Reply.DONE]
        assert await store.hold([stream], "a", 60_000) == [Reply.BEHIND]
        assert await store.hold([stream], "a", 60_000, [7]) == [Reply.BEHIND]
        assert await store.hold([stream], "a", 60_000, [8]) == [Reply.DONE]
        assert await store.hold([stream], "b", 60_000, [7]) == [Reply.BEHIND]
        assert await store.hold([stream], "a", 60_000) == [Reply.DONE]
        assert await store.hold([stream], "b", 60_000) == [Reply.CONFLICT]
        assert await store.hold([stream, stream + "'"], "b", 60_000, [0, 1]) == [Reply.CONFLICT, Reply.DONE]

    async def test_live_workers_with_the_same_streams_see_each_other(self, stores: Stores) -> None:
        store, source = stores.store, stores.stream
        assert await store.attend(source, "ab", "b", 60_000) == ["b"]
        assert await store.attend(source, "cd", "other streams", 60_000) == ["other streams"]
        assert await store.attend(source, "ab", "a", 100) == ["a", "b"]
        await asyncio.sleep(0.2)
        assert await store.attend(source, "ab", "c", 60_000) == ["b", "c"], "it does not live any more"
        assert await store.attend(source, "ab", "b", 0) == ["c"], "it has left"
        assert await store.attend(source, "ab", "b", 0) == ["c"]

    async def test_operator_counts_add_up_once_per_applied_change(self, stores: Stores) -> None:
        await opened(stores)
        store, stream = stores.store, stores.stream
        await store.start_partition(stream, HASH, "0", 0)
        first = replace(apply(0, 5, [(FIRST_BIN, 0, 3)]), operator_counts={"late": 2, "future": 1})
        second = replace(apply(5, 9), operator_counts={"late": 5})
        outdated = replace(apply(5, 9, last_cut_bin=FIRST_BIN), operator_counts={"late": 100})
        replies = [await store.apply(stream, change) for change in (first, first, outdated, second, second)]
        assert replies == [Reply.DONE, Reply.ALREADY, Reply.CUTS_CHANGED, Reply.DONE, Reply.ALREADY]
        assert await store.operator_counts(stream) == {"late": 7, "future": 1}

    async def test_clock_and_mark_do_not_go_back(self, stores: Stores) -> None:
        readings = [await stores.store.now_us(2**53) for _ in range(20)]
        assert readings == sorted(readings)
        assert all(mark <= now for now, mark in readings)
        assert readings[0][0] > 1_600_000_000_000_000

    async def test_a_time_later_than_allowed_is_not_noted(self, stores: Stores) -> None:
        now_us, _ = await stores.store.now_us()
        await asyncio.sleep(1.01)  # the mark may be up to a second behind the time
        later, mark_us = await stores.store.now_us(now_us)
        assert later > now_us
        assert (await stores.store.now_us(now_us))[1] == mark_us
        await stores.store.now_us()  # a question that allows no time notes none
        assert (await stores.store.now_us())[1] == mark_us
        await stores.store.now_us(2**53)
        assert (await stores.store.now_us())[1] >= later

    async def test_names_cannot_imitate_other_keys(self, stores: Stores) -> None:
        names = [f"{stores.stream}{{a}}:pub:x", f"{stores.stream}*", f"{stores.stream} ü/%7B"]
        partitions = ["0:pub:1", "{b}", "ü"]
        for stream in names:
            await stores.store.open_epoch(stream, TEXT, EPOCH, GENESIS)
            for partition in partitions:
                assert await stores.store.start_partition(stream, HASH, partition, 3) == Reply.DONE
                cut = Cut(FIRST_BIN, 9)
                assert await stores.store.take_cuts(stream, HASH, partition, 9, [cut]) == Reply.DONE
            state = await stores.store.load(stream)
            assert state is not None
            assert set(state.partitions) == set(partitions)
            assert all(p.cuts == (Cut(FIRST_BIN, 9),) for p in state.partitions.values())
        assert set(names) <= set(await stores.reader.streams())
