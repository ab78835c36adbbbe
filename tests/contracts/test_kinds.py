"""The contract that every kind of release keeps towards the chain of rows, the store and readers.

One suite tests all kinds, and also a toy kind from ``kinds.py``. Its oracle for errors uses that every answer
is a weighted sum of noise draws. If one draw is 1 and all others are 0, the answer is that draw's weight.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.arrays import Int64Array
from dphist.laws.law import discrete_laplace_variance
from dphist.noise import Scale, SeededNoise
from dphist.tree.anticipating import BinsNoise
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds import READERS, Kind
from stream_app.core.kinds.pages import part_of_page, read_page
from stream_app.core.kinds.tables import PUBLISHED, Closed, Span
from stream_app.core.records import GENESIS, EpochRecord, PublicState, StreamState
from stream_app.core.releases.release import make_release, row_hash
from stream_app.core.strategy import Strategy
from stream_app.state.keys import StreamKeys
from tests.contracts.kinds import BINS, KINDS, toy
from tests.examples import examples
from tests.stream_app.declared import declared_of

pytestmark = pytest.mark.slow

FIRST_BIN = 100
DECLARED = declared_of(source="file:a", bin_us=1000, epoch_bins=BINS)
# Hashes of strategy, noise pages, rows (without floats) and tiles: of trees from before kinds had files.
AS_STORED_BEFORE = {
    "tree causal": "b376e99e119ed6389f7979f6e36ef83cec28f77e1423717f6a3c809d627e4eb3",
    "tree anticipating": "5757bdb9dfcacd38be7a2f3c06ce0329fea8fafaf4d2caad920e6781e821e36d",
    "axes causal": "9f456f9f39492e1ebce84a0a34f6b5aac9b0c4e249c816845fc8d01c67959350",
    "axes anticipating": "f67f3be11932e861cc4b5b8fe50c5b86e241ae9aba987cddf71d875ba424b9ea",
    "windows causal": "bdd92b97270d2b7cb31f776af1f4235540bd1142542369318d95b926378159a2",
    "windows anticipating": "7f40dffda951986f1a7b732dd40059d62d67c96256c171458eddff906e99e1c6",
    "over epochs causal": "356f44bcd0b38ce76c34921c3446a62dbd2f81c8b5c13835bdcad6bd8838cf2f",
    "over epochs anticipating": "20b8f456fd684366d16db105ecd13c7d6359f10e01ab7151b06a9eb3ef276df2",
    "toeplitz": "ea4c296ec3e586226ec4224a1233866a1b69fbc5a7938977cad242c659571fdf",
    "toeplitz keys": "0d926b76add3f5cdc2dfb4360bbcb255e04fa0ad129387d6a33f58d3e776e02a",
}
# Secret states in version 2 of their format.
STATES = {
    "tree causal": "242897f501fc00b3e9a779d65e34fda1011a6423c6096a99b664ab5d95005e65",
    "tree anticipating": "2ed1e87d3a11d2bcee5f9b66421cfe8d0bf8b3cdd337dfec323e2c32093d2c0d",
    "axes causal": "977b05750cc73dca86c7e6c3a5f5b8b3fb22a4e96477b374657bf133c3876d2c",
    "axes anticipating": "b5994d0167b4c8ad85177bce02cf7eeb3327ed05efbf029ed33edf37762a59bc",
    "windows causal": "b2df894e3d1c1531ad326826609635c35051f220671d9d5533fa7afa0c99e14b",
    "windows anticipating": "2fa0633929015a46c5a322b118d5984e188b5de14a40b620d7ab8d8e7192c95f",
    "over epochs causal": "deb4a43dc1e9a816000e74d9ea4c9235f5cf4169e618f27eea24213ecb9b907f",
    "over epochs anticipating": "faf166f016fcf192d703f006e39d7f820d98ba11ebfd4d21d090aa3e2ed2b4fc",
    "toeplitz": "b6fd7d29dc562663d731c9533862ccf2e6396b65d840f6662f07ba2d80b88bb7",
    "toeplitz keys": "e478c3a71b04b680c1b869fe63736923beaffd66c4051a141479452d356e8519",
}
STATES_OF_VERSION_1 = json.loads(Path(__file__).with_name("states_of_version_1.json").read_text())
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
cuts = st.sets(st.integers(1, BINS - 1)).map(lambda inner: [0, *sorted(inner), BINS])


@dataclass
class Impulse:
    """Noise that is 0 in every draw but one.

    Args: draws, of each draw so far, its variance and the size of an impulse in its place.
    """

    at: int = -1
    private: bool = True
    draws: list[tuple[float, int]] = field(default_factory=list)

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Return zeros, with the impulse if the draw is among them; counts."""
        return self._zeros(discrete_laplace_variance(float(scale)), 1 << 20, shape)

    def discrete_gaussian(self, variance: Fraction, shape: int | tuple[int, ...]) -> Int64Array:
        """Return zeros, with the impulse if the draw is among them; steps of a lattice."""
        return self._zeros(float(variance), 1 << 40, shape)

    def _zeros(self, variance: float, size: int, shape: int | tuple[int, ...]) -> Int64Array:
        values = np.zeros(shape, np.int64)
        begun = len(self.draws)
        self.draws += [(variance, size)] * values.size
        if begun <= self.at < len(self.draws):
            values.reshape(-1)[self.at - begun] = size
        return values

    def select(self, scores: Any, scale: Scale) -> int:
        """Fail: the mechanisms of these kinds select nothing."""
        raise AssertionError("these kinds select nothing")


def strategy_of(kind: Kind) -> Strategy:
    """Return the strategy of a stream of this kind."""
    return Strategy("visits", DECLARED, kind)


def drawn(kind: Kind, noise: Any) -> BinsNoise | None:
    """Return an epoch's noise, drawn and read back from its page; None if the kind does not draw ahead."""
    if not kind.drawn_ahead:
        return None
    [page] = kind.draw_pages(noise)
    return read_page(kind.page_geometry(), 0, page)


def closings(
    kind: Kind, counts: Int64Array, steps: list[int], noise: Any, held: bytes = b""
) -> Iterator[Closed]:
    """Close the bins of an epoch in steps; yield the result of each step.

    Args: steps, the first bin of each step, from 0 on, then the end of the last step.
    """
    page = drawn(kind, noise)
    for start, stop in pairwise(steps):
        ahead = page and part_of_page(kind.page_geometry(), page, range(start, stop))
        closed = kind.close(held, counts[start:stop], noise, ahead)
        held = closed.state
        yield closed


def tables_of(kind: Kind, closed: list[Closed]) -> dict[str, Int64Array]:
    """Return all rows of all tables. Each block must begin where the previous block of its table ended."""
    found = {table: np.zeros((0, width), np.int64) for table, width in kind.tables.items()}
    for block in (block for one in closed for block in one.blocks):
        assert block.first == len(found[block.table])
        found[block.table] = np.concatenate([found[block.table], block.values])
    return found


def some_counts(kind: Kind, seed: int) -> Int64Array:
    """Return exact counts of an epoch."""
    return np.random.default_rng(seed).integers(0, 50, (BINS, kind.width))


@every_kind
@examples(10)
@given(steps=cuts, seed=st.integers(0, 99))
def test_tables_grow_by_as_many_rows_as_the_kind_says(kind: Kind, steps: list[int], seed: int) -> None:
    counts, done = some_counts(kind, seed), list[Closed]()
    for closed in closings(kind, counts, steps, SeededNoise(seed)):
        done.append(closed)
        bins = closed.first_bin + len(closed)
        rows = {table: len(values) for table, values in tables_of(kind, done).items()}
        assert rows == {table: kind.rows_after(table, bins) for table in kind.tables}


@every_kind
@examples(10)
@given(steps=cuts, seed=st.integers(0, 99))
def test_state_after_several_closings_equals_the_state_after_one(
    kind: Kind, steps: list[int], seed: int
) -> None:
    """The tables hold each row once, whatever the number of closings."""
    counts = some_counts(kind, seed)
    whole, cut = (list(closings(kind, counts, edges, Impulse())) for edges in ([0, BINS], steps))
    assert cut[-1].state == whole[-1].state
    assert np.array_equal(np.concatenate([one.running for one in cut]), whole[0].running)
    found, expected = tables_of(kind, cut), tables_of(kind, whole)
    assert all(np.array_equal(found[table], expected[table]) for table in kind.tables)


@every_kind
@examples(10)
@given(seed=st.integers(0, 99))
def test_noise_is_added_to_exact_counts_and_depends_on_none(kind: Kind, seed: int) -> None:
    """The counts add the same amounts to the released numbers, whatever the noise is."""
    counts = some_counts(kind, seed)

    def released(noise: Any, counts: Int64Array) -> dict[str, Int64Array]:
        return tables_of(kind, list(closings(kind, counts, [0, 5, BINS], noise)))

    with_noise, alone = released(SeededNoise(seed), counts), released(SeededNoise(seed), counts * 0)
    exact, nothing = released(Impulse(), counts), released(Impulse(), counts * 0)
    for table in kind.tables:
        moved, added = with_noise[table] - alone[table], exact[table] - nothing[table]
        # Running counts are sums of rounded estimates: they may differ by a few units of 2^-16 per level.
        assert np.abs(moved - added).max(initial=0) <= (8 if table == PUBLISHED else 0)


@every_kind
def test_rows_of_the_chain_vouch_for_every_row_of_every_table(kind: Kind) -> None:
    """If a number of a table changes, the chain row of its bin changes, and no other row."""
    [closed] = closings(kind, some_counts(kind, 1), [0, BINS], SeededNoise(1))
    before = [parts(kind, closed, bin) for bin in range(BINS)]
    for number, block in enumerate(closed.blocks):
        for index in range(len(block.values)):
            values = block.values.copy()
            values[index, 0] += 1
            blocks = list(closed.blocks)
            blocks[number] = replace(block, values=values)
            running = (
                values
                if block.table == PUBLISHED and values.shape == closed.running.shape
                else closed.running
            )
            other = replace(closed, blocks=tuple(blocks), running=running)
            after = [parts(kind, other, bin) for bin in range(BINS)]
            [bin] = [
                bin for bin in range(BINS) if kind.rows_after(block.table, bin + 1) == block.first + index + 1
            ][:1]
            assert [place for place in range(BINS) if before[place] != after[place]] == [bin]


def parts(kind: Kind, closed: Closed, bin: int) -> str:
    """Return the part of a chain row that depends on the bin's tables."""
    return json.dumps([closed.running[bin].tolist(), kind.row_part(closed, bin)])


# -- errors -----------------------------------------------------------------------------------------


def two_epochs(kind: Kind, noise: Any, strategy: Strategy) -> StreamView:
    """Return a view of two complete epochs without events."""
    view, held, bins = StreamView(strategy.to_json()), b"", 2 * BINS
    records = tuple(
        EpochRecord(number, FIRST_BIN + number * BINS, BINS, 1 + number * BINS, strategy.hash)
        for number in range(2)
    )
    tables = []
    for _ in records:
        closed = list(closings(kind, np.zeros((BINS, kind.width), np.int64), [0, BINS], noise, held))
        tables.append(tables_of(kind, closed))
        held = kind.kept(closed[-1].state)
    state = PublicState(strategy.to_json(), records, bins)
    wanted = view.missing(state)
    view.extend(state, [(w, tables[w.epoch][w.table][w.first : w.first + w.rows]) for w in wanted])
    return view


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the service's code read strategies of the toy kind."""
    monkeypatch.setitem(READERS, "toy", lambda text, design: replace(toy(), design=design))


SPANS = (Span(0, 24), Span(3, 4), Span(2, 17), Span(0, 12), Span(11, 24))


@every_kind
@pytest.mark.usefixtures("registered")
def test_stated_variances_are_those_of_linear_response(kind: Kind) -> None:
    strategy, probe = strategy_of(kind), Impulse()
    view = two_epochs(kind, probe, strategy)
    spans = [Span(FIRST_BIN + start, FIRST_BIN + stop) for start, stop in SPANS]
    found = np.zeros(len(spans))
    rows = np.zeros(BINS)
    for at, (variance, size) in enumerate(probe.draws):
        moved = two_epochs(kind, Impulse(at), strategy)
        weights = np.array([float(moved.count(span).value) for span in spans]) / size
        found += weights**2 * variance
        first = moved.epochs[0].running_values("running", "first_published") / size
        rows += first**2 * variance
    assert [view.count(span).variance for span in spans] == pytest.approx(found.tolist(), rel=1e-6)
    shown = view.series("running", spans[0], view="first_published")
    assert [float(one) ** 2 for one in shown.laws.deviations()[:BINS]] == pytest.approx(
        rows.tolist(), rel=1e-6
    )
    stated = [variance for variance, _ in kind.row_errors(np.arange(BINS))]
    assert stated == pytest.approx(rows.tolist(), rel=1e-6)


# -- what is stored ---------------------------------------------------------------------------------


@every_kind
@pytest.mark.usefixtures("registered")
def test_a_strategy_is_read_back_with_its_kind(kind: Kind) -> None:
    strategy = strategy_of(kind)
    again = Strategy.from_json(strategy.to_json())
    assert (again, again.kind, again.hash) == (strategy, kind, strategy.hash)


@pytest.mark.parametrize("name", AS_STORED_BEFORE)
def test_everything_stored_has_the_pinned_hash(name: str) -> None:
    """States have a separate hash, because version 2 of their format changed their bytes and nothing else."""
    kind = KINDS[name]
    strategy, noise = strategy_of(kind), SeededNoise(5)
    counts = np.random.default_rng(3).integers(0, 9, (BINS, kind.width))
    record = EpochRecord(0, FIRST_BIN, BINS, 1, strategy.hash)
    state = StreamState(strategy.to_json(), record, 0, GENESIS, FIRST_BIN - 1, FIRST_BIN - 1, b"")
    digest, states, page, head = hashlib.sha256(strategy.to_json()), hashlib.sha256(), None, GENESIS
    if kind.drawn_ahead:
        [data] = kind.draw_pages(noise)
        digest.update(data)
        page = read_page(kind.page_geometry(), 0, data)
    for start, stop in ((0, 1), (1, 5), (5, 12)):
        ahead = page and part_of_page(kind.page_geometry(), page, range(start, stop))
        release = make_release(state, strategy, counts[start:stop], noise, "n", ahead)
        for row in release.rows:
            fields = json.loads(row)
            assert fields.pop("prev") == head
            head = row_hash(row)
            assert (fields.pop("settings", None) is None) == (
                fields["bin"] > FIRST_BIN
            )  # earlier rows had none
            del fields["variance"], fields["interval"]  # floats, whose last bits depend on the machine
            digest.update(json.dumps(fields, sort_keys=True).encode())
        for tile in release.tiles:
            digest.update(f"{StreamKeys('visits').tile(tile.key)} {tile.offset_bytes} ".encode() + tile.data)
        states.update(release.counter)
        state = replace(
            state, seq=stop, head=release.head, released_bin=release.last_bin, counter=release.counter
        )
    assert digest.hexdigest() == AS_STORED_BEFORE[name]
    assert states.hexdigest() == STATES[name]


@pytest.mark.parametrize("name", STATES_OF_VERSION_1)
def test_an_epoch_goes_on_from_a_state_of_version_1(name: str) -> None:
    """The states were recorded with the version that wrote them, five bins into a second epoch."""
    kind, before = KINDS[name], bytes.fromhex(STATES_OF_VERSION_1[name])
    counts = some_counts(kind, 3)
    [whole] = closings(kind, counts, [0, BINS], SeededNoise(5))
    [now] = closings(kind, counts[:5], [0, 5], SeededNoise(6), kind.kept(whole.state))
    assert now.state != before
    page = drawn(kind, SeededNoise(6))
    ahead = page and part_of_page(kind.page_geometry(), page, range(5, BINS))
    of_before, of_now = (kind.close(held, counts[5:], SeededNoise(7), ahead) for held in (before, now.state))
    assert of_before.state == of_now.state
    assert all(
        np.array_equal(one.values, other.values)
        for one, other in zip(of_before.blocks, of_now.blocks, strict=True)
    )
