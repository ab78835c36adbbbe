"""Streams that older releases changed in place go on, and are put back from their witness."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from stream_app.core.exports import Export, ExportedStream, lines_of
from stream_app.core.ledger import statement
from stream_app.core.records import StreamState
from stream_app.core.segments.strategies import by_hash, unfinished_change
from stream_app.loops.configured import running_strategy
from stream_app.ports import OperatorError
from tests.models.memory import MemoryStore
from tests.stream_app.declared import FIRST_BIN, SOURCE, STREAM
from tests.stream_app.loops.test_lost_store import release_until
from tests.stream_app.older_forms import AFTER, BEFORE, change_in_place
from tests.stream_app.one_source import OneSource

CHANGED_AT = FIRST_BIN + 4


@pytest.fixture
def one(tmp_path: Path) -> Iterator[OneSource]:
    """Yield a file, a store and a witness."""
    with closing(OneSource(tmp_path, BEFORE)) as one:
        yield one


async def changed(one: OneSource) -> StreamState:
    """Release bins under both strategies; return the stream's state."""
    await release_until(one, CHANGED_AT)
    await change_in_place(one)
    await release_until(one, FIRST_BIN + 13, strategy=AFTER)
    return await one.state()


async def test_a_stream_with_two_strategies_goes_on_and_its_rows_tell_both(one: OneSource) -> None:
    state = await changed(one)
    assert state.texts == (BEFORE.to_json(), AFTER.to_json())
    rows = [json.loads(row.row) for row in await one.witness.rows(STREAM, 0)]
    assert [row["bin"] for row in rows] == list(range(FIRST_BIN, FIRST_BIN + 13))
    assert ["changed" in row for row in rows].index(True) == CHANGED_AT - FIRST_BIN
    assert sum("changed" in row for row in rows) == 1
    assert sum((await one.released()).values()) == 9  # the first worker began at the log's end
    assert statement(SOURCE, await one.store.ledger(SOURCE)).epsilon == AFTER.epsilon
    epochs = tuple(one.store.streams[STREAM].epochs)
    witnessed = tuple(await one.witness.rows(STREAM, 0))
    export = Export((ExportedStream(AFTER, epochs, witnessed),), await one.store.ledger(SOURCE))
    lines = list(lines_of(export))
    assert json.loads(lines[0])["private_counts_export"] == 2
    assert len(lines) == 1 + 1 + len(witnessed) + len(export.ledger) + 1


async def test_a_lost_store_gets_rows_of_both_strategies_back(one: OneSource) -> None:
    rows = (await changed(one)).seq
    one.store = MemoryStore(one.clock)
    await release_until(one, FIRST_BIN + 15, strategy=AFTER)
    state, public = await one.store.load(STREAM), await one.store.reader().public_state(STREAM)
    assert state is not None
    assert public is not None
    assert by_hash(state.texts).keys() == {BEFORE.hash, AFTER.hash}
    assert len(await one.store.rows(STREAM, 0, 100)) >= rows
    assert public.epochs[0].strategy_hash == BEFORE.hash


@pytest.mark.parametrize(
    ("first_bin", "released_bin", "ahead", "is_over"),
    [
        (120, 112, (1, 1), False),
        (110, 108, (1, 1), False),
        (110, 109, (1, 1), True),
        (110, 109, (9, 1), False),
    ],
)
async def test_an_announced_change_is_refused_until_it_decides_about_no_record(
    one: OneSource, first_bin: int, released_bin: int, ahead: tuple[int, int], is_over: bool
) -> None:
    """Args: ahead, how many bins ahead a record may be before and after the change."""
    before, after = ({"grace_us": 0, "max_ahead_bins": bins, "late": "drop"} for bins in ahead)
    text = json.dumps({"bin": first_bin, "before": before, "after": after}).encode()
    state = replace(await changed(one), announced=text, released_bin=released_bin)
    assert unfinished_change(replace(state, announced=None)) is None
    if is_over:
        assert running_strategy(state, AFTER) == AFTER
        return
    said = r"an older release announced that time\.grace, time\.max_ahead or late changes at 1970-"
    with pytest.raises(OperatorError, match=said):
        running_strategy(state, AFTER)
