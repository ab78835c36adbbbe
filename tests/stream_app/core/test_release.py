"""A release: its rows and tiles, how the next release continues, and no exact count in any public byte."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.noise import SeededNoise
from dphist.planning.tree import plan_tree
from dphist.tree.counter import TreeCounter
from dphist.tree.estimate import ReleasedForest
from stream_app.core.instants import parse_instant
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.tables import PUBLISHED, node_table
from stream_app.core.records import GENESIS, EpochRecord, StreamState, WitnessRow
from stream_app.core.releases import release as release_module
from stream_app.core.releases.release import RowLink, make_release, row_errors, row_hash
from stream_app.core.releases.restored import WitnessedStream
from stream_app.core.releases.row_values import settings_beside, strategies_in
from stream_app.core.releases.tiles import LARGEST_TILE_BYTES, TileGeometry, join_slices, tile_appends
from stream_app.core.store_writes import Release, TileKey
from stream_app.core.strategy import Strategy
from tests.examples import examples
from tests.simulator.given_noise import GivenNoise, node_sums, shifted
from tests.stream_app.declared import BIN_US, FIRST_BIN, design_of, strategy_of

SHARES = (Fraction(1, 6), Fraction(1, 3), Fraction(1, 2))
NOISY = strategy_of(replace(design_of((2, 3, 2), Fraction(1, 2)), shares=SHARES))
few = examples(20)  # most of the time goes into intervals, which are tested elsewhere

widths = st.sampled_from([1, 2, 1023, 1024, 1025, 3000])


def state_of(strategy: Strategy) -> StreamState:
    """Return a stream whose first epoch has just been opened."""
    record = EpochRecord(0, FIRST_BIN, strategy.design.horizon, 1, strategy.hash)
    return StreamState(strategy.to_json(), record, 0, GENESIS, FIRST_BIN - 1, FIRST_BIN - 1, b"")


def after(state: StreamState, release: Release) -> StreamState:
    """Return the state once the store has accepted a release."""
    return replace(
        state,
        seq=release.expected_seq + len(release.rows),
        head=release.head,
        released_bin=release.last_bin,
        counter=release.counter,
    )


def in_steps(
    strategy: Strategy,
    counts: np.ndarray,
    steps: list[int],
    noise: dict[Any, Any] | None = None,
    width: int = 1,
) -> list[Release]:
    """Release counts in steps of several bins. Each step starts from the state after the step before."""
    state, releases, done = state_of(strategy), [], 0
    source = GivenNoise(strategy.design, noise or node_noise(strategy, width), width)
    for step in steps:
        releases.append(make_release(state, strategy, counts[done : done + step], source, nonce="n"))
        state, done = after(state, releases[-1]), done + step
    return releases


def node_noise(strategy: Strategy, width: int = 1) -> dict[Any, Any]:
    """Draw some noise for every node of the tree."""
    rng = np.random.default_rng(3)
    nodes = node_sums(strategy.design.shape, np.zeros((strategy.design.horizon, width), np.int64))
    return {node: rng.integers(-9, 10, size=width) for node in nodes}


def messages(releases: list[Release]) -> list[dict[str, Any]]:
    """Return all rows as messages."""
    return [json.loads(row) for release in releases for row in release.rows]


counts_of = st.lists(st.integers(0, 50), min_size=12, max_size=12).map(lambda row: np.array([row]).T)

cut_up = st.lists(st.integers(1, 5), min_size=1, max_size=12).map(lambda steps: _up_to(steps, 12))


def _up_to(steps: list[int], total: int) -> list[int]:
    taken: list[int] = []
    for step in steps:
        taken.append(min(step, total - sum(taken)))
        if sum(taken) == total:
            break
    return [step for step in taken if step]


@few
@given(counts_of, cut_up)
def test_the_number_of_bins_per_release_does_not_change_the_rows(
    counts: np.ndarray, steps: list[int]
) -> None:
    """Rows and the counter's state are equal to the last bit, whatever the number of bins in a step."""
    parts = in_steps(NOISY, counts, steps)
    [whole] = in_steps(NOISY, counts, [sum(steps)])
    assert [row for part in parts for row in part.rows] == whole.rows
    assert parts[-1].counter == whole.counter


@pytest.mark.slow
@pytest.mark.parametrize("release", ["causal", "anticipating"])
def test_rows_do_not_tell_which_bins_were_released_together(
    release: Literal["causal", "anticipating"],
) -> None:
    """That number depends on the speed of reading, so not even the last bits of a float may reveal it."""
    bins = 8_760
    strategy = strategy_of(plan_tree(bins, 1, release=release))
    whole = row_errors(strategy, 0, bins)
    for steps in ([1] * 200, [7] * 100, [64] * 12, [63, 1, 65, 127, 256, 8, 1000]):
        release_module.errors_of_block.cache_clear()
        stops = np.cumsum(steps).tolist()
        parts = [row_errors(strategy, stop - step, step) for step, stop in zip(steps, stops, strict=True)]
        assert [error for part in parts for error in part] == whole[: stops[-1]]


def test_rows_have_different_nonces_that_do_not_show_the_attempt() -> None:
    nonces = [message["nonce"] for message in messages(in_steps(NOISY, np.ones((12, 1), np.int64), [5, 7]))]
    assert len(set(nonces)) == 12
    assert {len(nonce) for nonce in nonces} == {32}
    again = messages(in_steps(NOISY, np.ones((12, 1), np.int64), [12]))
    assert [message["nonce"] for message in again] == nonces  # in_steps gives all attempts the same name


@few
@given(counts_of, cut_up)
def test_rows_form_a_chain(counts: np.ndarray, steps: list[int]) -> None:
    releases = in_steps(NOISY, counts, steps)
    head, seq, bin = GENESIS, 0, FIRST_BIN - 1
    for release in releases:
        assert (release.expected_head, release.expected_seq, release.first_bin) == (head, seq, bin + 1)
        for row in release.rows:
            message = json.loads(row)
            seq, bin = seq + 1, bin + 1
            assert RowLink.of(row) == RowLink(seq, 0, bin, head, hashlib.sha256(row).hexdigest())
            assert parse_instant(message["start"]) == bin * BIN_US
            assert parse_instant(message["end"]) == (bin + 1) * BIN_US
            assert (message["stream"], message["strategy"]) == ("visits", NOISY.hash)
            head = row_hash(row)
        assert (release.head, release.last_bin) == (head, bin)


@few
@given(counts_of, cut_up)
def test_tiles_hold_what_the_rows_say(counts: np.ndarray, steps: list[int]) -> None:
    """Tiles and rows hold the same nodes and published values."""
    releases = in_steps(NOISY, counts, steps)
    tiles: dict[str, bytes] = {}
    for release in releases:
        for append in release.tiles:
            known = tiles.get(append.key.table, b"")
            assert append.offset_bytes == len(known)
            tiles[append.key.table] = known + append.data
    nodes: dict[str, list[int]] = {table: [] for table in NOISY.kind.tables}
    for message in messages(releases):
        nodes[PUBLISHED] += message["published"]
        for level, index, values in message["nodes"]:
            assert index == len(nodes[node_table(level)])
            nodes[node_table(level)] += values
    found = {level: np.frombuffer(data, "<i8").tolist() for level, data in tiles.items()}
    assert found == {level: values for level, values in nodes.items() if values}


@few
@given(counts_of)
def test_rows_state_the_forest_s_estimates(counts: np.ndarray) -> None:
    """A reader computes the row's estimate, variance and interval from the nodes."""
    releases = in_steps(NOISY, counts, [5, 7])
    forest = ReleasedForest(NOISY.design)
    pushed = TreeCounter(NOISY.design, GivenNoise(NOISY.design, node_noise(NOISY), 1)).push_many(counts)
    for position, message in enumerate(messages(releases)):
        forest.append(pushed.bin(position))
        live = forest.live_prefix(position + 1)
        [[lower, upper]] = message["interval"]
        interval = live.interval(message["confidence"])
        assert message["estimate"] == [live.value]
        assert message["variance"] == pytest.approx(live.variance)
        assert lower <= interval.lower + 1e-3
        assert upper >= interval.upper - 1e-3
        assert (upper - lower) / 2 == pytest.approx(live.value - interval.lower, abs=0.3)


@pytest.mark.slow
@few
@given(counts_of, st.integers(0, 11), st.integers(1, 5))
def test_the_public_half_depends_on_counts_through_noisy_nodes_only(
    counts: np.ndarray, bin: int, more: int
) -> None:
    """If counts and noise change so that noisy nodes stay the same, every public byte stays the same."""
    change = np.zeros_like(counts)
    change[bin] = more
    hidden = shifted(NOISY.design.shape, node_noise(NOISY), -change)
    first, second = in_steps(NOISY, counts, [7, 5]), in_steps(NOISY, counts + change, [7, 5], hidden)
    assert [release.rows for release in first] == [release.rows for release in second]
    assert [release.tiles for release in first] == [release.tiles for release in second]


def test_wide_row_has_one_value_per_cell() -> None:
    strategy = Strategy("visits", NOISY.declared, kind_of(NOISY.design, width=3))
    counts = np.arange(36).reshape(12, 3)
    silence = dict.fromkeys(node_noise(strategy), np.zeros(3, np.int64))
    [release] = in_steps(strategy, counts, [12], silence, width=3)
    last = json.loads(release.rows[-1])
    assert last["estimate"] == counts.sum(axis=0).tolist()
    assert [len(last[key]) for key in ("published", "interval")] == [3, 3]


def test_two_attempts_differ_even_if_their_noise_does_not() -> None:
    counts = np.ones((1, 1), np.int64)
    first, second = (
        make_release(state_of(NOISY), NOISY, counts, SeededNoise(1), nonce) for nonce in ("a", "b")
    )
    assert first.tiles == second.tiles
    assert first.head != second.head


def test_the_first_row_of_an_epoch_tells_the_settings() -> None:
    """Each row has their hash. A row that an older build wrote tells none. Readers learn no source's name."""
    rows = [row for release in in_steps(NOISY, np.ones((12, 1), np.int64), [1, 11]) for row in release.rows]
    witnessed = [WitnessRow(seq, row, settings_beside(NOISY, row)) for seq, row in enumerate(rows, 1)]
    settings = json.loads(NOISY.to_json())
    del settings["source"], settings["declared"]["source"]
    assert json.loads(rows[0])["settings"] == settings
    assert ["settings" in json.loads(row) for row in rows] == [True, *[False] * 11]
    assert list(strategies_in(witnessed)) == [NOISY]
    assert WitnessedStream.of(witnessed).strategies == {NOISY.hash: NOISY}
    with pytest.raises(ValueError, match="another strategy"):
        WitnessedStream.of(witnessed[1:])
    assert WitnessedStream.of(witnessed[1:], [NOISY]).last == NOISY
    other = zlib.compress(NOISY.to_json().replace(b"1/2", b"9/1"))
    with pytest.raises(ValueError, match="row 1: its settings are not those that it has the hash of"):
        WitnessedStream.of([WitnessRow(1, rows[0], other), *witnessed[1:]])


def test_bins_beyond_the_epoch_are_refused_without_a_count_in_the_message() -> None:
    with pytest.raises(ValueError, match="horizon") as refusal:
        make_release(state_of(NOISY), NOISY, np.full((13, 1), 98765), SeededNoise(1), "n")
    assert "98765" not in str(refusal.value)


def stored(tiles: dict[TileKey, bytes], width: int, first: int, count: int) -> np.ndarray:
    pieces = TileGeometry(width).slices(0, PUBLISHED, first, count)
    return join_slices(
        count, width, ((p, tiles[p.key][p.offset_bytes : p.offset_bytes + p.length_bytes]) for p in pieces)
    )


@given(width=widths, steps=st.lists(st.integers(0, 40), max_size=3), data=st.data())
def test_appended_rows_are_read_back(width: int, steps: list[int], data: st.DataObject) -> None:
    total = sum(steps)
    values = np.arange(total * width, dtype=np.int64).reshape(total, width) * -(2**41) + 7
    tiles: dict[TileKey, bytes] = {}
    done = 0
    for step in steps:
        appends = tile_appends(0, PUBLISHED, done, values[done : done + step])
        assert len({append.key for append in appends}) == len(appends)
        for append in appends:
            held = tiles.get(append.key, b"")
            assert len(held) == append.offset_bytes
            tiles[append.key] = held + append.data
            cells = min(width - append.key.cell_block * 1024, 1024)
            assert append.fills == (len(tiles[append.key]) == TileGeometry(width).rows_per_tile * cells * 8)
        done += step
    assert all(len(tile) <= LARGEST_TILE_BYTES for tile in tiles.values())
    first = data.draw(st.integers(0, total))
    count = data.draw(st.integers(0, total - first))
    np.testing.assert_array_equal(stored(tiles, width, first, count), values[first : first + count])


@given(width=widths, row_block=st.integers(0, 10**6))
def test_tiles_fill_before_the_next_one_starts(width: int, row_block: int) -> None:
    geometry = TileGeometry(width)
    first = row_block * geometry.rows_per_tile
    pieces = list(geometry.slices(3, "2", first, geometry.rows_per_tile))
    assert {(piece.key.epoch, piece.key.table, piece.key.row_block) for piece in pieces} == {
        (3, "2", row_block)
    }
    assert sum(piece.length_bytes for piece in pieces) == geometry.rows_per_tile * width * 8
    assert all(piece.offset_bytes == 0 for piece in pieces)
    last = next(geometry.slices(3, "2", first + geometry.rows_per_tile - 1, 1))
    assert (last.key, last.offset_bytes + last.length_bytes) == (pieces[0].key, pieces[0].length_bytes)
    assert next(geometry.slices(3, "2", first + geometry.rows_per_tile, 1)).key.row_block == row_block + 1


def test_bytes_are_little_endian_int64() -> None:
    [append] = tile_appends(1, "4", 2, np.array([[-2, 258]]))
    assert append.key == TileKey(1, "4", 0, 0)
    assert append.offset_bytes == 2 * 2 * 8
    assert append.data == b"\xfe" + b"\xff" * 7 + b"\x02\x01" + bytes(6)


def test_wrong_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        tile_appends(0, PUBLISHED, 0, np.array([1, 2]))
    with pytest.raises(ValueError, match="float64"):
        tile_appends(0, PUBLISHED, 0, np.array([[1.5]]))
    with pytest.raises(ValueError, match="at least 0"):
        list(TileGeometry(1).slices(0, PUBLISHED, -1, 2))
    with pytest.raises(ValueError, match="at least 1"):
        TileGeometry(0)


def test_lost_bytes_are_not_read_as_zeros() -> None:
    [append] = tile_appends(0, PUBLISHED, 0, np.ones((3, 2), dtype=np.int64))
    with pytest.raises(ValueError, match="40 of 48 bytes; data are lost"):
        stored({append.key: append.data[:-8]}, 2, 0, 3)
